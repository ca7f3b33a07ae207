"""Adds to a verdict what other commands found: `doctor`, `trace --syscalls`, `numerics` and others.

What they found is told beside the verdict, with its source and age, and never becomes its cause:
a node that is bad, or a process that waits, explains a hang only if the dumps point there too. So a
finding about a culprit's own process, GPU or host is evidence of that culprit; one about the only
way between the ranks of a stuck call is a possible explanation; all else is an observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Final

from unhang._version import __version__
from unhang.analysis.sources.nodes import Nodes, hosts_named, nodes_of
from unhang.case import Case
from unhang.model import Note
from unhang.report import Finding, Report, SavedReport, Subject
from unhang.wording import count_of, printable, rank_phrase

__all__ = ["judge_reports", "with_reports"]

_OF_A_NODE: Final = frozenset(("UH101", "UH103", "UH104", "UH105", "UH106", "UH402"))
"""What a bad node, GPU or process of a rank can be the reason of; a wrong call stands by itself."""
_OPEN: Final = frozenset(("UH401", "UH402", "UH601", "UH901"))
"""Findings that name nobody, and leave room for an explanation."""
_FIRST_CHECK, _FIRST_ON_THE_WAY, _AFTER_CHECKS = "UH800", "UH820", "UH870"
"""Codes of the doctor's checks, of which those of network, GPUs and collectives come last."""

_FRESH_S: Final = 3_600.0
"""A check that is further away in time says nothing of this moment: it confirms nobody."""
_MOST: Final = 32
_MOST_SENTENCES: Final = 4


@dataclass(frozen=True, slots=True)
class _Told:
    """One finding of another command, and how it is introduced."""

    finding: Finding
    by: str
    source: str
    fresh: bool

    @property
    def sentence(self) -> str:
        """What was found, by whom and when."""
        return f"{self.by}: {self.finding.summary}"

    @property
    def is_check(self) -> bool:
        """A check of the doctor that failed: known independently of what the job left behind."""
        return self.finding.role == "cause" and (_FIRST_CHECK <= self.finding.code < _AFTER_CHECKS)


def judge_reports(case: Case) -> Report:
    """Tell what other commands found where there is nothing else: that names nobody."""
    summary = (
        "Not enough evidence: there are no dumps, stacks or logs, only what other commands found."
    )
    bare = Report("insufficient", summary, notes=case.notes, tool_version=__version__)
    return with_reports(bare, case)


def with_reports(report: Report, case: Case) -> Report:
    """Join a verdict with what other commands found.

    Args:
        report: The verdict from dumps, stacks, logs and traces.
        case: For its reports, and for which rank is where.

    Returns:
        The verdict; its status, causes, culprits and summary are those of the given one.
    """
    told, notes = _told(report, case)
    nodes = nodes_of(case)
    findings = [_explained(finding, told, nodes, report) for finding in report.findings]
    used: set[int] = set()
    for place, finding in enumerate(findings):
        if finding.role == "cause" and finding.culprits:
            about = [i for i, each in enumerate(told) if _is_about(each, finding, nodes)]
            findings[place] = _with_evidence(finding, [told[i] for i in about], nodes)
            used |= set(about)
    rest = [each for i, each in enumerate(told) if i not in used]
    if len(rest) > _MOST:
        text = f"{len(rest) - _MOST} further findings of other commands are left out"
        notes.append(Note("info", "reports", text))
    for each in rest[:_MOST]:
        findings.append(_observation(each, f"f{len(findings) + 1}", nodes))
    return replace(report, findings=tuple(findings), notes=(*report.notes, *notes))


# ------------------------------------------------------------------ what is told at all


def _told(report: Report, case: Case) -> tuple[list[_Told], list[Note]]:
    """The findings that verdicts of other commands rest on; the rest becomes notes."""
    told: list[_Told] = []
    notes: list[Note] = []
    for saved in case.reports:
        chosen = _chosen(saved)
        by, fresh = _introduction(saved, report, case)
        told += (_Told(finding, by, saved.source, fresh) for finding in chosen)
        if not chosen:
            text = f"{by}: {saved.summary or 'nothing wrong was found'}"
            notes.append(Note("info", printable(saved.source), text))
        elif left := len(saved.findings) - len(chosen):
            text = f"{count_of(left, 'finding')} on which its verdict does not rest left out"
            notes.append(Note("info", printable(saved.source), text))
    return told, notes


def _chosen(saved: SavedReport) -> tuple[Finding, ...]:
    """Its causes; of a report without any the first finding, unless it found nothing wrong."""
    causes = tuple(finding for finding in saved.findings if finding.role == "cause")
    return causes or (() if saved.status == "healthy" else saved.findings[:1])


def _introduction(saved: SavedReport, report: Report, case: Case) -> tuple[str, bool]:
    """Say by whom and when, as seen from the evidence; and whether that is close to it."""
    by = f"By {saved.command or printable(saved.source, 60)}"
    if not saved.time_ns:
        return f"{by}, it is not known when", False
    moment, what = case.newest_ns, "the newest evidence"
    if not moment:
        moment, what = report.job.last_ns, "the last recorded call"
    if not moment:
        when = datetime.fromtimestamp(saved.time_ns / 1e9, tz=timezone.utc)
        return f"{by} at {when:%Y-%m-%d %H:%M:%S} UTC", False
    apart_s = (saved.time_ns - moment) / 1e9
    side = "after" if apart_s >= 0 else "before"
    return f"{by}, {_length(abs(apart_s))} {side} {what}", abs(apart_s) <= _FRESH_S


def _length(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


# ------------------------------------------------------------------ evidence of a culprit


def _is_about(told: _Told, finding: Finding, nodes: Nodes) -> bool:
    """Whether it is about a culprit, and not about everybody who waits as well."""
    about = {rank for subject in told.finding.subjects for rank in nodes.ranks_of(subject)}
    everybody = bool(finding.victims) and set(finding.victims) <= about
    return bool(about & set(finding.culprits)) and not everybody


def _with_evidence(finding: Finding, told: Sequence[_Told], nodes: Nodes) -> Finding:
    if not told:
        return finding
    sure = finding.confidence == "medium" and any(_confirms(t, finding, nodes) for t in told)
    shown = told[:_MOST_SENTENCES]
    actions = (action for each in shown for action in each.finding.actions)
    return replace(
        finding,
        confidence="high" if sure else finding.confidence,
        evidence=(*finding.evidence, *(_placed(each, finding, nodes) for each in shown)),
        actions=tuple(dict.fromkeys((*finding.actions, *actions))),
    )


def _placed(told: _Told, finding: Finding, nodes: Nodes) -> str:
    """The sentence, with the host where a culprit is named by that alone."""
    hosts = {
        nodes.known_as(subject.host or "")
        for subject in told.finding.subjects
        if subject.kind in ("host", "gpu")
    }
    where = [
        f"{rank_phrase(there)} {'is' if len(there) == 1 else 'are'} on {printable(host, 60)}"
        for host in sorted(hosts - {""})
        if (there := [rank for rank in finding.culprits if nodes.host_of.get(rank) == host])
    ]
    return told.sentence + (f" ({'; '.join(where)})" if where else "")


def _confirms(told: _Told, finding: Finding, nodes: Nodes) -> bool:
    """Whether a check names the same rank independently: that of the dumps, and no other."""
    accused = [subject for subject in told.finding.subjects if subject.role == "culprit"]
    return (
        told.is_check
        and told.fresh
        and told.finding.confidence != "low"
        and finding.code in _OF_A_NODE
        and {nodes.names(subject) for subject in accused} == set(finding.culprits)
        and not any(text.startswith("Sources disagree") for text in finding.evidence)
    )


# ------------------------------------------------------------------ explanations of a stuck call


def _explained(finding: Finding, told: Sequence[_Told], nodes: Nodes, report: Report) -> Finding:
    """A finding that names nobody, with checks that failed on the only way between its ranks."""
    if finding.code not in _OPEN or finding.culprits or report.culprits:
        return finding
    inside = {rank for side in finding.calls for rank in side.ranks}
    inside = inside or {row.rank for row in report.ranks if row.head}
    hosts = nodes.hosts_of(inside)
    possible = [each for each in told if _is_on_the_way(each, inside, hosts, nodes)]
    if not possible:
        return finding
    names = " and ".join(printable(host, 60) for host in sorted(hosts))
    said = tuple(
        f"Possible. {each.sentence} The ranks in this call are all on {names}."
        for each in possible[:_MOST_SENTENCES]
    )
    return replace(finding, alternatives=(*said, *finding.alternatives))


def _is_on_the_way(told: _Told, inside: set[int], hosts: frozenset[str], nodes: Nodes) -> bool:
    """Whether nothing passes between the hosts of these ranks but over what the check is about."""
    if not (told.is_check and told.finding.code >= _FIRST_ON_THE_WAY):
        return False
    return any(_covers(subject, inside, hosts, nodes) for subject in told.finding.subjects)


def _covers(subject: Subject, inside: set[int], hosts: frozenset[str], nodes: Nodes) -> bool:
    named = {nodes.known_as(host) for host in hosts_named(subject)}
    if not named or not named <= hosts:
        return False
    if subject.kind == "link":
        return named == hosts
    is_used = subject.kind != "gpu" or bool(inside & set(nodes.ranks_of(subject)))
    return is_used and len(hosts - named) <= 1


# ------------------------------------------------------------------ observations


def _observation(told: _Told, number: str, nodes: Nodes) -> Finding:
    """What was found, beside the verdict: about hosts and processes, and about no rank's guilt.

    Rank numbers of the other command stay only where its host shows that they are this job's.
    """
    found = told.finding
    evidence = (*found.evidence[:_MOST_SENTENCES], f"From {printable(told.source)}.")
    return Finding(
        id=number,
        code=found.code,
        slug=found.slug,
        role="observation",
        confidence=found.confidence,
        summary=told.sentence,
        subjects=tuple(replace(s, rank=nodes.names(s)) for s in found.subjects),
        evidence=evidence,
        alternatives=found.alternatives,
        actions=found.actions,
    )
