"""What findings amount to: the status and the one sentence of a report."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.report import Finding, Status

__all__ = ["status_of", "summary_of"]


def status_of(findings: Sequence[Finding]) -> Status:
    """The status that findings make: a problem if and only if one is a cause.

    Somebody who fell silent (UH603) may be stuck: that nothing else shows it is no health.
    """
    if any(finding.role == "cause" for finding in findings):
        return "problem"
    codes = {finding.code for finding in findings}
    if codes & {"UH901", "UH603"}:
        return "insufficient"
    return "slow" if "UH501" in codes else "healthy"


def summary_of(findings: Sequence[Finding]) -> str:
    """The first finding in its own words, with the number of further causes."""
    if not findings:
        return "Nothing wrong was found."
    more = sum(finding.role == "cause" for finding in findings) - 1
    rest = f" (and {more} more {'cause' if more == 1 else 'causes'})" if more > 0 else ""
    return findings[0].summary + rest
