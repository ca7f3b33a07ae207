"""What a rank called in a channel, as a sequence that can be compared with its peers'.

A call boils down to what it demands of its peers (strictly: and the lines it came from). Peers are
the members of the same group; where that is too small for a majority, also the members of its kin:
groups of the same description and size, which run the same program in SPMD jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from msgspec import Struct, field

from unhang.analysis.divergence.align import CallSequence
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.ops import demand_of
from unhang.case import Dump
from unhang.model import Frame
from unhang.spans import distinct, tuples
from unhang.stacks.ownership import is_library

_MAX_KIN = 16


class RankProgram(Struct, frozen=True, eq=False):
    """The collective calls of one rank in one channel that its window shows.

    Attributes:
        rank: Index of the rank.
        rows: Rows, in order.
        seqs: Their sequence numbers.
    """

    rank: int
    rows: Ints
    seqs: Ints

    def since(self, seq: int) -> RankProgram:
        """The part from a sequence number on."""
        start = int(np.searchsorted(self.seqs, seq))
        return RankProgram(self.rank, self.rows[start:], self.seqs[start:])


class RankPrograms(Struct):
    """RankPrograms of ranks, with one numbering of demands and sites for all of them."""

    situation: Situation
    _dumps: dict[int, list[Dump]] = field(default_factory=dict)
    _sites: dict[tuple[Frame, ...], int] = field(default_factory=dict)
    _site_of_stack: dict[int, int] = field(default_factory=dict)
    _keys: dict[object, int] = field(default_factory=dict)
    _kinds: dict[tuple[str, int], int] = field(default_factory=dict)
    _pairs: dict[tuple[int, int, int, int], tuple[int, int]] = field(default_factory=dict)
    _kind_of_group: Ints | None = None
    _wholes: dict[int, RankProgram | None] = field(default_factory=dict)
    _roles: dict[int, frozenset[object]] = field(default_factory=dict)
    _calls: dict[RankProgram, CallSequence] = field(default_factory=dict)

    def of(self, rank: int, channel: int) -> RankProgram:
        """RankProgram of one rank (indices) in one channel.

        Of a dump of unfinished calls those only: the finished ones in it are members of coalesced
        calls, between which others are left out.
        """
        evidence = self.situation.evidence
        parts = []
        self.ask(rank)
        for dump in self._dumps_of_rank().get(rank, ()):
            span = slice(dump.start, dump.stop)
            wanted = evidence.collective[span] & (evidence.channel(span) == channel)
            wanted &= evidence.case.calls.seq[span] >= 0
            wanted &= ~(evidence.finished[span] & dump.active_only)
            parts.append(np.flatnonzero(wanted) + dump.start)
        rows = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return RankProgram(rank, rows, np.asarray(evidence.case.calls.seq[rows], np.int64))

    def ask(self, rank: int) -> None:
        """Note a rank of whose calls more would be needed than the case has."""
        if any(dump.window.left_out for dump in self._dumps_of_rank().get(rank, ())):
            self.situation.asked.add(int(self.situation.evidence.ranks.numbers[rank]))

    def _dumps_of_rank(self) -> dict[int, list[Dump]]:
        if not self._dumps:
            evidence = self.situation.evidence
            for owner, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
                self._dumps.setdefault(owner, []).append(dump)
        return self._dumps

    def whole(self, rank: int) -> RankProgram | None:
        """All calls of one rank over all of its groups; None where the start is not shown."""
        if rank not in self._wholes:
            self._wholes[rank] = self._whole(rank)
        return self._wholes[rank]

    def _whole(self, rank: int) -> RankProgram | None:
        evidence = self.situation.evidence
        dumps = self._dumps_of_rank().get(rank, [])
        self.ask(rank)
        if len(dumps) != 1 or dumps[0].active_only or dumps[0].first_record_id > 0:
            return None
        if dumps[0].window.left_out:
            return None
        rows = np.arange(dumps[0].start, dumps[0].stop)
        closing = evidence.names.closing[evidence.case.calls.name[rows]]
        lone = ~(evidence.batches.ends(rows) | evidence.batches.p2p[rows])
        rows = rows[~closing | lone]
        return RankProgram(rank, rows, np.arange(len(rows)))

    def role(self, rank: int) -> frozenset[object]:
        """What ranks that run the same program share: kinds of groups, sends and receives."""
        if rank not in self._roles:
            self._roles[rank] = self._role(rank)
        return self._roles[rank]

    def _role(self, rank: int) -> frozenset[object]:
        program = self.whole(rank)
        if program is None:
            return frozenset()
        case = self.situation.evidence.case
        numbers = distinct(case.calls.group[program.rows]).tolist()
        kinds = {(case.groups[n].description, case.groups[n].size) for n in numbers}
        lone = program.rows[~self.situation.evidence.collective[program.rows]]
        exchanges = {case.names[n].raw for n in distinct(case.calls.name[lone]).tolist()}
        return frozenset(kinds | exchanges)

    def calls(self, program: RankProgram) -> CallSequence:
        """A program as columns to be aligned; calls of different kinds of groups differ."""
        if program not in self._calls:
            self._calls[program] = self._columns(program.rows)
        return self._calls[program]

    def _columns(self, rows: Ints) -> CallSequence:
        calls = self.situation.evidence.case.calls
        columns = [calls.name[rows], calls.signature[rows], calls.stack[rows]]
        triples = np.stack([*columns, self._kinds_of_groups()[calls.group[rows]]])
        unique, at = tuples(triples)
        numbers = [self._numbers(*(int(part) for part in each)) for each in unique.T]
        strict = np.asarray([pair[0] for pair in numbers], np.int64)
        loose = np.asarray([pair[1] for pair in numbers], np.int64)
        return CallSequence(strict[at], loose[at])

    def lines_of(self, rows: Ints) -> Ints:
        """A number for where each call was made, by a stack's own lines."""
        stacks = self.situation.evidence.case.calls.stack[rows].tolist()
        return np.asarray([self._site(stack) for stack in stacks], np.int64)

    def _kinds_of_groups(self) -> Ints:
        """Number of the description and size of each group."""
        if self._kind_of_group is None:
            groups = self.situation.evidence.case.groups
            kinds = [(group.description, group.size) for group in groups]
            numbers = [self._kinds.setdefault(kind, len(self._kinds)) for kind in kinds]
            self._kind_of_group = np.asarray(numbers)
        return self._kind_of_group

    def _numbers(self, name: int, signature: int, stack: int, kind: int) -> tuple[int, int]:
        key = name, signature, stack, kind
        if key not in self._pairs:
            case = self.situation.evidence.case
            demand = demand_of(case.names[name], case.signatures[signature])
            loose = self._keys.setdefault((demand, kind), len(self._keys))
            strict = self._keys.setdefault((demand, kind, self._site(stack)), len(self._keys))
            self._pairs[key] = strict, loose
        return self._pairs[key]

    def _site(self, stack: int) -> int:
        """Number of a stack's own lines, library frames left out; -1 for no stack."""
        if stack < 0:
            return -1
        if stack not in self._site_of_stack:
            frames = self.situation.evidence.case.stacks[stack]
            lines = tuple(frame for frame in frames if not is_library(frame)) or frames
            self._site_of_stack[stack] = self._sites.setdefault(lines, len(self._sites))
        return self._site_of_stack[stack]

    def kin(self, channel: int) -> Iterator[int]:
        """Channels of groups with the same description and size, this one left out."""
        evidence = self.situation.evidence
        groups = evidence.case.groups
        mine = groups[evidence.group_of(channel)]
        backends = len(evidence.backends)
        found = 0
        for number, group in enumerate(groups):
            alike = group.description == mine.description and group.size == mine.size
            if alike and group is not mine and group.description and found < _MAX_KIN:
                found += 1
                yield number * backends + channel % backends

    def peers(self, channel: int, others_than: Sequence[int], most: int) -> list[RankProgram]:
        """RankPrograms of the first other members of a channel that show anything."""
        members = self.situation.evidence.members(channel).tolist()
        programs = (
            self.of(rank, channel) for rank in members if rank >= 0 and rank not in others_than
        )
        return list(islice((program for program in programs if len(program.rows)), most))
