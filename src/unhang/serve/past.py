"""Incidents that lie in directories, each by its saved report, or judged anew where it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.context.recalled import Past, facts_of
from unhang.errors import UnhangError
from unhang.incoming import value_of
from unhang.report import Report
from unhang.reports.json import sayable_json

__all__ = ["facts_of_report", "past_of", "tried"]

_MOST_REPORT = 64 << 20


def tried(case: Path) -> Past | str:
    """What a case came to, or why that cannot be told."""
    try:
        return past_of(case)
    except (UnhangError, ValueError, OSError) as error:
        return str(error)


def past_of(case: Path) -> Past:
    """What a case came to, by the report in it or by judging it.

    Raises:
        ValueError: Its report is none.
        InputError: It cannot be read.
        OSError: The same.
    """
    saved = case / "report.json"
    if saved.is_file() and saved.stat().st_size <= _MOST_REPORT:
        return facts_of(case, value_of(saved.read_bytes()))
    from unhang.analysis import diagnose
    from unhang.ingest import load

    return facts_of_report(case, diagnose(load([case])))


def facts_of_report(case: Path, report: Report | Any) -> Past:  # noqa: ANN401 - JSON
    """The facts of one report.

    Raises:
        ValueError: It has not the shape of a report.
    """
    return facts_of(case, sayable_json(report))
