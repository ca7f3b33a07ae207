"""Results of checks as a Report: what failed is a cause, what is doubtful an observation."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.doctor.results import CHECKS, Result
from unhang.model import Note
from unhang.report import Finding, Job, Report, Role

__all__ = ["to_report"]

_ORDER = {"fail": 0, "warn": 1, "info": 2}


def to_report(results: Sequence[Result], notes: Sequence[Note] = ()) -> Report:
    """Make the Report of `unhang doctor`.

    Checks that passed or were skipped become notes, so that nothing is silent.
    """
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
