"""Passes over columns: one value for each span of rows, and sets of numbers.

A span is the rows of a dump. Asking dumps one by one takes as long for one of two calls as for one
of two thousand, and a large job has a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]


def highest(
    values: Numbers, starts: Sequence[int] | Numbers, stops: Sequence[int] | Numbers, none: int = 0
) -> Numbers:
    """The highest of `values[start:stop]` of each span; `none` of an empty one.

    Args:
        values: A column.
        starts: First row of each span; they do not overlap, and come in any order.
        stops: The row after its last.
        none: What an empty span has.
    """
    return _reduced(np.maximum, values, starts, stops, none)


def lowest(
    values: Numbers, starts: Sequence[int] | Numbers, stops: Sequence[int] | Numbers, none: int = 0
) -> Numbers:
    """The lowest, as `highest`."""
    return _reduced(np.minimum, values, starts, stops, none)


def _reduced(
    by: np.ufunc,
    values: Numbers,
    starts: Sequence[int] | Numbers,
    stops: Sequence[int] | Numbers,
    none: int,
) -> Numbers:
    begins, ends = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
    found = np.full(len(begins), none, np.int64)
    some = np.flatnonzero(begins < ends)
    some = some[np.argsort(begins[some], kind="stable")]
    if len(some):
        bounds = np.stack((begins[some], ends[some]), axis=1).reshape(-1)
        if bounds[-1] == len(values):
            bounds = bounds[:-1]  # the last one goes to the end in any case
        found[some] = by.reduceat(values, bounds)[::2]
    return found


# ------------------------------------------------------------------ sets, as sorted columns
#
# numpy has the same, and imports `numpy.ma` when first asked: time that a small case notices.

Integers = TypeVar("Integers", bound="np.integer")


def distinct(values: npt.NDArray[Integers]) -> npt.NDArray[Integers]:
    """The values that occur, ascending."""
    ordered = np.sort(values, axis=None)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]]


def union(some: npt.NDArray[Integers], others: npt.NDArray[Integers]) -> npt.NDArray[Integers]:
    """The values of both, ascending."""
    return distinct(np.concatenate((some, others)))


def without(some: npt.NDArray[Integers], others: npt.NDArray[Integers]) -> npt.NDArray[Integers]:
    """The values of the first that the second lacks, ascending."""
    every, ordered = distinct(some), np.sort(others, axis=None)
    before, until = np.searchsorted(ordered, every), np.searchsorted(ordered, every, "right")
    return every[np.asarray(before == until, np.bool_)]


def tuples(columns: Numbers) -> tuple[Numbers, Numbers]:
    """The tuples that columns hold, one a row and ascending, and the number of each column's.

    numpy's `unique` along an axis compares bytes of whole tuples, which takes seven times as long.
    """
    order = np.lexsort(columns[::-1])
    ordered = columns[:, order]
    is_new = np.concatenate(([True], (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)))[: len(order)]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    return ordered[:, is_new], number
