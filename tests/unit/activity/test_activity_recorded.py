"""Recorded series of processes, of which it is known whether they get on, are told rightly."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from lab.activity.score import Judged, is_held_out, judged, table_of
from lab.activity.series import line_of, read

STUCK = ("waits", "polls")
DOCS = Path(__file__).parents[3] / "docs" / "watching.md"


@cache
def all_judged() -> list[Judged]:
    """Every series, which takes a while."""
    return [judged(series) for series in read()]


@pytest.mark.parametrize("held_out", [False, True], ids=["tuned", "held out"])
def test_working_is_told_from_stuck(*, held_out: bool) -> None:
    """98 of 100 moments at least, the held-out programs as well; no working one is called stuck."""
    series = [each for each in all_judged() if is_held_out(each.series.name) == held_out]
    assert {each.series.truth for each in series} >= {"works", *STUCK}
    moments = sum(sum(each.said.values()) for each in series)
    wrong = sum(sum(each.wrong.values()) for each in series)
    assert wrong <= 0.02 * moments
    assert [each.series.name for each in series if "called stuck" in each.wrong] == []


@pytest.mark.parametrize("truth", ["works", *STUCK])
def test_something_is_said_once_there_are_looks(truth: str) -> None:
    """That nothing is known is no mistake, and must not be the rule."""
    series = [each for each in all_judged() if each.series.truth == truth]
    unknown = sum(each.said.get("unknown", 0) for each in series)
    assert unknown < 0.35 * sum(sum(each.said.values()) for each in series)


def test_a_wrong_estimate_is_counted() -> None:
    """A series under the wrong label is."""
    worker = next(each.series for each in all_judged() if each.series.name == "writes_a_checkpoint")
    assert judged(worker._replace(truth="waits")).wrong
    waiter = next(each.series for each in all_judged() if each.series.name == "condition_never_set")
    assert judged(waiter._replace(truth="works")).wrong


def test_a_series_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Numbers relative to the first look."""
    series = next(read())
    (tmp_path / "one.jsonl").write_text(line_of(series) + "\n")
    assert list(read(tmp_path / "one.jsonl")) == [series]


def test_the_documented_table_is_that_of_the_series() -> None:
    """As `python -m lab activity score` prints it."""
    assert table_of(all_judged()) in DOCS.read_text()
