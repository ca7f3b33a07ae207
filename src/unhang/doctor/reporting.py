"""Results of checks as a Report: what failed is a cause, what is doubtful an observation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from unhang.doctor.results import CHECKS, Result
from unhang.model import Note
from unhang.report import Finding, Job, Report, Role

__all__ = ["to_report"]

MAX_NAMED = 4
_ORDER = {"fail": 0, "warn": 1, "info": 2}


def to_report(results: Sequence[Result], notes: Sequence[Note] = ()) -> Report:
    """Make the Report of `unhang doctor`.

    Checks that passed or were skipped become notes, so that nothing is silent.
    """
    results = fold(results)
    bad = sorted((r for r in results if r.level in _ORDER), key=lambda r: (_ORDER[r.level], r.code))
    findings = tuple(_finding(i, result) for i, result in enumerate(bad))
    failed = [finding for finding in findings if finding.role == "cause"]
    quiet = [Note("info", _name(r), f"{r.level}: {r.seen}") for r in results if r not in bad]
    return Report(
        status="problem" if failed else "healthy",
        summary=_summary(findings, results),
        job=Job(),
        findings=findings,
        notes=(*notes, *quiet),
    )


def fold(results: Sequence[Result]) -> list[Result]:
    """Say once what is the same on several hosts: "node01, node02 and 6 more: …"."""
    groups: dict[tuple[object, ...], list[Result]] = defaultdict(list)
    for number, result in enumerate(results):
        host = result.subjects[0].host if result.subjects else None
        same = host and result.seen.startswith(f"{host}: ") and not result.ranks
        what = result.seen.removeprefix(f"{host}: ") if same else number
        groups[result.code, result.level, what, result.evidence].append(result)
    return [_folded(group) for group in groups.values()]


def _folded(group: Sequence[Result]) -> Result:
    if len(group) == 1:
        return group[0]
    hosts = [str(result.subjects[0].host) for result in group]
    more = f" and {len(hosts) - MAX_NAMED} more" if len(hosts) > MAX_NAMED else ""
    names = ", ".join(hosts[:MAX_NAMED]) + more
    seen = group[0].seen.removeprefix(f"{hosts[0]}: ")
    subjects = tuple(subject for result in group for subject in result.subjects)
    return replace(group[0], seen=f"{names}: {seen}", subjects=subjects)


def _name(result: Result) -> str:
    check = CHECKS[result.code]
    return f"{check.code} {check.slug}"


def _summary(findings: Sequence[Finding], results: Sequence[Result]) -> str:
    failed = [finding for finding in findings if finding.role == "cause"]
    if failed:
        more = f" ({len(failed) - 1} more checks failed)" if len(failed) > 1 else ""
        return failed[0].summary + more
    warned = sum(result.level == "warn" for result in results)
    if warned:
        return f"No check failed; {warned} of {len(results)} gave a warning."
    return f"All {len(results)} checks passed or did not apply."


def _finding(index: int, result: Result) -> Finding:
    check = CHECKS[result.code]
    role: Role = "cause" if result.level == "fail" else "observation"
    return Finding(
        id=f"f{index + 1}",
        code=check.code,
        slug=check.slug,
        role=role,
        confidence=result.confidence,
        summary=result.seen,
        culprits=tuple(sorted(result.ranks)) if role == "cause" else (),
        subjects=result.subjects,
        evidence=(*result.evidence, check.why),
        actions=(result.action or check.action,),
    )
