"""SARIF 2.1.0: what code scanning services read."""

from __future__ import annotations

import json
from typing import Any, Final

from unhang.case import Case
from unhang.catalogue import kind_of, url_of
from unhang.report import Report
from unhang.reports.ci.annotations import LEVELS, Placed, placed
from unhang.reports.look import Look

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_HOME: Final = "https://github.com/unhang/unhang"


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the log of one run; `case` and `look` change nothing."""
    del case, look
    found = [each for each in placed(report) if each.code]
    driver = {
        "name": "unhang", "version": report.tool_version, "informationUri": _HOME,
        "rules": [_rule(code) for code in dict.fromkeys(each.code for each in found)],
    }  # fmt: skip
    run = {
        "tool": {"driver": driver},
        "results": [_result(each, LEVELS[report.status]) for each in found],
        "properties": {"status": report.status, "summary": report.summary},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> dict[str, str]:
    kind = kind_of(code)
    return {"id": code, "name": kind.slug, "helpUri": url_of(kind)} if kind else {"id": code}


def _result(each: Placed, level: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": each.code, "level": "note" if level == "notice" else level,
        "message": {"text": each.text},
    }  # fmt: skip
    if each.file:
        place = {"artifactLocation": {"uri": each.file}, "region": {"startLine": max(each.line, 1)}}
        result["locations"] = [{"physicalLocation": place}]
    return result
