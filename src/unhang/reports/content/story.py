"""What a report says to a person, and in which order: the text of every page, without any drawing.

Text, Markdown and HTML lay out one `Story`, so that they never tell different things. Sentences are
made here from the Report's facts: ranks folded to ranges, similar findings folded to one line,
long lists cut with a count of what is left out. Every string that came from outside is made
printable here; escaping for a markup language is the page's own duty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from unhang.report import Finding, Job, Report, Role
from unhang.reports.content.folding import (
    RankRow,
    cause_lines,
    fold_notes,
    fold_rank_table,
    fold_rest,
)
from unhang.reports.content.margin import before_words, code_lines, identity_lines
from unhang.reports.content.phrases import Who, by_last_calls, finding_sections
from unhang.wording import count_of, printable

MAX_CAUSES = 3
"""Causes told in full; the others get a line each."""


@dataclass(frozen=True, slots=True)
class Section:
    """A labelled part of a chapter: one item a line, or numbered steps."""

    label: str
    items: tuple[str, ...]
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Chapter:
    """One finding in full.

    Attributes:
        summary: Empty where the story's verdict says the same already.
    """

    id: str
    code: str
    slug: str
    role: Role
    confidence: str
    summary: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """The whole page.

    Attributes:
        status: As in the report.
        verdict: One sentence.
        chapters: The findings that matter, in full.
        others: One line for each further cause, and for each further kind of finding.
        rank_head: "8 expected, 7 left a dump".
        ranks: The table of ranks by status, folded.
        notes: Folded notes as (level, text).
        facts: The job in short phrases.
        whose: Job, time, command, revision: a line or two, empty where nothing tells.
        before: That the same was there before, or "".
    """

    status: str
    verdict: str
    chapters: tuple[Chapter, ...]
    others: tuple[str, ...]
    rank_head: str
    ranks: tuple[RankRow, ...]
    notes: tuple[tuple[str, str], ...]
    facts: tuple[str, ...]
    whose: tuple[str, ...] = ()
    before: str = ""


def tell(report: Report) -> Story:
    """Put a report into words."""
    main, rest = _sorted_out(report)
    who = Who.of(report)
    return Story(
        status=report.status,
        verdict=printable(report.summary),
        chapters=tuple(_chapter(f, report, who) for f in main),
        others=_others(rest),
        rank_head=_rank_head(report),
        ranks=fold_rank_table(report.ranks),
        notes=fold_notes(report.notes),
        facts=_facts(report),
        whose=identity_lines(report),
        before=before_words(report),
    )


def _sorted_out(report: Report) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Split the findings into those told in full and those that get a line."""
    main = report.causes or tuple(f for f in report.findings if f.role == "observation")
    main = main[:MAX_CAUSES]
    chosen = {f.id for f in main}
    return main, tuple(f for f in report.findings if f.id not in chosen)


def _others(rest: tuple[Finding, ...]) -> tuple[str, ...]:
    causes = cause_lines([f for f in rest if f.role == "cause"])
    return (
        *(f"cause: {line}" for line in causes),
        *fold_rest([f for f in rest if f.role != "cause"]),
    )


def _chapter(finding: Finding, report: Report, who: Who) -> Chapter:
    return Chapter(
        id=finding.id,
        code=finding.code,
        slug=finding.slug,
        role=finding.role,
        confidence=finding.confidence,
        summary="" if finding.summary == report.summary else printable(finding.summary),
        sections=tuple(
            Section(label, items, steps=label == "next")
            for label, items in _with_code(finding, finding_sections(finding, report, who))
            if items
        ),
    )


def _with_code(
    finding: Finding, sections: Iterable[tuple[str, tuple[str, ...]]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the sections, with the code after those that say where ranks stand."""
    for label, items in sections:
        if label == "about":
            yield "source", tuple(code_lines(finding))
        yield label, items


def _rank_head(report: Report) -> str:
    expected = report.job.world_size or len(report.ranks)
    if not expected:
        return ""
    how = "left a dump" if report.job.format_versions or report.job.calls else "seen"
    seen = report.job.ranks_seen - report.job.ranks_by_last_calls
    return f"{expected:,} expected, {seen:,} {how}{by_last_calls(report.job)}"


def _facts(report: Report) -> tuple[str, ...]:
    job, incident = report.job, report.incident
    facts = [
        count_of(job.groups, "group") if job.groups else "",
        count_of(job.calls, "call") if job.calls else "",
        "+".join(printable(name) for name in job.backends),
        f"format {', '.join(printable(v) for v in job.format_versions)}"
        if job.format_versions
        else "",
        _span(job),
        f"job {printable(incident.job_id, 60)}" if incident.job_id else "",
        f"attempt {printable(incident.attempt, 20)}" if incident.attempt else "",
        f"incident {printable(incident.id, 60)}" if incident.id else "",
        f"dumped because: {printable(incident.reason, 80)}" if incident.reason else "",
    ]
    return tuple(fact for fact in facts if fact)


def _span(job: Job) -> str:
    if not job.first_ns or job.last_ns < job.first_ns:
        return ""
    first, last = _utc(job.first_ns), _utc(job.last_ns)
    if first is None or last is None:
        return ""
    same_day = first.date() == last.date()
    return (
        f"{first:%Y-%m-%d %H:%M:%S} to {last:{'%H:%M:%S' if same_day else '%Y-%m-%d %H:%M:%S'}} UTC"
    )


def _utc(time_ns: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(time_ns / 1e9, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):  # a clock that no calendar knows
        return None
