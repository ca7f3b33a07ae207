"""What other commands found: `doctor`, `trace --syscalls`, `numerics` and others, and how long ago.

Nothing in their reports is trusted: it is shown as theirs, with source and age.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from unhang.analysis.shared.claims import Observation
from unhang.case import Case
from unhang.catalogue import kind_of
from unhang.kinds import Kind, Trait
from unhang.report import Finding, SavedReport

_FRESH_NS: Final = 3_600 * 10**9
"""A check that is further away in time says nothing of this moment: it confirms no rank."""


class Reported(Struct, frozen=True):
    """The report of another command, as seen from the evidence.

    Attributes:
        since_ns: How long after the newest evidence it was made (before: below 0); None where
            nothing tells.
        evidence: What that is: "evidence", or "call" where only recorded calls have a time.
        chosen: The findings that its verdict rests on.
    """

    saved: SavedReport
    since_ns: int | None
    evidence: str
    chosen: tuple[Finding, ...]


class Told(Observation, frozen=True, kw_only=True):
    """One finding of another command."""

    finding: Finding
    by: Reported

    @property
    def kind(self) -> Kind:
        """The kind of finding; for an unknown code, one that says nothing."""
        return kind_of(self.finding.code) or Kind(
            self.finding.code, self.finding.slug, "environment", ""
        )

    @property
    def is_fresh(self) -> bool:
        """It was found close to the newest evidence."""
        return self.by.since_ns is not None and abs(self.by.since_ns) <= _FRESH_NS

    @property
    def is_check(self) -> bool:
        """A check that failed: known independently of what the job left behind."""
        return self.finding.role == "cause" and self.kind.has(Trait.CHECKED)


def reports_of(case: Case) -> tuple[Reported, ...]:
    """The reports of other commands in a case, newest first."""
    return tuple(_reported(saved, case) for saved in case.reports)


def _reported(saved: SavedReport, case: Case) -> Reported:
    moment, what = case.newest_ns, "evidence"
    if not moment:
        moment, what = int(case.calls.created_ns.max(initial=0)), "call"
    since = saved.time_ns - moment if saved.time_ns and moment > 0 else None
    return Reported(saved, since, what, tuple(_chosen(saved)))


def _chosen(saved: SavedReport) -> Iterator[Finding]:
    """Its causes; of a report without any the first finding, unless it found nothing wrong."""
    causes = [finding for finding in saved.findings if finding.role == "cause"]
    yield from causes or (saved.findings[:1] if saved.status != "healthy" else ())
