"""What logs alone can say: the first failure, and who was behind when the watchdogs gave up.

Pure functions over log events. A log names what was printed, not what was called, so a verdict
from counters is of medium confidence at most, and a message that every rank prints blames nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from unhang._version import __version__
from unhang.analysis.sources.log_counters import compare_counters
from unhang.case import Case
from unhang.logs.failure import CLOCK_SLACK_NS, FailureGroup, fold, ordered_failures
from unhang.logs.nccl_facts import differing
from unhang.logs.rules import LogRule, rule_of
from unhang.logs.scan import ANY_ERROR, WENT_ON, LogScan
from unhang.model import Fact, LogEvent, Note
from unhang.report import (
    Confidence,
    Finding,
    Incident,
    Job,
    RankStatus,
    Report,
    Site,
    Status,
    Subject,
)
from unhang.wording import count_of, rank_phrase

__all__ = [
    "differing_findings",
    "failures",
    "first_failure",
    "judge_log_case",
    "judge_logs",
    "log_findings",
    "told_besides",
]

MAX_CONSEQUENCES = 12
MAX_FAILURES = 32
SHOWN = 160
SHOWN_WHOLE = 2_400
MAX_LINES = 8
"""Unexplained lines that are shown: the last ones, and the first."""
_STRANGE = (
    "Not enough evidence: nothing here was recognised as the log of a job: no rank, time stamp, "
    "level or step, and no known message."
)
_REPORTED_LATER = "UH780"
"""The message that an error may have happened at an earlier call than the one that reports it."""


def log_findings(
    events: Sequence[LogEvent], ranks: Sequence[int], facts: Iterable[Fact] = ()
) -> tuple[Finding, ...]:
    """Findings from log events alone, causes first.

    Args:
        events: All recognised messages.
        ranks: All ranks that are known to exist; decides what "every rank" means.
        facts: What NCCL said of itself, to be compared between ranks.
    """
    first = first_failure(events, ranks)
    found = [first] if first else compare_counters(events)
    found = _numbered(found)
    reason = tuple(finding.id for finding in found if finding.role == "cause")
    found += told_besides(events, reason, first)
    trouble = [event for event in events if _tells_of_trouble(event)]
    if trouble and not reason:
        found = [_unexplained(trouble), *found, *_seen_besides(trouble)][:MAX_CONSEQUENCES]
    return tuple(_numbered([*found, *differing_findings(facts)]))


def first_failure(events: Sequence[LogEvent], ranks: Sequence[int]) -> Finding | None:
    """The earliest failure that is no consequence of another, or None.

    Args:
        events: All recognised messages.
        ranks: All ranks that are known to exist.
    """
    return next(iter(failures(events, ranks, most=1)), None)


def failures(
    events: Sequence[LogEvent], ranks: Sequence[int], most: int = MAX_FAILURES
) -> list[Finding]:
    """Each failure that may be the cause, told as if it were the first one; earliest first."""
    causes, ordered = ordered_failures(events)
    found = []
    for number, cause in enumerate(causes[:most]):
        failure = _first_failure(causes[number:], ranks, ordered=ordered)
        more = (*_noticed_later(cause, events), *_blamed(failure, events))
        found.append(replace(failure, evidence=(*failure.evidence, *more)))
    return found


def _noticed_later(first: FailureGroup, events: Sequence[LogEvent]) -> Iterator[str]:
    """Say of an asynchronous error that the line shown is not the one at fault."""
    rule = rule_of(_REPORTED_LATER)
    said = {event.rank for event in events if event.code == _REPORTED_LATER}
    if rule is not None and said & {*first.ranks, first.first.rank}:
        yield f"{rule.meaning} {rule.action}"


def _blamed(found: Finding, events: Sequence[LogEvent]) -> Iterator[str]:
    """Say so where torchelastic blames somebody else."""
    blamed = {int(e.fields["blamed"]): e for e in events if e.fields.get("blamed", "").isdigit()}
    for rank, event in sorted(blamed.items()):
        if rank not in found.culprits:
            code = event.fields.get("exitcode", "")
            ended = f", which ended with exit code {code}" if code else ""
            yield f"torchelastic blames rank {rank}{ended}: it saw that one end first."


def told_besides(
    events: Sequence[LogEvent], reason: tuple[str, ...], told: Finding | None = None
) -> list[Finding]:
    """Everything else that is worth a line: other failures, consequences, hints.

    Args:
        events: All recognised messages.
        reason: Ids of the findings that they follow from.
        told: The failure that is told already. Failures after it are its consequences, if it is a
            cause; those before it are observations.
    """
    causes, _ = ordered_failures(events)
    at = next(
        (i for i, group in enumerate(causes) if told and _first_line(group) == told.evidence[0]), -1
    )
    leads = told is not None and told.role == "cause"
    effects = [group for group in fold(events) if group.first.role in ("consequence", "hint")]
    found = [
        *(_other(g, reason if leads and i > at else ()) for i, g in enumerate(causes) if i != at),
        *(_other(group, reason if group.first.role == "consequence" else ()) for group in effects),
    ]
    return found[:MAX_CONSEQUENCES]


def _first_line(group: FailureGroup) -> str:
    """What the evidence for a failure begins with."""
    return _quoted(group.first)


def _quoted(event: LogEvent) -> str:
    """Where a line stands and what it says; one that tells two sides is not cut."""
    rule = rule_of(event.code)
    whole = rule is not None and rule.blames == "nobody"
    return f"{event.source}: {event.text[: SHOWN_WHOLE if whole else SHOWN]}"


def judge_logs(scan: LogScan, incident: Incident | None = None) -> Report:
    """The verdict of logs alone.

    "healthy" means that this is the log of a job in which nothing marks itself as an error, or the
    job went on after it, and that all logs could be read. Consequences without their cause are
    not enough evidence.
    """
    report = _report(scan.events, sorted(scan.ranks), scan.facts, scan.notes, incident)
    lost = next((note for note in scan.notes if note.level == "error"), None)
    if report.status != "healthy" or (scan.recognised and lost is None):
        return report
    said = f"Not enough evidence: {lost.source} {lost.text}." if lost else _STRANGE
    return replace(report, status="insufficient", summary=said)


def judge_log_case(case: Case) -> Report:
    """The verdict of a case that holds logs, and neither dumps nor stacks."""
    ranks = sorted({*case.expected_ranks, *(e.rank for e in case.log_events if e.rank >= 0)})
    incident = Incident(id=case.incident, newest_ns=_newest(case.log_events))
    return _report(case.log_events, ranks, case.log_facts, case.notes, incident)


def _report(
    events: Sequence[LogEvent],
    ranks: Sequence[int],
    facts: Iterable[Fact],
    notes: Sequence[Note],
    incident: Incident | None,
) -> Report:
    findings = log_findings(events, ranks, facts)
    causes = [finding for finding in findings if finding.role == "cause"]
    culprits = {rank for finding in causes for rank in finding.culprits}
    doubtful = next((finding for finding in findings if finding.code == "UH901"), None)
    status: Status = "problem" if causes else "insufficient" if doubtful else "healthy"
    summary = doubtful.summary if doubtful else _quiet(events)
    return Report(
        status=status,
        summary=causes[0].summary if causes else summary,
        job=Job(ranks_seen=len(ranks), world_size=len(ranks)),
        incident=incident or Incident(newest_ns=_newest(events)),
        findings=findings,
        ranks=tuple(
            RankStatus(rank, "culprit" if rank in culprits else "unknown") for rank in ranks
        ),
        notes=(*notes, *_went_on(events)),
        tool_version=__version__,
    )


def _newest(events: Sequence[LogEvent]) -> int:
    return max((event.time_ns for event in events), default=0)


def _tells_of_trouble(event: LogEvent) -> bool:
    """Whether a job that ends well does not print this, unless it went on after it."""
    rule = rule_of(event.code)
    told = rule is not None and rule.role != "noise" and not rule.harmless
    return told and WENT_ON not in event.fields


def _unexplained(trouble: Sequence[LogEvent]) -> Finding:
    """That something went wrong, with the lines that say so, and that no rule says why."""
    errors = [group.first for group in fold(e for e in trouble if e.code == ANY_ERROR)]
    effect = next((event for event in trouble if event.role == "consequence"), None)
    shown = errors if len(errors) <= MAX_LINES else [errors[0], *errors[1 - MAX_LINES :]]
    if effect is not None:
        what = "the logs show what followed from a failure, and not the failure itself"
    elif errors:
        what = "the logs hold errors that no rule explains, this the last of them"
    else:
        what = "the logs show that something went wrong, and not why"
    told = effect or (errors[-1] if errors else trouble[-1])
    return Finding(
        id="",
        code="UH901",
        role="observation",
        confidence="low",
        summary=f"Not enough evidence: {what}: {_told_by(told)}: {told.text[:SHOWN]}",
        evidence=tuple(_quoted(event) for event in shown or [told]),
        actions=("Read these lines and those around them; give the logs of all ranks and nodes.",),
    )


def _told_by(event: LogEvent) -> str:
    return rank_phrase([event.rank]) if event.rank >= 0 else event.host or event.source


def _seen_besides(trouble: Sequence[LogEvent]) -> list[Finding]:
    """What rules recognised, and what by itself is no cause: it is all there is to go on."""
    known = (event for event in trouble if event.code != ANY_ERROR)
    return [_other(g, ()) for g in fold(known) if g.first.role not in ("consequence", "hint")]


def _went_on(events: Sequence[LogEvent]) -> Iterator[Note]:
    passed = [event for event in events if WENT_ON in event.fields]
    if passed:
        text = f"{count_of(len(passed), 'error')} after which the job counted further steps"
        yield Note("info", passed[-1].source, f"{text}; the last: {passed[-1].text[:SHOWN]}")


def _quiet(events: Sequence[LogEvent]) -> str:
    if events:
        return "The logs hold known messages, and none of them is the cause of a failure."
    return "The logs hold no message that a rule knows, and no line that marks itself as an error."


def differing_findings(facts: Iterable[Fact]) -> list[Finding]:
    """One observation for each fact about which ranks disagree."""
    return [
        Finding(
            id="",
            code="UH795",
            role="observation",
            confidence="medium",
            summary=f"Ranks differ in {name}.",
            evidence=tuple(f"{rank_phrase(ranks)}: {value}" for value, ranks in said.items()),
            subjects=(Subject("setting", name),),
            actions=("Start all ranks with the same environment and the same libraries.",),
        )
        for name, said in differing(facts).items()
    ]


def _numbered(findings: Sequence[Finding]) -> list[Finding]:
    return [replace(finding, id=f"f{i + 1}") for i, finding in enumerate(findings)]


def _first_failure(
    causes: Sequence[FailureGroup], ranks: Sequence[int], *, ordered: bool
) -> Finding:
    first = causes[0]
    rule = rule_of(first.first.code)
    everybody = len(ranks) > 1 and set(ranks) <= set(first.ranks)
    culprits = () if everybody else _blamed_by(first, rule)
    rivals = [group for group in causes[1:] if _as_early(first, group)]
    who = "every rank" if everybody else _who(first)
    of = "that of" if rule is None or rule.blames == "writer" else "told by"
    meaning = rule.meaning if rule else ""
    return Finding(
        id="f1",
        code=first.first.code if rule else "UH700",
        slug=rule.slug if rule else "first-failure",
        role="cause",
        confidence=_confidence(rivals, ordered=ordered, everybody=everybody, culprits=culprits),
        summary=f"The first failure in the logs is {of} {who}: {first.first.text[:SHOWN]}",
        culprits=culprits,
        subjects=_subjects(first) if not culprits and not everybody else (),
        sites=_sites(first, culprits),
        evidence=(
            _first_line(first),
            meaning,
            *(("Every rank prints this message, so it blames none of them.",) if everybody else ()),
        ),
        alternatives=tuple(
            f"{_who(group)} printed at about the same time: {group.first.text[:SHOWN]}"
            for group in rivals[:4]
        ),
        actions=(rule.action,) if rule else (),
    )


def _blamed_by(group: FailureGroup, rule: LogRule | None) -> tuple[int, ...]:
    """The ranks that a failure names: mostly who wrote it, sometimes others, or nobody."""
    if rule is None or rule.blames == "writer":
        return group.ranks
    if rule.blames == "nobody":
        return ()
    told = re.findall(r"\d{1,6}", group.first.fields.get("ranks", ""))
    return tuple(sorted({int(rank) for rank in told}))


def _as_early(first: FailureGroup, other: FailureGroup) -> bool:
    if not first.time_ns or not other.time_ns:
        return not first.time_ns
    return other.time_ns - first.time_ns < CLOCK_SLACK_NS and other.ranks != first.ranks


def _confidence(
    rivals: Sequence[FailureGroup], *, ordered: bool, everybody: bool, culprits: Sequence[int]
) -> Confidence:
    if not ordered or rivals:
        return "low"
    return "medium" if everybody or not culprits else "high"


def _who(group: FailureGroup) -> str:
    if group.ranks:
        return rank_phrase(group.ranks)
    return group.first.host or "a process whose rank the log does not tell"


def _subjects(group: FailureGroup) -> tuple[Subject, ...]:
    event = group.first
    pid = next((v for k, v in event.fields.items() if k.startswith("pid") and v.isdigit()), "")
    if pid:
        return (Subject("process", f"pid {pid}", host=event.host or None, pid=int(pid)),)
    return (Subject("host", event.host, host=event.host),) if event.host else ()


def _sites(group: FailureGroup, culprits: tuple[int, ...]) -> tuple[Site, ...]:
    fields = group.first.fields
    if "file" not in fields or not fields.get("line", "").isdigit():
        return ()
    site = Site(culprits, "culprit", fields["file"], int(fields["line"]), fields["function"])
    return (site,)


def _other(group: FailureGroup, reason: tuple[str, ...]) -> Finding:
    rule = rule_of(group.first.code)
    return Finding(
        id="",
        code=group.first.code,
        slug=rule.slug if rule else "",
        role="consequence" if reason or group.first.role == "consequence" else "observation",
        confidence="medium",
        summary=f"{_who(group)}: {group.first.text[:SHOWN]}",
        victims=group.ranks,
        evidence=(f"{group.first.source} ({group.count} times)", rule.meaning if rule else ""),
        actions=(rule.action,) if rule else (),
        caused_by=reason,
    )
