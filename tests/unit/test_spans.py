"""One value for each span of rows, as asking them one by one would give it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unhang.spans import highest, lowest


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
