"""The verdict in about a dozen lines: what an engineer needs at 3 a.m.

The terminal shows it by default, the page and the ticket begin with it. It is put together from the
facts of the first finding; `story` holds everything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from unhang.checks import CHECKS
from unhang.report import Finding, Report, Step
from unhang.reports.content.folding import cause_lines, fold_notes
from unhang.reports.content.margin import (
    before_words,
    difference_lines,
    identity_lines,
    one_line_each,
)
from unhang.reports.content.next_steps import main_finding
from unhang.reports.content.phrases import (
    Who,
    by_last_calls,
    finding_sections,
    reasons_of,
    site_words,
    victim_label,
)
from unhang.wording import count_of, printable, rank_phrase

_MOST_STEPS = 3
_MOST_LINES = {"culprit": 2, "peers": 1, "about": 2}
_MOST_LOST, _MOST_PLACES, _MOST_REASONS, _MOST_UNLIKE = 2, 2, 1, 3
_MARKS = {"fail": "failed", "warn": "warning", "info": "look at", "ok": "ok", "skip": "skipped"}
_TOLD_ADVICE = frozenset({"disagreement", "deadlock", "program", "environment"})
"""Families whose remedy is known without further evidence, as is that of each of our checks."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What is said first.

    Attributes:
        status: As in the report.
        verdict: One sentence.
        rows: (label, items): who is at fault and where, who waits, why, further causes.
        whose: Job, time, command, revision: a line or two, empty where nothing tells.
        next: Commands that run as they stand.
        confidence: How sure that is; "" where nothing was found.
        doubt: What lowered it most, else what raised it, or "".
        basis: What kind of finding it is, and how many ranks were seen.
        more: What is left out here, in one sentence, or "".
    """

    status: str
    verdict: str
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    next: tuple[Step, ...]
    confidence: str
    doubt: str
    basis: str
    more: str
    whose: tuple[str, ...] = ()


def brief_of(report: Report) -> Brief:
    """Tell the first finding of a report, and count the rest."""
    finding = main_finding(report)
    told = finding if finding is not None and report.status != "healthy" else None
    return Brief(
        status=report.status,
        verdict=printable(report.summary),
        rows=(
            *(_rows(told, report) if told else ()),
            *_other_causes(told, report),
            *_decided(report, told),
            *_seen_before(report),
            *_unlike(report),
            *_lost(report),
            *_checklist(report),
        ),
        next=report.next[:_MOST_STEPS],
        confidence=told.confidence if told else "",
        doubt=reasons_of(told, _MOST_REASONS) if told else "",
        basis=", ".join(_basis(told, report)),
        more=_more(told, report),
        whose=identity_lines(report),
    )


def _rows(finding: Finding, report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the sections that matter, each cut to a line or two."""
    for label, items in finding_sections(finding, report, Who.of(report)):
        if label == "about" and finding.culprits:
            continue
        if label in _MOST_LINES and items:
            yield label, items[: _MOST_LINES[label]]
    yield from _who_waits(finding, report)
    if code := tuple(one_line_each(finding)):
        yield "source", code
    if finding.evidence:
        yield "why", (printable(finding.evidence[0]),)
    known = finding.code in CHECKS or finding.family in _TOLD_ADVICE
    if finding.actions and (known or not report.next):
        yield "remedy", (printable(finding.actions[0]),)


def _other_causes(told: Finding | None, report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a line for each cause but the main one."""
    lines = cause_lines([cause for cause in report.causes if cause is not told])
    if lines:
        yield "also", lines


def _seen_before(report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield that the same was there before, in the cases here."""
    if words := before_words(report):
        yield "before", (words,)


def _unlike(report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what the ranks' nodes, environments and arguments do not have in common."""
    lines = tuple(difference_lines(report))
    if lines:
        more = len(lines) - _MOST_UNLIKE
        rest = (f"and {count_of(more, 'more difference')}: see differences in the JSON",)
        yield "differs", (*lines[:_MOST_UNLIKE], *(rest if more > 0 else ()))


def _decided(report: Report, told: Finding | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what to do now, and how sure that is where it is not as sure as the finding."""
    decision = report.decision
    if decision is not None and report.status != "healthy":
        same = told is not None and told.confidence == decision.confidence
        sure = "" if same else f" ({decision.confidence} confidence)"
        yield "action", (f"{printable(decision.text)}{sure}",)


def _lost(report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what could not be read or is missing: a verdict stands on the rest."""
    lost = [text for level, text in fold_notes(report.notes) if level != "info"]
    if lost:
        yield "lost", tuple(lost[:_MOST_LOST])


def _checklist(report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what the doctor looked at, by how it was found: what is wrong first, and its remedy."""
    marks: dict[str, list[str]] = {mark: [] for mark in _MARKS}
    for check in report.checks:
        told = f"{check.name}: {check.seen}" + (f" Remedy: {check.remedy}" if check.remedy else "")
        marks[check.mark].append(printable(told))
    yield from ((_MARKS[mark], tuple(lines)) for mark, lines in marks.items() if lines)


def _who_waits(finding: Finding, report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield who waits, as the map of ranks has it; and who else is affected."""
    who, kinds = Who.of(report), defaultdict[str, set[int]](set)
    for rank in finding.victims:
        kinds[who.victim(rank, finding)].add(rank)
    for kind in sorted(kinds, reverse=True):  # those who wait stand first
        yield victim_label(kind), tuple(_waiting(finding, kinds[kind]))


def _waiting(finding: Finding, left: set[int]) -> Iterator[str]:
    """These ranks, and where most of them are: a line for each of two places."""
    sites = sorted((s for s in finding.sites if s.role == "victim"), key=lambda s: -len(s.ranks))
    for site in sites[:_MOST_PLACES]:
        if own := sorted(left.intersection(site.ranks)):
            yield f"{rank_phrase(own)} {site_words(site)}"
        left = left - set(own)
    if left:
        yield f"{'and ' if sites else ''}{rank_phrase(sorted(left))}"


def _basis(finding: Finding | None, report: Report) -> Iterator[str]:
    if finding is not None:
        yield f"{finding.code} {finding.slug}".strip()
    job = report.job
    if job.world_size:
        dumped = bool(job.format_versions or job.calls)
        seen = job.ranks_seen - job.ranks_by_last_calls
        how = "left a dump" if dumped else "was seen" if seen == 1 else "were seen"
        yield f"{seen:,} of {count_of(job.world_size, 'rank')} {how}{by_last_calls(job)}"


def _more(finding: Finding | None, report: Report) -> str:
    """Count what the brief leaves out, apart from what it tells."""
    told = sum(each is finding or each.role == "cause" for each in report.findings)
    others = len(report.findings) - told
    parts = [
        count_of(others, "more finding") if others and finding is not None else "",
        count_of(len(report.notes), "note") if report.notes else "",
    ]
    said = [part for part in parts if part]
    return f"-v shows all: {', '.join(said)}" if said else "-v shows all"
