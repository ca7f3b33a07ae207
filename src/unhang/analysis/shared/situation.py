"""Everything that the steps before the findings worked out, with the measures that they share.

A `Situation` is built once per case. The rules read it, so that a call, a side or a chain looks the
same in every claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from msgspec import Struct, field

from unhang.analysis.matching.collectives import Disagreement, Matched
from unhang.analysis.matching.kin_order import later_by_kin
from unhang.analysis.matching.pairs import Pairs
from unhang.analysis.matching.roots import Root, find_roots
from unhang.analysis.matching.wait_graph import Graph
from unhang.analysis.shared.claims import Doubt
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.state.age import Ages, ages_of
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.motion import just_ended
from unhang.analysis.state.progress import NEVER, Stage, Standing
from unhang.model import DEFAULT_GROUP, DumpStatus, Frame, Group, State
from unhang.report import CallSide, GroupRef, Site, Wait
from unhang.wording import rank_phrase

_MAX_LINKS = 8
_MAX_SIDES = 8


class Situation(Struct, frozen=True, eq=False, dict=True):
    """What is known of a case before anything is judged.

    Attributes:
        outdated: Indices of ranks whose dumps are older than their peers' and tell nothing of now.
        disagreements: By waiting call.
        asked: Ranks of whose calls more would be needed than the case has; added to as rules ask.
    """

    evidence: Evidence
    standing: Standing
    heads: Heads
    outdated: Ints
    matched: Matched
    pairs: Pairs
    disagreements: dict[int, Disagreement]
    graph: Graph
    book: StackBook
    asked: set[int] = field(default_factory=set)

    def group(self, waiting_call: int) -> Group:
        """Group of a waiting call."""
        channel = int(self.heads.channel[waiting_call])
        return self.evidence.case.groups[self.evidence.group_of(channel)]

    def group_ref(self, waiting_call: int) -> GroupRef:
        """Group of a waiting call as findings name it."""
        group = self.group(waiting_call)
        return GroupRef.of(group)

    def row(self, waiting_call: int) -> int:
        """A row that stands for a waiting call: the head of its lowest rank."""
        owner = int(self.heads.owner[waiting_call])
        rank = owner if owner >= 0 else int(self.heads.inside(waiting_call)[0])
        return int(self.heads.row[rank])

    def op(self, waiting_call: int) -> str:
        """Operation of a waiting call."""
        case = self.evidence.case
        return case.names[int(case.calls.name[self.row(waiting_call)])].op

    def label(self, waiting_call: int) -> str:
        """Name of a waiting call: "all_reduce #41 of tp (2)", "send to rank 5 of pp (7)"."""
        if waiting_call >= self.heads.n_collective:
            return f"{self._exchange(waiting_call)} of {self.group(waiting_call).label}"
        number = int(self.heads.seq[waiting_call])
        shown = f" #{number}" if number >= 0 else ""
        return f"{self.op(waiting_call)}{shown} of {self.group(waiting_call).label}"

    def _exchange(self, waiting_call: int) -> str:
        """A send, a receive or a batch of them in words."""
        calls = self.pairs.of_waiting_call(waiting_call)
        numbers = self.evidence.ranks.numbers
        ends = []
        for sending, word in ((True, "send to"), (False, "recv from")):
            peers = self.pairs.peer[calls[self.pairs.sending[calls] == sending]]
            named = sorted({int(numbers[peer]) for peer in peers[peers >= 0]})
            if named or len(peers):
                ends.append(f"{word} {rank_phrase(named) if named else 'any rank'}")
        return " and ".join(ends) or self.op(waiting_call)

    def seq(self, waiting_call: int) -> int | None:
        """Sequence number of a collective waiting call; None where it has none."""
        number = int(self.heads.seq[waiting_call])
        return number if waiting_call < self.heads.n_collective and number >= 0 else None

    def named(self, indices: Iterable[int] | Ints) -> tuple[int, ...]:
        """Global ranks, ascending."""
        return self.evidence.ranks.named(np.asarray(list(indices), np.int64))

    def members(self, waiting_call: int) -> Ints:
        """Indices of the members of a waiting call's group, strangers left out."""
        members = self.evidence.members(int(self.heads.channel[waiting_call]))
        return members[members >= 0]

    def stages(self, waiting_call: int) -> tuple[Ints, Ints]:
        """Members of a collective waiting call and their `Stage`."""
        members = self.members(waiting_call)
        channel, seq = int(self.heads.channel[waiting_call]), int(self.heads.seq[waiting_call])
        return members, self.standing.stages(members, channel, seq)[0]

    @cached_property
    def silent(self) -> Bools:
        """Per rank: it left no dump that counts."""
        silent = np.ones(len(self.evidence.ranks), np.bool_)
        silent[self.evidence.owner] = False
        return silent

    @cached_property
    def cut(self) -> Bools:
        """Per rank index: a dump of it was cut short, and its newest calls are lost."""
        cut = np.zeros(len(self.evidence.ranks), np.bool_)
        owners = zip(self.evidence.owner.tolist(), self.evidence.dumps, strict=True)
        cut[[owner for owner, dump in owners if dump.status is DumpStatus.TRUNCATED]] = True
        return cut

    @property
    def in_calls(self) -> frozenset[int]:
        """Ranks that are in a call."""
        inside = self.heads.waiting_call >= 0
        return frozenset(self.evidence.ranks.numbers[inside].tolist())

    @property
    def untimed(self) -> tuple[int, ...]:
        """Ranks whose dumps came without the times of most of their calls."""
        owners = zip(self.evidence.owner.tolist(), self.evidence.dumps, strict=True)
        return self.named({owner for owner, dump in owners if dump.few_times})

    def last_rows(self, indices: Iterable[int]) -> Ints:
        """Last recorded row of each of these ranks, where it has one."""
        created = self.evidence.case.calls.created_ns
        wanted = set(indices)
        chosen: dict[int, int] = {}
        for owner, dump in zip(self.evidence.owner.tolist(), self.evidence.dumps, strict=True):
            if owner in wanted and dump.stop > dump.start:
                row = dump.stop - 1
                if owner not in chosen or created[row] > created[chosen[owner]]:
                    chosen[owner] = row
        return np.asarray([chosen[rank] for rank in sorted(chosen)], np.int64)

    def frames(self, row: int) -> tuple[Frame, ...]:
        """Stack of the call of a row; empty where none was recorded."""
        return self.evidence.case.stacks[int(self.evidence.case.calls.stack[row])]

    def placed_now(self, indices: Iterable[int]) -> tuple[list[int], list[int]]:
        """Ranks (indices) whose dumps say where they stood when they were made, and the others."""
        placed = {dump.rank for dump in self.evidence.dumps if dump.main_stack}
        known = {rank: int(self.evidence.ranks.numbers[rank]) in placed for rank in indices}
        return [r for r in known if known[r]], [r for r in known if not known[r]]

    def sites_of_absent(self, indices: Iterable[int]) -> tuple[Site, ...]:
        """Where culprits that wait for no other are; where that is unknown, their last calls."""
        placed, others = self.placed_now(indices)
        rows = self.last_rows(others)
        return (
            *self.book.sites_of_dumps(self.named(placed), "culprit"),
            *(self._left(site, rows) for site in self.book.sites_of_rows(rows, "culprit")),
        )

    def waiting_rows(self, waiting_call: int) -> Ints:
        """The rows in which ranks are in a waiting call."""
        rows: Ints = self.heads.row[self.heads.inside(waiting_call)]
        return rows

    def waiting_sides(self, waiting_call: int) -> tuple[CallSide, ...]:
        """What those called who are in a waiting call."""
        return self.sides_by_row(self.waiting_rows(waiting_call), "victim")

    def sites_of_wait(self, absent: Iterable[int], waiting_call: int) -> tuple[Site, ...]:
        """Where ranks that a call misses stand, and where those wait that are in it."""
        waiting = self.waiting_rows(waiting_call)
        return (*self.sites_of_absent(absent), *self.book.sites_of_rows(waiting, "victim"))

    def _left(self, site: Site, rows: Ints) -> Site:
        """Say of the site of finished calls which call it was that the ranks have left since."""
        own = rows[np.isin(self.evidence.case.calls.rank[rows], site.ranks)].tolist()
        if not all(self.evidence.finished[row] for row in own):
            return site
        names = {self.name_of(row) for row in own}
        return replace(site, after=names.pop() if len(names) == 1 else "its last call")

    def name_of(self, row: int) -> str:
        """Name of the call of a row: "all_reduce #4 of default_pg (0)"."""
        call = self.evidence.case.call(row)
        p2p = not self.evidence.collective[row]
        number = call.p2p_seq if p2p else call.seq
        kind = ", P2P #" if p2p else " #"
        return f"{call.name.op}{f'{kind}{number}' if number >= 0 else ''} of {call.group.label}"

    def last_lines(self, indices: Iterable[int]) -> tuple[int, ...]:
        """Those whose last call `sites_of_absent` shows, not where they stand (global)."""
        rows = self.last_rows(self.placed_now(indices)[1])
        calls = self.evidence.case.calls
        return tuple(sorted(calls.rank[rows[calls.stack[rows] >= 0]].tolist()))

    def doubts_of_members(self, waiting_call: int) -> tuple[Doubt, ...]:
        """What is not known about the members of a collective waiting call."""
        unseen = (self.stages(waiting_call)[1] == Stage.UNKNOWN).any()
        return (*((Doubt.MEMBER_UNSEEN,) if unseen else ()), *self.doubts_of_group(waiting_call))

    def doubts_of_group(self, waiting_call: int) -> tuple[Doubt, ...]:
        """Whether the members of a waiting call's group are inferred."""
        return (Doubt.MEMBERS_INFERRED,) if self.group(waiting_call).inferred else ()

    def may_be_several(self, channel: int) -> bool:
        """Whether a channel's group may be several of one name, so that no majority is one of it.

        Its members were inferred, and every rank counts the groups that it is in by itself.
        """
        group = self.evidence.case.groups[self.evidence.group_of(channel)]
        return group.inferred and group.description != DEFAULT_GROUP and group.name != "0"

    def side(self, ranks: Sequence[int], row: int, role: str, peer: int | None = None) -> CallSide:
        """One side of a finding: what these ranks called.

        Args:
            ranks: Global ranks.
            row: A row that stands for the call.
            role: "culprit", "victim" or "peer".
            peer: The other global rank of a send or receive.
        """
        case = self.evidence.case
        calls = case.calls
        group = case.groups[int(calls.group[row])]
        signature = case.signatures[int(calls.signature[row])]
        p2p = not self.evidence.collective[row]
        return CallSide(
            ranks=tuple(ranks),
            role=role,
            group=GroupRef.of(group),
            seq=None if p2p or calls.seq[row] < 0 else int(calls.seq[row]),
            p2p_seq=int(calls.p2p_seq[row]) if p2p and calls.p2p_seq[row] >= 0 else None,
            op=case.names[int(calls.name[row])].op,
            sizes=(signature.input_sizes or signature.output_sizes),
            dtypes=(signature.input_dtypes or signature.output_dtypes),
            peer=peer,
            state=_state(self.evidence, row),
        )

    def never_called(self, ranks: Sequence[int], row: int, role: str) -> CallSide:
        """A side that never made the call of this row, which others made."""
        side = self.side(ranks, row, role)
        return replace(side, sizes=(), dtypes=(), state="")

    def sides_by_row(self, rows: Ints, role: str) -> tuple[CallSide, ...]:
        """Sides of several ranks' calls, one row a rank, folded where they are the same."""
        calls = self.evidence.case.calls
        folded: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for row in rows.tolist():
            number = calls.seq[row] if self.evidence.collective[row] else -1 - row
            key = (calls.group[row], number, calls.name[row], calls.signature[row])
            folded[tuple(int(part) for part in key)].append(row)
        largest = sorted(folded.values(), key=lambda own: (-len(own), calls.rank[own[0]]))
        return tuple(
            self.side(sorted(int(calls.rank[row]) for row in own), own[0], role, self.peer(own[0]))
            for own in largest[:_MAX_SIDES]
        )

    def peer(self, row: int) -> int | None:
        """Global rank at the other end of an unfinished send or receive; None for the rest."""
        at = self.pairs.at_row(row)
        if at < 0 or self.pairs.peer[at] < 0:
            return None
        return int(self.evidence.ranks.numbers[self.pairs.peer[at]])

    def victims(self, distance: Ints) -> tuple[int, ...]:
        """Global ranks that lead to a root, its own left out."""
        return self.named(np.flatnonzero(distance[: self.graph.n_ranks] > 0))

    def chain(self, distance: Ints) -> tuple[Wait, ...]:
        """The longest shortest way from a victim to the root, as waits; cut to a few links."""
        reach = distance[: self.graph.n_ranks]
        if not len(reach) or reach.max() <= 0:
            return ()
        node = int(np.argmax(reach))
        waits: list[Wait] = []
        while distance[node] > 0 and len(waits) < _MAX_LINKS:
            waiter, waiting_call = node, int(self.heads.waiting_call[node])
            while node >= self.graph.n_ranks or node == waiter:
                nearer = self._next(node, distance)
                if nearer is None:
                    return tuple(waits)
                node = nearer
            numbers = self.evidence.ranks.numbers
            waits.append(Wait(int(numbers[waiter]), int(numbers[node]), self.label(waiting_call)))
        return tuple(waits)

    def _next(self, node: int, distance: Ints) -> int | None:
        """The neighbour of a node that is nearest to the root."""
        low, high = np.searchsorted(self._by_source[0], [node, node + 1])
        targets = self._by_source[1][low:high]
        nearer = targets[(distance[targets] >= 0) & (distance[targets] < distance[node])]
        return int(nearer.min()) if len(nearer) else None

    @cached_property
    def _by_source(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.graph.source, kind="stable")
        return self.graph.source[order], self.graph.target[order]

    @cached_property
    def roots(self) -> tuple[Root, ...]:
        """All ends of waiting."""
        by_kin = partial(later_by_kin, self.evidence, self.standing, self.heads)
        return tuple(find_roots(self.graph, self.heads, by_kin))

    @cached_property
    def ages(self) -> Ages:
        """How old the heads of ranks are."""
        return ages_of(self.evidence, self.heads, self.outdated)

    @cached_property
    def just_ended(self) -> Ints:
        """Where calls had just ended as dumps were made, as keys of `standing`."""
        return just_ended(self.evidence)

    @cached_property
    def finished_up_to(self) -> Ints:
        """Per row of `standing`: the last sequence number that the rank has finished."""
        standing = self.standing
        opened = np.where(standing.open_from == NEVER, standing.reach + 1, standing.open_from)
        last: Ints = np.minimum(opened - 1, standing.reach)
        return last

    @cached_property
    def furthest_made(self) -> Ints:
        """Per channel: the last sequence number that any rank has called; -1 if none."""
        furthest = np.full(self.evidence.n_channels, -1, np.int64)
        np.maximum.at(furthest, self.standing.keys % self.standing.n_channels, self.standing.reach)
        return furthest

    @cached_property
    def furthest_finished(self) -> Ints:
        """Per channel: the last sequence number that any rank has finished; -1 if none.

        Of ranks whose dump was cut short, the calls that would show as open are lost.
        """
        furthest = np.full(self.evidence.n_channels, -1, np.int64)
        owner, channel = np.divmod(self.standing.keys, self.standing.n_channels)
        whole = ~self.cut[owner]
        np.maximum.at(furthest, channel[whole], self.finished_up_to[whole])
        return furthest


def _state(evidence: Evidence, row: int) -> str:
    if evidence.finished[row]:
        return "completed"
    state = State(int(evidence.case.calls.state[row]))
    if state is State.COMPLETED:  # recorded so before it was launched: it has not finished
        state = State.SCHEDULED
    return state.name.lower()
