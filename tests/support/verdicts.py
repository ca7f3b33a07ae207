"""What tests ask of a report again and again."""

from __future__ import annotations

from unhang.report import Finding, Report


def only_cause(report: Report) -> Finding:
    """The one cause of a report."""
    assert len(report.causes) == 1, report.findings
    return report.causes[0]
