"""A report that is printed, or is the last line of a cell of a notebook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_samples import SAMPLES, hostile

import unhang
from unhang import report as module


def judged() -> unhang.Report:
    """A verdict as a script gets it."""
    return unhang.diagnose(unhang.load(Path("examples/never-joined")))


def test_printing_shows_the_verdict_in_some_lines() -> None:
    """As the command does: sentence, culprit, what is next; not the fields of a hundred structs."""
    text = str(judged())
    assert judged().summary.split(",")[0] in text
    assert "culprit" in text
    assert len(text.splitlines()) <= 20
    assert f"{judged()}" == text


def test_a_notebook_shows_it_as_a_table() -> None:
    """With the same words, and without a script."""
    markup = judged()._repr_html_()
    words = re.sub(r"<[^>]+>", " ", markup)
    assert "PROBLEM" in words
    assert "culprit" in words
    assert "<script" not in markup


@pytest.mark.parametrize("name", SAMPLES)
def test_every_report_shows_itself(name: str) -> None:
    """Without ranks, without findings, with many."""
    judged()
    assert str(SAMPLES[name]())
    assert SAMPLES[name]()._repr_html_().startswith("<div>")


def test_nothing_from_a_dump_is_markup() -> None:
    """Names in dumps are text."""
    judged()
    assert "<script" not in hostile()._repr_html_()


def test_without_the_renderers_the_sentence_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that was made by hand, before anything was judged."""
    monkeypatch.setattr(module, "SHOWN", {})
    report = SAMPLES["never-joined"]()
    assert str(report) == report.summary
    assert "<" not in hostile()._repr_html_()


def test_a_path_is_no_case() -> None:
    """What users try first is told how it is done."""
    with pytest.raises(TypeError, match=r"Case, not str: unhang.diagnose\(unhang.load\("):
        unhang.diagnose("examples/never-joined")  # type: ignore[arg-type]
