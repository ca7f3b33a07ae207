from __future__ import annotations

import re

import pytest
from report_samples import SAMPLES, cascade, hostile, never_joined
from syrupy.assertion import SnapshotAssertion

from unhang.report import Report
from unhang.reports import Look, render


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_terminal_report(name: str, snapshot: SnapshotAssertion) -> None:
    """The page of every kind of report at 80 columns, pinned."""
    assert render("text", SAMPLES[name]()) == snapshot


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_page(name: str, width: int) -> None:
    """Whatever it holds, a page keeps its width."""
    page = render("text", SAMPLES[name](), look=Look(width=width))
    assert max(map(len, page.splitlines())) <= width


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_without_unicode_the_page_is_ascii(name: str) -> None:
    """A terminal that knows ASCII only gets nothing else."""
    assert render("text", SAMPLES[name](), look=Look(unicode=False)).isascii()


def test_the_first_ten_lines_say_what_matters() -> None:
    """Rank, call, line, reason and next step are there before anybody scrolls."""
    top = "\n".join(render("text", never_joined()).splitlines()[:10])
    for needle in ("Rank 7", "all_reduce #41", "data.py:31", "train.py:88", "why", "node01"):
        assert needle in top


@pytest.mark.parametrize("report", [never_joined(8), never_joined(8192), cascade(8192)])
def test_a_report_fits_a_screen(report: Report) -> None:
    """Eight thousand ranks take no more room than eight."""
    assert len(render("text", report).splitlines()) <= 50


def test_nothing_from_a_dump_commands_the_terminal() -> None:
    """Escapes, carriage returns and direction marks are shown; the only escapes are our colours."""
    page = render("text", hostile(), look=Look(color=True))
    page = re.sub(r"\x1b\[[0-9;]*m", "", page)
    assert not [char for char in page if not char.isprintable() and char != "\n"]
    assert "[bold red]" in page


def test_colours_only_when_asked() -> None:
    """A pipe gets no escape sequence."""
    assert "\x1b" not in render("text", never_joined())
    assert "\x1b[" in render("text", never_joined(), look=Look(color=True))
