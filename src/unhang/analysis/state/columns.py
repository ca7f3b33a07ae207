"""Types of columns; first and last rows by key, in linear time and bounded memory.

Rows of one dump are contiguous and in program order, so "the last call of a rank in a group" is the
last row of its key. numpy's assignment through repeated indices keeps the last value, which makes
that one pass; where the table of keys would be much larger than the rows, sorting is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_MAX_CELLS = 1 << 22
_SPARSE = 8

Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def chunks(lengths: Ints, n_kinds: int) -> Iterator[tuple[int, int]]:
    """Cut owners into chunks with few enough rows and cells: yields (first, end) positions.

    Args:
        lengths: Number of rows of each owner.
        n_kinds: Number of keys that one owner can have.
    """
    most = max(1, _MAX_CELLS // max(n_kinds, 1))
    first = rows = 0
    for position, length in enumerate(lengths.tolist()):
        if position > first and (position - first >= most or rows + length > _MAX_CELLS):
            yield first, position
            first, rows = position, 0
        rows += length
    if len(lengths):
        yield first, len(lengths)


def first_and_last(keys: Ints, rows: Ints, n_keys: int) -> tuple[Ints, Ints, Ints]:
    """For each key that occurs: the key, its first row and its last row, by ascending key.

    Args:
        keys: One key per row, 0 to n_keys - 1.
        rows: Row numbers, ascending.
        n_keys: Size of the table of keys.
    """
    if not len(rows):
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    if len(rows) * _SPARSE < n_keys:
        return _by_sorting(keys, rows)
    first = np.full(n_keys, -1, np.int64)
    last = np.full(n_keys, -1, np.int64)
    first[keys[::-1]] = rows[::-1]
    last[keys] = rows
    present = np.flatnonzero(last >= 0)
    return present, first[present], last[present]


def _by_sorting(keys: Ints, rows: Ints) -> tuple[Ints, Ints, Ints]:
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    stops = np.r_[starts[1:], len(ordered)] - 1
    return ordered[starts], rows[order[starts]], rows[order[stops]]
