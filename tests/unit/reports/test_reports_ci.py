"""Formats of CI: a cause at its line, a verdict as a test, and text that stays text."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from unhang.report import Finding, Report, Site
from unhang.reports import render

WRONG = Finding(
    "f1", "UH202", "cause", "high", "100% of rank 0,\nagainst <rank 1>", culprits=(0,),
    sites=(Site((1,), "victim", "src/b.py", 9, "g"), Site((0,), "culprit", "src/a,b.py", 8, "f")),
)  # fmt: skip
PROBLEM = Report("problem", WRONG.summary, findings=(WRONG,), tool_version="9")


def test_github_shows_a_cause_at_its_culprits_line() -> None:
    """Escaped as the runner wants it, so that no text becomes a command of its own."""
    assert render("github", PROBLEM) == (
        "::error file=src/a%2Cb.py,line=8,title=unhang UH202 shape-mismatch::"
        "100%25 of rank 0,\\nagainst <rank 1>\n"
    )


def test_a_cause_without_a_culprit_stands_at_all_its_lines() -> None:
    """Each once."""
    sites = (*WRONG.sites, *WRONG.sites)
    none = Finding("f1", "UH301", "cause", "high", "a circle", sites=(sites[0], sites[2]))
    page = render("github", Report("problem", "x", findings=(none,)))
    assert page.count("::error file=src/b.py,line=9,") == 1


@pytest.mark.parametrize(
    ("status", "level"),
    [("healthy", "notice"), ("insufficient", "warning"), ("slow", "warning")],
)
def test_a_verdict_without_causes_is_said(status: str, level: str) -> None:
    """At no line."""
    page = render("github", Report(status, "All is said."))  # type: ignore[arg-type] # one of them
    assert page == f"::{level} title=unhang::All is said.\n"


def test_sarif_names_the_rule_and_the_line() -> None:
    """With the page of the kind."""
    run = json.loads(render("sarif", PROBLEM))["runs"][0]
    (rule,), (result,) = run["tool"]["driver"]["rules"], run["results"]
    assert (rule["id"], rule["name"]) == ("UH202", "shape-mismatch")
    assert (result["ruleId"], result["level"]) == ("UH202", "error")
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("src/a,b.py", 8)


def test_sarif_of_health_has_no_results() -> None:
    """And says what was found."""
    run = json.loads(render("sarif", Report("healthy", "Every call met.")))["runs"][0]
    assert (run["results"], run["properties"]["summary"]) == ([], "Every call met.")


@pytest.mark.parametrize(
    ("report", "failures", "errors"),
    [(PROBLEM, 1, 0), (Report("healthy", "x"), 0, 0), (Report("insufficient", "x"), 0, 1)],
)
def test_junit_counts_what_failed(report: Report, failures: int, errors: int) -> None:
    """Health passes; what could not be judged is an error."""
    suite = ET.fromstring(render("junit", report))  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures")) == ("1", str(failures))
    assert suite.get("errors") == str(errors)
    assert len(suite.findall("testcase/failure")) == failures


def test_junit_takes_any_text() -> None:
    """Also what XML has no place for."""
    wrong = Finding("f1", "UH202", "cause", "high", 'a\x00\x1b[31m & "b" \udc00')
    page = render("junit", Report("problem", "x", findings=(wrong,)))
    suite = ET.fromstring(page.encode())  # noqa: S314 - our own
    assert '& "b"' in str(suite.findall("testcase/failure")[0].text)
