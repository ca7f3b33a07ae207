"""Passes over columns, held to the plain way: one value for each span of rows, and sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from unhang.spans import distinct, highest, lowest, tuples, union, without


@given(st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=8), st.randoms())
def test_spans_are_asked_as_one_by_one(rows: list[list[int]], order: object) -> None:
    """Empty ones, gaps between them, any order, the last row with and without a span."""
    starts = np.cumsum([0, *map(len, rows)])
    column = np.array([value for row in rows for value in row], np.int64)
    chosen = list(range(len(rows)))[::2]
    order.shuffle(chosen)  # type: ignore[attr-defined]  # a random.Random
    spans = [starts[at] for at in chosen], [starts[at + 1] for at in chosen]
    assert highest(column, *spans, -1).tolist() == [max(rows[at], default=-1) for at in chosen]
    assert lowest(column, *spans, 5).tolist() == [min(rows[at], default=5) for at in chosen]


NUMBERS = st.lists(st.integers(-3, 9)).map(lambda found: np.asarray(found, np.int64))


@given(NUMBERS, NUMBERS)
def test_sets_are_those_of_numpy(
    some: npt.NDArray[np.int64], others: npt.NDArray[np.int64]
) -> None:
    """Ascending, each value once, also of nothing."""
    assert distinct(some).tolist() == np.unique(some).tolist()
    assert union(some, others).tolist() == np.union1d(some, others).tolist()
    assert without(some, others).tolist() == np.setdiff1d(some, others).tolist()


def test_sets_keep_the_type_of_a_column() -> None:
    """A column of 32 bits stays one."""
    assert distinct(np.asarray([2, 1, 2], np.int32)).dtype == np.int32


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3), st.integers(-1, 1))))
def test_tuples_are_those_of_numpy(rows: list[tuple[int, int, int]]) -> None:
    """In its order, with its numbers, also of nothing."""
    columns = np.asarray(rows, np.int64).reshape(-1, 3).T
    each, numbers = np.unique(columns, axis=1, return_inverse=True)
    found, own = tuples(columns)
    assert (found.tolist(), own.tolist()) == (each.tolist(), numbers.reshape(-1).tolist())
