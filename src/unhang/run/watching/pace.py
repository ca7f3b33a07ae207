"""Which rank of a job that moves keeps the others waiting. Pure: calls and times come from outside.

A collective that synchronises lets all ranks go when the last rank arrives. What a rank needs from
there to its next arrival is its own time; the slow rank is the one whose own time is longer than
the others', again and again. Own times are summed over blocks of 0.75 s or more, so that a step
of many calls counts as a whole, and medians over blocks leave single long steps (a checkpoint, an
evaluation, a garbage collection) out. A change point is where the sum of deviations is lowest:
with one rise, that is its likeliest place, and three lines find it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from typing import Final, NamedTuple

from unhang.activity.thresholds import (
    BLOCK_NS,
    BLOCKS,
    ERRORS,
    LEAST_EXCESS,
    LEAST_MS,
    LEAST_OF_TWO,
    SUSPECT_ERRORS,
)
from unhang.model import SlowRank

MOST_BLOCKS: Final = 100 * BLOCKS


class Arrival(NamedTuple):
    """One collective of one rank: the group's id, its number in it, when it was called."""

    group: int
    seq: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class _Block:
    begin_ns: int
    calls: int
    own_ns: Mapping[int, int]


@dataclass(slots=True)
class Pace:
    """Follows one job, look by look; says once of a rank that it is slow.

    Attributes:
        suspects: Whether a rank looks slow by the newest blocks, though they prove nothing.
    """

    suspects: bool = False
    blocks: list[_Block] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    _seen: dict[int, int] = field(default_factory=dict)
    _skip: int = BLOCKS // 3

    def see(self, calls: Mapping[int, Sequence[Arrival]]) -> SlowRank | None:
        """Take the newest calls of all ranks into account.

        Args:
            calls: Per rank its collectives, oldest first; they may overlap the last look's.
        """
        fresh = list(self._blocks_of(calls))
        skipped, self._skip = fresh[: self._skip], max(0, self._skip - len(fresh))
        self.blocks = [*self.blocks, *fresh[len(skipped) :]][-MOST_BLOCKS:]
        self.suspects = _looks_slow(self.blocks[-BLOCKS // 3 :], self.told)
        found = _slow_rank(self.blocks)
        if found is None or found.rank in self.told:
            return None
        self.told.add(found.rank)
        return found

    def _blocks_of(self, calls: Mapping[int, Sequence[Arrival]]) -> list[_Block]:
        """New blocks, from the group in which most of these ranks meet most often."""
        met: dict[int, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        for rank, arrivals in calls.items():
            for each in arrivals:
                met[each.group][each.seq][rank] = each.time_ns
        best = max(met, key=lambda group: _size(met[group]), default=None)
        if best is None or len(calls) < 2:  # noqa: PLR2004 - it takes two
            return []
        rounds = [(seq, who) for seq, who in sorted(met[best].items()) if len(who) == len(calls)]
        rounds = [(seq, who) for seq, who in rounds if seq > self._seen.get(best, -1)]
        blocks, used = _blocks(rounds)
        if used >= 0:
            self._seen[best] = used
        return blocks


def _size(rounds: Mapping[int, Mapping[int, int]]) -> tuple[int, int]:
    return max(map(len, rounds.values())), len(rounds)


def _blocks(rounds: Sequence[tuple[int, Mapping[int, int]]]) -> tuple[list[_Block], int]:
    """Whole blocks, and the number of the last call in them (-1 for none)."""
    blocks: list[_Block] = []
    used, begin, count = -1, 0, 0
    own: dict[int, int] = defaultdict(int)
    before: tuple[int, int] | None = None
    for seq, who in rounds:
        last = max(who.values())
        if before is not None and seq == before[0] + 1:
            begin = begin or before[1]
            count += 1
            for rank, moment in who.items():
                own[rank] += max(0, moment - before[1])
        if count and last - begin >= BLOCK_NS:
            blocks.append(_Block(begin, count, dict(own)))
            used, begin, count = seq - 1, 0, 0
            own.clear()
        before = (seq, last)
    return blocks, used


def _slow_rank(blocks: Sequence[_Block]) -> SlowRank | None:
    """The rank that was slow in all of the newest blocks, if there is one.

    Where chance alone may make such a difference in so few, more of them tell.
    """
    for count in (BLOCKS, 2 * BLOCKS, 4 * BLOCKS):
        recent = blocks[-count:]
        if len(recent) < count or len({frozenset(block.own_ns) for block in recent}) > 1:
            return None
        rank, excess, late_ms = _slowest(recent)
        if excess:
            since = _since(blocks, rank)
            end_ns = recent[-1].begin_ns + BLOCK_NS
            return SlowRank(rank, excess, late_ms, since, (end_ns - since) / 1e9)
    return None


def _looks_slow(newest: Sequence[_Block], told: set[int]) -> bool:
    """Whether a rank that was not reported yet was slow in these few blocks."""
    if not newest or len({frozenset(block.own_ns) for block in newest}) > 1:
        return False
    excess = {rank: _excess(newest, rank) for rank in newest[0].own_ns if rank not in told}
    worst = max(excess, key=lambda rank: excess[rank], default=None)
    if worst is None or excess[worst] < LEAST_EXCESS:
        return False
    return excess[worst] > SUSPECT_ERRORS * _error(newest, worst)


def _slowest(recent: Sequence[_Block]) -> tuple[int, float, float]:
    """The rank that needs longest, by how much, and the delay in ms; 0.0 for both if not surely."""
    excess = {rank: _excess(recent, rank) for rank in recent[0].own_ns}
    worst = max(excess, key=lambda rank: excess[rank])
    others = [value for rank, value in excess.items() if rank != worst]
    spread = median(abs(value - median(others)) for value in others)
    third = len(recent) // 3
    thirds = (recent[at : at + third] for at in range(0, 3 * third, third))
    steadily = all(_excess(part, worst) >= LEAST_EXCESS / 2 for part in thirds)
    late_ms = median(_late_ms(block, worst) for block in recent)
    least = LEAST_EXCESS if len(others) > 1 else LEAST_OF_TWO
    error = max(_error(recent, worst), median(_error(recent, rank) for rank in excess))
    surely = max(least, ERRORS * spread, ERRORS * error)
    if excess[worst] < surely or not steadily or late_ms < LEAST_MS:
        return worst, 0.0, 0.0
    return worst, excess[worst], late_ms


def _share(block: _Block, rank: int) -> float:
    """By how much the own time of a rank is longer than the middle of the others'."""
    usual = median(own for other, own in block.own_ns.items() if other != rank)
    return block.own_ns[rank] / usual - 1 if usual > 0 else 0.0


def _excess(blocks: Sequence[_Block], rank: int) -> float:
    return median(_share(block, rank) for block in blocks)


def _error(blocks: Sequence[_Block], rank: int) -> float:
    """Standard error of the median, from how far blocks lie from it (1.48 for a normal noise)."""
    shares = [_share(block, rank) for block in blocks]
    middle = median(shares)
    return float(1.25 * 1.48 * median(abs(s - middle) for s in shares) / len(shares) ** 0.5)


def _late_ms(block: _Block, rank: int) -> float:
    usual = median(own for other, own in block.own_ns.items() if other != rank)
    return (block.own_ns[rank] - usual) / block.calls / 1e6


def _since(blocks: Sequence[_Block], rank: int) -> int:
    """When a rank became slow: the lowest point of the summed deviations."""
    known = [block for block in blocks if rank in block.own_ns]
    shares = [_share(block, rank) for block in known]
    middle = (median(shares[-BLOCKS:]) + min(0.0, median(shares))) / 2
    sums = [0.0, *accumulate(min(share, 1.0) - middle for share in shares)]
    return known[min(sums.index(min(sums)), len(known) - 1)].begin_ns
