"""The table `collectives`: one row for each sequence number of each group, from its members' calls.

It is counted here, and not in SQL: numbers that stand in columns already are sorted in a tenth of
the time that the database takes to tell them apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from unhang.case import Case
from unhang.model import State

__all__ = ["collective_columns", "collective_ids"]

Numbers = npt.NDArray[Any]

_DENSE = 4
"""Numbers below so many times their count are told apart without sorting them."""

_LATEST = np.iinfo(np.int64).max


def collective_ids(case: Case) -> npt.NDArray[np.int64]:
    """Number the collectives ascending by (group, sequence number); -1 for P2P and unknown ones."""
    c = case.calls
    ids = np.full(len(c), -1, np.int64)
    rows = np.flatnonzero(~c.is_p2p & (c.seq >= 0) & (c.group >= 0))
    seqs, place = _ranked(c.seq[rows].astype(np.int64))
    ids[rows] = _ranked(c.group[rows].astype(np.int64) * max(seqs, 1) + place)[1]
    return ids


def _ranked(values: npt.NDArray[np.int64]) -> tuple[int, npt.NDArray[np.int64]]:
    """How many distinct numbers there are, none below 0, and which of them each is."""
    highest = int(values.max(initial=-1))
    if highest >= _DENSE * len(values):
        distinct, place = np.unique(values, return_inverse=True)
        return len(distinct), place
    is_there = np.zeros(highest + 1, np.bool_)
    is_there[values] = True
    return int(is_there.sum()), (np.cumsum(is_there) - 1)[values]


def collective_columns(case: Case, ids: npt.NDArray[np.int64]) -> dict[str, Numbers]:
    """The columns of the table.

    Args:
        case: For its calls.
        ids: What `collective_ids` said.
    """
    c, rows = case.calls, np.flatnonzero(ids >= 0)
    of, rank = ids[rows], c.rank[rows]
    count = int(of.max(initial=-1)) + 1
    first = _first(of, rows, count)
    group = c.group[first]
    size = np.array([each.size for each in case.groups], np.int64)[group]
    texts, op_of_name = np.unique([each.op for each in case.names] or [""], return_inverse=True)
    op = op_of_name.reshape(-1)[c.name[rows]]
    ops = _distinct(of, op, count)
    signed = np.flatnonzero(c.signature[rows] >= 0)
    done = np.flatnonzero(c.retired[rows] | (c.state[rows] == State.COMPLETED))
    joined = _distinct(of, rank, count)
    earliest, latest, last = _arrivals(of, rank, c.created_ns[rows], count)
    return {
        "collective_id": np.arange(count),
        "group_id": group,
        "seq": c.seq[first],
        "op": texts.astype(object)[_most_frequent(of, op, ops)],
        "ops": ops,
        "signatures": _distinct(of[signed], c.signature[rows][signed], count),
        "size": size,
        "joined": joined,
        "absent": np.maximum(size - joined, 0),
        "finished": _distinct(of[done], rank[done], count),
        "first_created_ns": earliest,
        "last_created_ns": latest,
        "last_rank": last,
    }


def _first(of: Numbers, values: Numbers, count: int) -> Numbers:
    """The first value of each collective; -1 where there is none."""
    found = np.full(count, -1, np.int64)
    found[of[::-1]] = values[::-1]  # of equal indices the last assignment counts
    return found


def _distinct(of: Numbers, values: Numbers, count: int) -> Numbers:
    """How many different values each collective has."""
    width = int(values.max(initial=0)) + 1
    pairs = of * width + values
    if count * width < _DENSE * len(pairs):
        is_there = np.zeros(count * width, np.bool_)
        is_there[pairs] = True
        found: Numbers = is_there.reshape(count, width).sum(axis=1)
        return found
    pairs.sort()
    return np.bincount(pairs[np.diff(pairs, prepend=-1) != 0] // width, minlength=count)


def _most_frequent(of: Numbers, op: Numbers, ops: Numbers) -> Numbers:
    """The operation of each collective; where members disagree that of most, or the first."""
    found = _first(of, op, len(ops))
    differ = np.flatnonzero(ops[of] > 1)
    width = int(op.max(initial=0)) + 1
    keys = of[differ] * width + op[differ]
    pairs, begins, times = np.unique(keys, return_index=True, return_counts=True)
    order = np.lexsort((begins, -times))
    chosen = pairs[order]
    found[(chosen // width)[::-1]] = (chosen % width)[::-1]
    return found


def _arrivals(
    of: Numbers, rank: Numbers, created_ns: Numbers, count: int
) -> tuple[Numbers, Numbers, Numbers]:
    """Earliest and latest arrival, and who came last; 0 and -1 where no time is known."""
    timed = np.flatnonzero(created_ns != 0)
    of, rank, created_ns = of[timed], rank[timed], created_ns[timed]
    earliest, latest = np.full(count, _LATEST), np.full(count, -_LATEST)
    np.minimum.at(earliest, of, created_ns)
    np.maximum.at(latest, of, created_ns)
    at_last = np.flatnonzero(created_ns == latest[of])
    last = _first(of[at_last], rank[at_last], count)
    known = last >= 0
    return np.where(known, earliest, 0), np.where(known, latest, 0), last
