"""What every format says of further causes, and of why a finding is no surer than it is."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest
from report_samples import never_joined

from unhang.report import Finding, Report
from unhang.reports import Look, render

REASON = "blocked for 22 s, less than --grace 60 s"
SAME = "the log says the same (rank 3)"
SECOND = "the members of group dp were inferred, not recorded"


def doubted(*reasons: str, causes: int = 1) -> Report:
    """A verdict of low confidence, for these reasons, with so many causes."""
    report = never_joined()
    first = replace(report.findings[0], confidence="low", confidence_reasons=reasons)
    more = [
        Finding(f"f{n + 2}", "UH101", "cause", "high", f"Rank {n} never came.", (n,))
        for n in range(causes - 1)
    ]
    return replace(report, findings=(first, *more))


def flat(form: str, report: Report, *, full: bool = True) -> str:
    """A page as one line of text, without its markup."""
    page = render(form, report, None, Look(100, full=full))
    page = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    plain = html.unescape(re.sub(r"<[^>]+>", " ", page)).replace("\\", "")
    return " ".join(plain.split())


@pytest.mark.parametrize(
    ("form", "full", "words"),
    [
        ("text", False, f"confidence low: {REASON}"),
        ("text", True, f"confidence low: {REASON}; {SECOND}"),
        ("html", True, f"confidence low: {REASON}; {SECOND}"),
        ("markdown", True, f"**confidence**: low: {REASON}; {SECOND}"),
    ],
)
def test_pages_say_why(form: str, words: str, *, full: bool) -> None:
    """The gravest where there is little room, all of them elsewhere; nothing where it is high."""
    reasons = (REASON, SECOND, "a third") if not full else (REASON, SECOND)
    assert words in flat(form, doubted(*reasons), full=full)
    assert "low:" not in flat(form, doubted(), full=full)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("form", ["text", "html", "markdown"])
def test_pages_say_what_raised_it(form: str, *, full: bool) -> None:
    """After the doubts where there is room, and alone where there is no doubt."""
    sure = doubted()
    first = replace(sure.findings[0], confidence="high", confidence_supports=(SAME,))
    page = flat(form, replace(sure, findings=(first,)), full=full)
    assert f"high: {SAME}" in page
    both = replace(first, confidence="low", confidence_reasons=(REASON,))
    page = flat(form, replace(sure, findings=(both,)), full=full)
    assert f"low: {REASON}" in page
    assert (f"{REASON}; {SAME}" in page) == (full or form != "text")


def test_programs_are_told_why() -> None:
    """JSON holds all of it, the short form what costs most."""
    report = doubted(REASON, SECOND, "a third")
    value = json.loads(render("json", report))
    assert value["findings"][0]["confidence_reasons"] == [REASON, SECOND, "a third"]
    short = json.loads(render("brief-json", report))
    assert short["confidence_reasons"] == [REASON, SECOND]


def test_the_terminal_names_each_cause() -> None:
    """None hides behind "and 1 more cause"; of very many the last ones share a line."""
    page = flat("text", doubted(causes=3), full=False)
    assert "also Rank 0 never came. (UH101 never-joined, high confidence) Rank 1 never" in page
    many = flat("text", doubted(causes=20), full=False)
    assert "Rank 7 never came." in many
    assert "and 11 more causes, of ranks 8-18" in many


@pytest.mark.parametrize("form", ["text", "html", "markdown"])
def test_every_page_names_each_cause(form: str) -> None:
    """Three in full, and a line for each other one."""
    page = flat(form, doubted(causes=7))
    for rank in range(6):
        assert f"Rank {rank} never came." in page
    assert "cause: Rank 5 never came. (UH101 never-joined, high confidence)" in page
