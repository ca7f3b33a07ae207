"""Everything that the steps before the findings worked out, and how to speak of it.

A `Picture` is built once per case. The modules that explain roots read it and share these words and
measures, so that a call, a side or a chain looks the same in every finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unhang.analysis.matching.collectives import Disagreement, Matched
from unhang.analysis.matching.pairs import Pairs
from unhang.analysis.matching.wait_graph import Graph
from unhang.analysis.sites import StackBook
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Bools, Evidence, Ints
from unhang.analysis.state.progress import NEVER, Place, Standing
from unhang.analysis.state.stale import made_ns
from unhang.model import DumpStatus, Group, State
from unhang.report import CallSide, GroupRef, Site, Wait
from unhang.wording import rank_phrase

__all__ = ["Picture"]

_MAX_LINKS = 8
_MAX_SIDES = 8


@dataclass(frozen=True, eq=False)
class Picture:
    """The whole situation.

    Attributes:
        outdated: Dense ranks whose dumps are older than their peers' and tell nothing of now.
        unlaunched: Per dense rank: its head was recorded and never launched.
        disagreements: By unit.
    """

    evidence: Evidence
    standing: Standing
    heads: Heads
    outdated: Ints
    unlaunched: Bools
    matched: Matched
    pairs: Pairs
    disagreements: dict[int, Disagreement]
    graph: Graph
    book: StackBook

    def group(self, unit: int) -> Group:
        """Group of a unit."""
        channel = int(self.heads.channel[unit])
        return self.evidence.case.groups[self.evidence.group_of(channel)]

    def group_ref(self, unit: int) -> GroupRef:
        """Group of a unit as findings name it."""
        group = self.group(unit)
        return GroupRef(group.name, group.description, group.size)

    def row(self, unit: int) -> int:
        """A row that stands for a unit: the head of its lowest rank."""
        owner = int(self.heads.owner[unit])
        rank = owner if owner >= 0 else int(self.heads.inside(unit)[0])
        return int(self.heads.row[rank])

    def op(self, unit: int) -> str:
        """Operation of a unit."""
        case = self.evidence.case
        return case.names[int(case.calls.name[self.row(unit)])].op

    def label(self, unit: int) -> str:
        """A unit in words: "all_reduce #41 of tp (2)", "send to rank 5 of pp (7)"."""
        if unit >= self.heads.n_collective:
            return f"{self._exchange(unit)} of {self.group(unit).label}"
        number = int(self.heads.seq[unit])
        shown = f" #{number}" if number >= 0 else ""
        return f"{self.op(unit)}{shown} of {self.group(unit).label}"

    def _exchange(self, unit: int) -> str:
        """A send, a receive or a batch of them in words."""
        calls = self.pairs.of_unit(unit)
        numbers = self.evidence.ranks.numbers
        told = []
        for sending, word in ((True, "send to"), (False, "recv from")):
            peers = self.pairs.peer[calls[self.pairs.sending[calls] == sending]]
            named = sorted({int(numbers[peer]) for peer in peers[peers >= 0]})
            if named or len(peers):
                told.append(f"{word} {rank_phrase(named) if named else 'any rank'}")
        return " and ".join(told) or self.op(unit)

    def seq(self, unit: int) -> int | None:
        """Sequence number of a collective unit; None where it has none."""
        number = int(self.heads.seq[unit])
        return number if unit < self.heads.n_collective and number >= 0 else None

    def named(self, dense: Iterable[int] | Ints) -> tuple[int, ...]:
        """Global ranks, ascending."""
        return self.evidence.ranks.named(np.asarray(list(dense), np.int64))

    def members(self, unit: int) -> Ints:
        """Dense ranks of a unit's group, strangers left out."""
        members = self.evidence.members(int(self.heads.channel[unit]))
        return members[members >= 0]

    def places(self, unit: int) -> tuple[Ints, Ints]:
        """Members of a collective unit and their `Place`."""
        members = self.members(unit)
        channel, seq = int(self.heads.channel[unit]), int(self.heads.seq[unit])
        return members, self.standing.places(members, channel, seq)[0]

    def at_place(self, unit: int, place: Place) -> tuple[int, ...]:
        """Global ranks of the members at one place."""
        members, places = self.places(unit)
        return self.named(members[places == place])

    @cached_property
    def silent(self) -> Bools:
        """Per dense rank: it left no dump that counts."""
        silent = np.ones(len(self.evidence.ranks), np.bool_)
        silent[self.evidence.owner] = False
        return silent

    @cached_property
    def cut(self) -> Bools:
        """Per dense rank: a dump of it was cut short, and its newest calls are lost."""
        cut = np.zeros(len(self.evidence.ranks), np.bool_)
        owners = zip(self.evidence.owner.tolist(), self.evidence.dumps, strict=True)
        cut[[owner for owner, dump in owners if dump.status is DumpStatus.TRUNCATED]] = True
        return cut

    def last_rows(self, dense: Iterable[int]) -> Ints:
        """Last recorded row of each of these ranks, where it has one."""
        created = self.evidence.case.calls.created_ns
        wanted = set(dense)
        chosen: dict[int, int] = {}
        for owner, dump in zip(self.evidence.owner.tolist(), self.evidence.dumps, strict=True):
            if owner in wanted and dump.stop > dump.start:
                row = dump.stop - 1
                if owner not in chosen or created[row] > created[chosen[owner]]:
                    chosen[owner] = row
        return np.asarray([chosen[rank] for rank in sorted(chosen)], np.int64)

    def placed_now(self, dense: Iterable[int]) -> tuple[list[int], list[int]]:
        """Ranks (dense) whose dumps say where they stood when they were made, and the others."""
        told = {dump.rank for dump in self.evidence.dumps if dump.main_stack}
        known = {rank: int(self.evidence.ranks.numbers[rank]) in told for rank in dense}
        return [r for r in known if known[r]], [r for r in known if not known[r]]

    def sites_of_absent(self, dense: Iterable[int]) -> tuple[Site, ...]:
        """Where culprits that wait for nobody stand; where that is unknown, their last calls."""
        placed, others = self.placed_now(dense)
        return (
            *self.book.sites_of_dumps(self.named(placed), "culprit"),
            *self.book.sites_of_rows(self.last_rows(others), "culprit"),
        )

    def whose_lines(self, dense: Iterable[int]) -> tuple[str, ...]:
        """Say for which of them `sites_of_absent` shows the last call, not where they stand."""
        rows = self.last_rows(self.placed_now(dense)[1])
        calls = self.evidence.case.calls
        ranks = sorted(calls.rank[rows[calls.stack[rows] >= 0]].tolist())
        if not ranks:
            return ()
        last, stand = (
            ("its last call, which is finished", "it stands")
            if len(ranks) == 1
            else ("their last calls, which are finished", "they stand")
        )
        text = f"The line of {rank_phrase(ranks)} is that of {last}; where {stand} now is not in "
        return (f"{text}the dumps.",)

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
            group=GroupRef(group.name, group.description, group.size),
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
            waiter, unit = node, int(self.heads.unit[node])
            while node >= self.graph.n_ranks or node == waiter:
                nearer = self._next(node, distance)
                if nearer is None:
                    return tuple(waits)
                node = nearer
            numbers = self.evidence.ranks.numbers
            waits.append(Wait(int(numbers[waiter]), int(numbers[node]), self.label(unit)))
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
    def waited_ns(self) -> Ints:
        """Per dense rank: how long its head had been waiting when its dump was made; -1 unknown."""
        times, calls = made_ns(self.evidence), self.evidence.case.calls
        waited = np.full(len(self.heads.row), -1, np.int64)
        ranks = np.flatnonzero(self.heads.row >= 0)
        rows = self.heads.row[ranks]
        made, created = times[calls.dump[rows]], calls.created_ns[rows]
        known = (made > 0) & (created > 0)
        waited[ranks[known]] = np.maximum(made - created, 0)[known]
        return waited

    @cached_property
    def finished_up_to(self) -> Ints:
        """Per row of `standing`: the last sequence number that the rank has finished."""
        standing = self.standing
        opened = np.where(standing.open_from == NEVER, standing.reach + 1, standing.open_from)
        last: Ints = np.minimum(opened - 1, standing.reach)
        return last

    @cached_property
    def furthest_finished(self) -> Ints:
        """Per channel: the last sequence number that anybody has finished; -1 if none."""
        furthest = np.full(self.evidence.n_channels, -1, np.int64)
        channel = self.standing.keys % self.standing.n_channels
        np.maximum.at(furthest, channel, self.finished_up_to)
        return furthest


def _state(evidence: Evidence, row: int) -> str:
    if evidence.finished[row]:
        return "completed"
    return State(int(evidence.case.calls.state[row])).name.lower()
