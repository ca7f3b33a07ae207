"""The table `collectives`: one row for each sequence number of each group, from its members' calls.

It is counted here, and not in SQL: numbers that stand in columns already are sorted in a tenth of
the time that the database takes to tell them apart. It is counted piece by piece: arrays for all
calls are memory that the system clears again each time, which takes longer than the counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from unhang.case import Case
from unhang.model import State
from unhang.tables.calls import CallColumns, Coded

Numbers = npt.NDArray[Any]

_DENSE = 4
"""Numbers below so many times their count are distinguished without sorting them."""

_PIECE = 1 << 17
"""Calls looked at in one go, about."""

_INT32 = np.iinfo(np.int32).max
_LATEST = np.iinfo(np.int64).max


def collective_ids(case: Case) -> npt.NDArray[np.int64]:
    """Number the collectives ascending by (group, sequence number); -1 for P2P and unknown ones."""
    c = case.calls
    ids = np.empty(len(c), np.int64)
    for rows in _slices(len(c)):
        is_one = ~c.is_p2p[rows] & (c.seq[rows] >= 0) & (c.group[rows] >= 0)
        ids[rows] = np.where(is_one, c.seq[rows], -1)
    seqs = _rank(ids)
    for rows in _slices(len(c)):
        place = ids[rows]
        ids[rows] = np.where(place < 0, -1, c.group[rows].astype(np.int64) * seqs + place)
    _rank(ids)
    return ids


def _slices(count: int) -> Iterator[slice]:
    return (slice(at, at + _PIECE) for at in range(0, count, _PIECE))


def _rank(values: npt.NDArray[np.int64]) -> int:
    """Replace each number but -1 by its place among the distinct; return how many these are."""
    highest = int(values.max(initial=-1))
    if highest >= _DENSE * len(values):
        distinct = np.unique(values[values >= 0])
        for rows in _slices(len(values)):
            of = values[rows]
            values[rows] = np.where(of < 0, -1, np.searchsorted(distinct, of))
        return len(distinct)
    is_there = np.zeros(highest + 2, np.bool_)
    is_there[values] = True
    is_there[-1] = False  # -1 finds the last
    place = np.cumsum(is_there) - 1
    count, place[-1] = int(place[-1]) + 1, -1
    for rows in _slices(len(values)):
        values[rows] = place[values[rows]]
    return count


def collective_columns(case: Case, ids: npt.NDArray[np.int64]) -> CallColumns:
    """The columns of the table.

    Args:
        case: For its calls.
        ids: What `collective_ids` said.
    """
    c, count = case.calls, int(ids.max(initial=-1)) + 1
    texts, op_of_name = np.unique([each.op for each in case.names] or [""], return_inverse=True)
    op_of_name = op_of_name.reshape(-1)
    first, joined, finished = np.full(count, _LATEST), *np.zeros((2, count), np.int64)
    earliest, latest, last = first.copy(), -first, np.full(count, -1)
    ops = _Distinct(count, len(texts), len(c))
    signatures = _Distinct(count, len(case.signatures), len(c))
    for piece in _whole_ranks(c.rank):
        rows = piece.start + np.flatnonzero(ids[piece] >= 0)
        of, rank = ids[rows], c.rank[rows]
        np.minimum.at(first, of, rows)
        ops.add(of, op_of_name[c.name[rows]])
        signatures.add(of, c.signature[rows])
        done = c.retired[rows] | (c.state[rows] == State.COMPLETED)
        _add_ranks(joined, finished, of, rank, done)
        _add_arrivals(earliest, latest, last, of, rank, c.created_ns[rows])
    group, known, different = c.group[first], last >= 0, ops.counts()
    size = np.array([each.size for each in case.groups], np.int64)[group]
    op = _most_frequent(ids, first, different, c.name, op_of_name)
    return {
        "collective_id": np.arange(count),
        "group_id": group,
        "seq": c.seq[first],
        "op": Coded(op, texts.astype(object)),
        "ops": different,
        "signatures": signatures.counts(),
        "size": size,
        "joined": joined,
        "absent": np.maximum(size - joined, 0),
        "finished": finished,
        "first_created_ns": np.where(known, earliest, 0),
        "last_created_ns": np.where(known, latest, 0),
        "last_rank": last,
    }


def _whole_ranks(rank: Numbers) -> Iterator[slice]:
    """Pieces, no two with calls of one rank; a single one where ranks are in no order."""
    ordered = bool((rank[1:] >= rank[:-1]).all())
    starts = np.unique(np.searchsorted(rank, rank[::_PIECE])) if ordered else [0]
    for start, stop in pairwise([*starts, len(rank)]):
        yield slice(int(start), int(stop))


class _Distinct:
    """How many different values each collective has; those below 0 do not count."""

    def __init__(self, count: int, width: int, calls: int) -> None:
        self._count, self._width = count, width
        self._pairs: list[Numbers] = []
        self._is_there = np.zeros(count * width * (count * width < _DENSE * calls), np.bool_)

    def add(self, of: Numbers, values: Numbers) -> None:
        pairs = (of * self._width + values)[values >= 0]
        if len(self._is_there):
            self._is_there[pairs] = True
        else:
            self._pairs.append(np.unique(pairs))

    def counts(self) -> Numbers:
        if len(self._is_there):
            found: Numbers = self._is_there.reshape(self._count, self._width).sum(axis=1)
            return found
        pairs = np.unique(np.concatenate([np.zeros(0, np.int64), *self._pairs]))
        return np.bincount(pairs // max(self._width, 1), minlength=self._count)


def _add_ranks(
    joined: Numbers, finished: Numbers, of: Numbers, rank: Numbers, done: Numbers
) -> None:
    """Count the ranks of a piece, each once a collective, finished if any of its calls is."""
    low = rank.min(initial=_INT32)
    width = int(rank.max(initial=low)) - int(low) + 1
    keys = (of * width + (rank - low)) * 2 + ~done
    keys = keys.astype(np.int32) if keys.max(initial=0) <= _INT32 else keys  # sorted twice as fast
    keys.sort()
    keys = keys[np.diff(keys >> 1, prepend=-1) != 0]
    of = (keys >> 1) // width
    np.add.at(joined, of, 1)
    np.add.at(finished, of[keys & 1 == 0], 1)


def _add_arrivals(
    earliest: Numbers, latest: Numbers, last: Numbers, of: Numbers, rank: Numbers, created: Numbers
) -> None:
    """Move earliest and latest arrival, and who came last; no time is no arrival."""
    timed = np.flatnonzero(created)
    of, rank, created = of[timed], rank[timed], created[timed]
    np.minimum.at(earliest, of, created)
    before = latest[of]
    np.maximum.at(latest, of, created)
    newest = np.flatnonzero((created > before) & (created == latest[of]))[::-1]
    last[of[newest]] = rank[newest]  # of equal indices the last assignment counts


def _most_frequent(
    ids: Numbers, first: Numbers, ops: Numbers, name: Numbers, op_of_name: Numbers
) -> Numbers:
    """The operation of each collective; where members disagree that of most, or the first."""
    found: Numbers = op_of_name[name[first]]
    differ = np.flatnonzero(np.append(ops > 1, np.False_)[ids])  # -1 finds the last
    width = len(op_of_name)
    keys = ids[differ] * width + op_of_name[name[differ]]
    pairs, begins, times = np.unique(keys, return_index=True, return_counts=True)
    chosen = pairs[np.lexsort((begins, -times))[::-1]]
    found[chosen // width] = chosen % width  # of equal indices the last assignment counts
    return found
