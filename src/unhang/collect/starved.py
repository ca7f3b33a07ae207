"""Ranks that a limit keeps from running, as findings beside what their stacks show.

A rank that is throttled looks busy or stuck in its stack, and its peers wait for it: the limit is
the reason, so it stands first where it holds the rank up for half of the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from unhang.kinds import STARVED
from unhang.model import UNKNOWN_RANK
from unhang.report import Finding, Report, Subject
from unhang.wording import rank_phrase

__all__ = ["Starved", "with_starved"]

Starved: TypeAlias = tuple[int, int, tuple[str, float, str]]
"""Rank, process, and what `surroundings.kept_from` says of it."""

_HOLDS_UP = 0.5


def with_starved(report: Report, starved: Sequence[Starved]) -> Report:
    """The report with a finding for each sort of limit."""
    by_sort: defaultdict[str, list[Starved]] = defaultdict(list)
    for each in starved:
        by_sort[each[2][0]].append(each)
    found = [_finding(same, f"s{n + 1}") for n, same in enumerate(by_sort.values())]
    causes = [finding for finding in found if finding.role == "cause"]
    if not causes:
        return replace(report, findings=(*report.findings, *found))
    others = [finding for finding in found if finding.role != "cause"]
    return replace(
        report,
        status="problem",
        summary=causes[0].summary,
        findings=(*causes, *report.findings, *others),
    )


def _finding(same: Sequence[Starved], identifier: str) -> Finding:
    ranks = tuple(sorted({rank for rank, _, _ in same if rank != UNKNOWN_RANK}))
    sort, share, sentence = max((kept for _, _, kept in same), key=lambda kept: kept[1])
    who = rank_phrase(ranks) if ranks else f"process {same[0][1]}"
    who, verb = who[:1].upper() + who[1:], "are" if len(ranks) > 1 else "is"
    what = "running" if sort == "cpu" else "memory"
    holds_up = share >= _HOLDS_UP
    return Finding(
        id=identifier,
        code=STARVED.code,
        slug=STARVED.slug,
        role="cause" if holds_up else "observation",
        confidence="medium",
        summary=f"{who} {verb} kept from {what}: {sentence}.",
        culprits=ranks if holds_up else (),
        subjects=tuple(Subject("process", f"pid {pid}", pid=pid) for _, pid, _ in same[:8]),
        evidence=tuple(dict.fromkeys(f"pid {pid}: {kept[2]}" for _, pid, kept in same[:8])),
        alternatives=STARVED.alternatives,
        actions=STARVED.actions,
    )
