"""Real sets of dumps, of which some are lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lab.subsets.judging import Row, as_markdown, mark, rows_of, sets
from unhang.report import Finding, Report


def test_the_sets_and_their_truth() -> None:
    """Four of them, by the logs of what was injected."""
    assert sets() == {
        "gpu_error_1st": (12, 14),
        "gpu_error_2nd": (9, 14),
        "lock_gil_1st": (9, 14),
        "lock_gil_2nd": (10, 15),
    }


@pytest.mark.parametrize(
    ("named", "confidence", "lost", "expected"),
    [
        ((12, 14), "high", (), "exact"),
        ((12,), "high", (14, 3), "exact"),
        ((12, 14), "medium", (14,), "exact"),
        ((12,), "high", (), "unsure"),
        ((), "low", (), "unsure"),
        ((3, 12, 14), "low", (3,), "unsure"),
        ((3, 12, 14), "medium", (3,), "innocent"),
    ],
)
def test_marks(
    named: tuple[int, ...], confidence: str, lost: tuple[int, ...], expected: str
) -> None:
    """Who left no dump may be named or not; an innocent only with low confidence."""
    finding = Finding("f1", "UH101", "cause", confidence, "x", culprits=named)  # type: ignore[arg-type]  # a word of ours
    assert mark(Report("problem", "x", findings=(finding,)), (12, 14), lost) == expected


def test_a_set_without_some_of_its_dumps() -> None:
    """Whole and with any one lost it is exact; with more lost nobody innocent is surely named."""
    rows = list(rows_of("lock_gil_1st", drawn=5, most_lost=1))
    assert [(row.lost, row.counts["exact"]) for row in rows[:2]] == [("none", 1), ("1", 16)]
    assert rows[2].counts["innocent"] == 0


def test_the_table() -> None:
    """A row a set and number of lost dumps."""
    row = Row("a", (1,), "2", Counter(exact=7, unsure=1))
    text = as_markdown(
        [row, replace(row, lost="3")], {name: {"unhang": "rank 9"} for name in sets()}
    )
    assert "| a | 2 | 8 | 7 | 1 | 0 |\n| a | 3 | 8 |" in text
    assert "| lock_gil_1st | ranks 9,14 | rank 9 |" in text
