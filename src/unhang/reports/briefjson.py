"""The verdict for scripts and agents: one JSON object of at most 2 KiB ("unhang.brief/1").

It holds what decides about the next action, and says how much more the report has. What is long is
cut and counted, never the status, the codes or the decision.
"""

from __future__ import annotations

import json
from typing import Any, Final

from unhang.case import Case
from unhang.report import Decision, Finding, Report, Site
from unhang.reports.content.next_steps import main_finding
from unhang.reports.json import sayable_json
from unhang.reports.look import Look
from unhang.wording import fold_ranks

SCHEMA: Final = "unhang.brief/1"
LIMIT: Final = 2048
"""Bytes of the document at most, its line end included."""

_MOST_TEXT, _MOST_REASON, _MOST_NAME, _MOST_RANGES, _MOST_ITEMS = 400, 160, 80, 20, 4
_GIVEN_UP = ("confidence_reasons", "next", "hosts", "why", "summary")
"""What is left out, in this order, where the rest does not fit."""


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the object on one line, in ASCII; `case` and `look` change nothing."""
    del case, look
    return json.dumps(brief_value(report), separators=(",", ":")) + "\n"


def brief_value(report: Report) -> dict[str, Any]:
    """The object, cut until it fits."""
    value: dict[str, Any] = sayable_json(_value(report))
    for key in _GIVEN_UP:
        if len(json.dumps(value, separators=(",", ":"))) < LIMIT:
            break
        value[key] = value[key][:100] if isinstance(value[key], str) else []
    return value


def _value(report: Report) -> dict[str, Any]:
    finding = main_finding(report)
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "status": report.status,
        "summary": report.summary[:_MOST_TEXT],
        "decision": _decision(report.decision),
        "ranks_expected": report.job.world_size,
        "ranks_seen": report.job.ranks_seen,
        "more_findings": max(len(report.findings) - 1, 0),
        "notes": len(report.notes),
        "not_read": sum(note.level != "info" for note in report.notes),
        "next": [step.command[:_MOST_TEXT] for step in report.next[:_MOST_ITEMS]],
        "hosts": [],
        "why": "",
        "confidence_reasons": [],
    }
    return value | _of_finding(finding, report) if finding is not None else value


def _decision(decision: Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    return {
        "action": decision.action,
        "reason": decision.reason,
        "confidence": decision.confidence,
        "subjects": [subject.id[:_MOST_NAME] for subject in decision.subjects[:_MOST_ITEMS]],
    }


def _of_finding(finding: Finding, report: Report) -> dict[str, Any]:
    hosts = {each.rank: each.host for each in report.ranks if each.host}
    culprits = report.culprits or finding.culprits
    named = dict.fromkeys(hosts[rank][:_MOST_NAME] for rank in culprits if rank in hosts)
    site = next((each for each in finding.sites if each.role == "culprit"), None)
    return {
        "code": finding.code,
        "slug": finding.slug,
        "family": finding.family,
        "role": finding.role,
        "confidence": finding.confidence,
        "culprits": fold_ranks(culprits, _MOST_RANGES),
        "culprit_count": len(culprits),
        "victim_count": len(finding.victims),
        "hosts": list(named)[:_MOST_ITEMS],
        "where": _where(site),
        "source": _code(site),
        "where_is": "" if site is None else "last seen" if site.after else "now",
        "op": (finding.op or "")[:_MOST_NAME],
        "seq": finding.seq,
        "group": finding.group.name[:_MOST_NAME] if finding.group else "",
        "why": finding.evidence[0][:_MOST_TEXT] if finding.evidence else "",
        "confidence_reasons": [each[:_MOST_REASON] for each in finding.confidence_reasons[:2]],
    }


def _code(site: Site | None) -> str:
    """The line of code there; "" where the case does not have it."""
    if site is None or site.source is None:
        return ""
    at = site.line - site.source.first
    return site.source.lines[at].strip()[:_MOST_REASON] if 0 <= at < len(site.source.lines) else ""


def _where(site: Site | None) -> str:
    """The end of a path and its line: the beginning says nothing to a script."""
    return f"{site.file[-_MOST_NAME:]}:{site.line}" if site else ""
