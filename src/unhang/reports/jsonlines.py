"""The report as JSON lines, for log stores: one object a line, each with its `type`.

First the report without its lists, then its findings, ranks, notes and steps; nothing is nested
deeper than a finding is. Each line names the incident, so that lines of many reports can be mixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from unhang.case import Case
from unhang.report import Report
from unhang.reports.json import sayable_json
from unhang.reports.look import Look

_LISTS = {"findings": "finding", "ranks": "rank", "notes": "note", "next": "step"}


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the lines; `case` and `look` change nothing."""
    del case, look
    return "".join(f"{json.dumps(value)}\n" for value in _objects(report))


def _objects(report: Report) -> Iterator[dict[str, Any]]:
    value = sayable_json(report)
    mark = {"incident_id": report.incident.id, "job_id": report.incident.job_id}
    mark = sayable_json(mark)
    lists = {key: value.pop(key) for key in _LISTS}
    value.pop("stacks")
    yield {"type": "report", **mark, **value}
    for key, kind in _LISTS.items():
        for item in lists[key]:
            yield {"type": kind, **mark, **item}
