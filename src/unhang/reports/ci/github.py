"""Workflow commands of GitHub Actions: printed in a step, they show at the lines of the change."""

from __future__ import annotations

from unhang.case import Case
from unhang.report import Report
from unhang.reports.ci.annotations import LEVELS, Placed, placed
from unhang.reports.look import Look


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the commands, one a line; `case` and `look` change nothing."""
    del case, look
    level = LEVELS[report.status]
    return "".join(
        f"::{level} {_properties(each)}::{_data(each.text)}\n" for each in placed(report)
    )


def _properties(each: Placed) -> str:
    place = {"file": each.file, "line": str(each.line)} if each.file else {}
    named = {**place, "title": f"unhang {each.title}".strip()}
    return ",".join(f"{name}={_value(value)}" for name, value in named.items())


def _data(text: str) -> str:
    """As the runner takes it back: https://github.com/actions/toolkit, command.ts."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
