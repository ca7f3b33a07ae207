"""Do the members of a waiting call agree about it? Op, sizes, dtypes, splits, by the op's rules.

The majority is right until evidence says otherwise; without a majority none is. Only the calls in
which ranks wait are compared, with whatever finished or queued calls carry the same number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from enum import Enum, auto
from functools import cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.matching.rooted import RootsOfCall, roots_apart
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.ops import Demand, demand_of, elements, rule_of
from unhang.case import Case
from unhang.spans import distinct

_CHUNK = 1 << 22


class Matched(Struct, frozen=True, eq=False):
    """The rows of all dumps with a waiting call's channel and number, by waiting call, then row."""

    waiting_call: Ints
    row: Ints

    def of(self, waiting_call: int) -> Ints:
        """Rows of one waiting call."""
        low, high = np.searchsorted(self.waiting_call, [waiting_call, waiting_call + 1])
        return self.row[low:high]


class Side(Struct, frozen=True):
    """Ranks that made the same call, and one of their rows (the last of a batch)."""

    ranks: tuple[int, ...]
    row: int


class Aspect(Enum):
    """In what the members of one call may differ."""

    OP = auto()
    SIZES = auto()
    DTYPES = auto()
    AMOUNTS = auto()
    """What all send and receive does not add up."""


class Disagreement(Struct, frozen=True):
    """What the members of one call disagree about.

    Attributes:
        waiting_call: The waiting call.
        aspect: In what.
        sides: Largest first.
        majority: The right side, or None where no side has more than half of those who are known
            to have made the call.
        of_all: It has more than half with those members, too, of whom there is no dump.
        totals: Elements sent and received in all, for a split mismatch.
        roots: Ranks that took the call as its root, where these are not just one; None elsewhere.
            The majority is then told by who has been its root before.
    """

    waiting_call: int
    aspect: Aspect
    sides: tuple[Side, ...]
    majority: Side | None
    of_all: bool
    totals: tuple[int, int] | None = None
    roots: tuple[int, ...] | None = None

    @property
    def odd_ranks(self) -> tuple[int, ...]:
        """Ranks outside the majority; none where there is no majority."""
        if self.majority is None:
            return ()
        return tuple(
            sorted(r for side in self.sides if side is not self.majority for r in side.ranks)
        )


def rows_at_waiting_calls(evidence: Evidence, heads: Heads) -> Matched:
    """Find all rows of the collective waiting calls, finished ones included, in one pass."""
    n = heads.n_collective
    calls = evidence.case.calls
    lowest = np.full(evidence.n_channels, np.iinfo(np.int64).max)
    highest = np.full(evidence.n_channels, -1, np.int64)
    np.minimum.at(lowest, heads.channel[:n], heads.seq[:n])
    np.maximum.at(highest, heads.channel[:n], heads.seq[:n])
    found_waiting_call, found_row = [], []
    for start in range(0, len(calls) if n else 0, _CHUNK):
        span = slice(start, min(start + _CHUNK, len(calls)))
        channel, seq = evidence.channel(span), calls.seq[span]
        near = (seq >= lowest[channel]) & (seq <= highest[channel]) & evidence.collective[span]
        rows = np.flatnonzero(near)
        waiting_call = _waiting_call_of(heads, channel[rows], seq[rows])
        rows, waiting_call = rows[waiting_call >= 0] + start, waiting_call[waiting_call >= 0]
        found_waiting_call.append(waiting_call)
        found_row.append(rows)
    if not found_row:
        return Matched(np.zeros(0, np.int64), np.zeros(0, np.int64))
    waiting_call, row = np.concatenate(found_waiting_call), np.concatenate(found_row)
    used = evidence.counts[calls.dump[row]]
    waiting_call, row = waiting_call[used], row[used]
    order = np.argsort(waiting_call, kind="stable")
    return Matched(waiting_call[order], row[order])


def _waiting_call_of(heads: Heads, channel: Ints, seq: Ints) -> Ints:
    """Waiting call of each (channel, seq); -1 where it is none."""
    n = heads.n_collective
    channels, first = np.unique(heads.channel[:n], return_index=True)
    ends = np.r_[first[1:], n]
    position = np.searchsorted(channels, channel)
    waiting_call = np.full(len(channel), -1, np.int64)
    at, end = first[position].copy(), ends[position]
    pending = np.arange(len(channel))
    while len(pending):
        equal = heads.seq[at[pending]] == seq[pending]
        waiting_call[pending[equal]] = at[pending[equal]]
        at[pending] += 1
        pending = pending[~equal & (at[pending] < end[pending])]
    return waiting_call


def disagreements(evidence: Evidence, heads: Heads, matched: Matched) -> list[Disagreement]:
    """Find the waiting calls whose members do not agree."""
    calls = evidence.case.calls
    pair = calls.name[matched.row].astype(np.int64) * max(len(evidence.case.signatures), 1)
    pair += calls.signature[matched.row]
    if not len(pair):
        return []
    starts = np.flatnonzero(np.r_[True, matched.waiting_call[1:] != matched.waiting_call[:-1]])
    found = []
    for begin, end in zip(starts, np.r_[starts[1:], len(pair)], strict=True):
        same = pair[begin:end].min() == pair[begin:end].max()
        waiting_call = int(matched.waiting_call[begin])
        if same and not _is_lopsided(evidence.case, int(matched.row[begin])):
            continue
        disagreement = _judge(evidence, heads, waiting_call, matched.row[begin:end])
        if disagreement is not None:
            found.append(disagreement)
    return found


def _is_lopsided(case: Case, row: int) -> bool:
    """Whether members may make the same call and disagree all the same."""
    return rule_of(case.names[int(case.calls.name[row])].op).compared in ("totals", "part")


def _is_exchange(case: Case, row: int) -> bool:
    return rule_of(case.names[int(case.calls.name[row])].op).compared == "totals"


def _judge(evidence: Evidence, heads: Heads, waiting_call: int, rows: Ints) -> Disagreement | None:
    case = evidence.case
    demand = _demands(case)
    unseen = _unseen(evidence, int(heads.channel[waiting_call]))
    by_rank: dict[int, list[int]] = defaultdict(list)
    for row in rows.tolist():
        by_rank[int(case.calls.rank[row])].append(row)
    sides: dict[tuple[Demand, ...], list[int]] = defaultdict(list)
    for rank, own in by_rank.items():
        sides[tuple(demand(row) for row in own)].append(rank)
    if len({len(key) for key in sides}) > 1:
        sides = _last_only(sides)
    if len(sides) > 1:
        aspect = aspect_of(list(sides))
        ordered = sorted(sides.values(), key=lambda ranks: (-len(ranks), min(ranks)))
        return (
            _disagreement(waiting_call, aspect, ordered, by_rank, unseen, None) if aspect else None
        )
    apart = roots_apart(evidence, int(heads.channel[waiting_call]), by_rank)
    if apart is not None:
        return _about_roots(waiting_call, apart, by_rank)
    return _exchange(evidence, heads, waiting_call, by_rank)


def _about_roots(
    waiting_call: int, apart: RootsOfCall, by_rank: dict[int, list[int]]
) -> Disagreement:
    """Several roots or none: a side for ranks in another role than before, and the rest."""
    groups = [[rank for rank in by_rank if rank not in apart.changed], list(apart.changed)]
    if not apart.changed:
        alike = [rank for rank in by_rank if rank not in apart.roots]
        groups = [*([rank] for rank in apart.roots), *([alike] if alike else [])]
    sides = tuple(Side(tuple(sorted(ranks)), by_rank[min(ranks)][-1]) for ranks in groups)
    majority = sides[0] if apart.changed else None
    return Disagreement(
        waiting_call, Aspect.AMOUNTS, sides, majority, of_all=True, roots=apart.roots
    )


def _unseen(evidence: Evidence, channel: int) -> int:
    """How many members of a channel left no dump."""
    members = evidence.members(channel)
    return int((~np.isin(members, evidence.owner)).sum())


def _demands(case: Case) -> Callable[[int], Demand]:
    """A function from row to Demand that computes each distinct call once."""

    @cache
    def of(name: int, signature: int) -> Demand:
        return demand_of(case.names[name], case.signatures[signature])

    def demand(row: int) -> Demand:
        return of(int(case.calls.name[row]), int(case.calls.signature[row]))

    return demand


def _last_only(sides: dict[tuple[Demand, ...], list[int]]) -> dict[tuple[Demand, ...], list[int]]:
    """Compare batches by their last entry where some ranks recorded no members (before 2.7)."""
    merged: dict[tuple[Demand, ...], list[int]] = defaultdict(list)
    for key, ranks in sides.items():
        merged[key[-1:]].extend(ranks)
    return merged


def aspect_of(keys: list[tuple[Demand, ...]]) -> Aspect | None:
    """The first thing in which the sides differ; None if only by what is unknown."""
    columns = list(zip(*keys, strict=True))
    if any(len({demand.family for demand in column}) > 1 for column in columns):
        return Aspect.OP
    if any(len({d.elements for d in column if d.elements is not None}) > 1 for column in columns):
        return Aspect.SIZES
    if any(len({d.dtypes for d in column if d.dtypes}) > 1 for column in columns):
        return Aspect.DTYPES
    return None


def _disagreement(
    waiting_call: int,
    aspect: Aspect,
    groups: list[list[int]],
    by_rank: dict[int, list[int]],
    unseen: int,
    totals: tuple[int, int] | None,
) -> Disagreement:
    sides = tuple(Side(tuple(sorted(ranks)), by_rank[min(ranks)][-1]) for ranks in groups)
    largest = sides[0]
    decided = len(sides) > 1 and 2 * len(largest.ranks) > len(by_rank)
    of_all = 2 * len(largest.ranks) > len(by_rank) + unseen
    return Disagreement(waiting_call, aspect, sides, largest if decided else None, of_all, totals)


def _exchange(
    evidence: Evidence, heads: Heads, waiting_call: int, by_rank: dict[int, list[int]]
) -> Disagreement | None:
    """Check that an all-to-all sends as much as it receives, once all members are known."""
    case = evidence.case
    rows = {rank: own[-1] for rank, own in by_rank.items()}
    members = evidence.case.groups[evidence.group_of(int(heads.channel[waiting_call]))].members
    if not _is_exchange(case, next(iter(rows.values()))) or set(members) - set(rows):
        return None
    signatures = {
        rank: case.signatures[int(case.calls.signature[row])] for rank, row in rows.items()
    }
    sent = {rank: elements(each.input_sizes) for rank, each in signatures.items()}
    received = {rank: elements(each.output_sizes) for rank, each in signatures.items()}
    if None in sent.values() or None in received.values():
        return None
    totals = sum(filter(None, sent.values())), sum(filter(None, received.values()))
    if totals[0] == totals[1]:
        return None
    sides: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    for rank in rows:
        sides[sent[rank], received[rank]].append(rank)
    ordered = sorted(sides.values(), key=lambda ranks: (-len(ranks), min(ranks)))
    found = _disagreement(waiting_call, Aspect.AMOUNTS, ordered, by_rank, 0, totals)
    usual = {side for rank in rows for side in _earlier_exchanges(case, rows[rank])}
    return found if len(usual) <= 1 else replace(found, majority=None)


def _earlier_exchanges(case: Case, row: int) -> set[tuple[int | None, int | None]]:
    """What the rank of a call sent and received in earlier calls like it: varied, if uneven."""
    calls, dump = case.calls, case.dumps[int(case.calls.dump[row])]
    before = slice(dump.start, row)
    alike = (calls.group[before] == calls.group[row]) & (calls.name[before] == calls.name[row])
    alike &= calls.stack[before] == calls.stack[row]
    numbers = distinct(calls.signature[before][alike]).tolist()
    each = (case.signatures[number] for number in numbers)
    return {(elements(one.input_sizes), elements(one.output_sizes)) for one in each}
