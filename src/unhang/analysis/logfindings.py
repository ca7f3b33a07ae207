"""What logs alone can say: the first failure, and who was behind when the watchdogs gave up.

Pure functions over log events. A log names what was printed, not what was called, so a verdict
from counters is of medium confidence at most, and a message that every rank prints blames nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from unhang.logs.facts import Fact, differing
from unhang.logs.failure import CLOCK_SLACK_NS, FailureGroup, fold, ordered_failures
from unhang.logs.rules import rule_of
from unhang.logs.scan import LogScan
from unhang.model import LogEvent
from unhang.report import (
    CallSide,
    Confidence,
    Finding,
    GroupRef,
    Incident,
    Job,
    RankStatus,
    Report,
    Site,
    Subject,
)
from unhang.wording import fold_ranks

__all__ = ["judge_logs", "log_findings"]

MAX_CONSEQUENCES = 12
SHOWN = 160


def log_findings(events: Sequence[LogEvent], ranks: Sequence[int]) -> tuple[Finding, ...]:
    """Findings from log events alone, causes first.

    Args:
        events: All recognised messages.
        ranks: All ranks that are known to exist; decides what "every rank" means.
    """
    causes, ordered = ordered_failures(events)
    found: list[Finding] = []
    if causes:
        found.append(_first_failure(causes, ranks, ordered=ordered))
    else:
        found.extend(_from_counters(events))
    effects = [group for group in fold(events) if group.first.kind in ("consequence", "hint")]
    reason = tuple(f"f{i + 1}" for i, f in enumerate(found) if f.role == "cause")
    found.extend(_other(group, reason) for group in [*causes[1:], *effects][:MAX_CONSEQUENCES])
    return tuple(_numbered(found))


def judge_logs(scan: LogScan, incident: Incident | None = None) -> Report:
    """The verdict of logs alone.

    "healthy" means that no rule found a cause, which is what a log without known messages shows.
    """
    ranks = sorted(scan.ranks)
    findings = list(log_findings(scan.events, ranks))
    findings += _differing(scan.facts)
    findings = _numbered(findings)
    causes = [finding for finding in findings if finding.role == "cause"]
    culprits = {rank for finding in causes for rank in finding.culprits}
    return Report(
        status="problem" if causes else "healthy",
        summary=causes[0].summary if causes else _quiet(scan),
        job=Job(ranks_seen=len(ranks), world_size=len(ranks)),
        incident=incident or Incident(newest_ns=max((e.time_ns for e in scan.events), default=0)),
        findings=tuple(findings),
        ranks=tuple(
            RankStatus(rank, "culprit" if rank in culprits else "unknown") for rank in ranks
        ),
        notes=tuple(scan.notes),
    )


def _quiet(scan: LogScan) -> str:
    if scan.events:
        return "The logs hold known messages, and none of them is the cause of a failure."
    return "The logs hold no message that a rule knows."


def _differing(facts: Sequence[Fact]) -> list[Finding]:
    return [
        Finding(
            id="",
            code="UH795",
            role="observation",
            confidence="medium",
            summary=f"Ranks differ in {name}.",
            evidence=tuple(f"{_ranks(ranks)}: {value}" for value, ranks in said.items()),
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
    everybody = len(ranks) > 1 and set(ranks) <= set(first.ranks)
    culprits = () if everybody else first.ranks
    rivals = [group for group in causes[1:] if _as_early(first, group)]
    rule = rule_of(first.first.code)
    who = "every rank" if everybody else _who(first)
    meaning = rule.meaning if rule else ""
    return Finding(
        id="f1",
        code=first.first.code if rule else "UH700",
        slug=rule.slug if rule else "first-failure",
        role="cause",
        confidence=_confidence(rivals, ordered=ordered, everybody=everybody, culprits=culprits),
        summary=f"The first failure in the logs is that of {who}: {first.first.text[:SHOWN]}",
        culprits=culprits,
        subjects=_subjects(first) if not culprits and not everybody else (),
        sites=_sites(first, culprits),
        evidence=(
            f"{first.first.source}: {first.first.text[:SHOWN]}",
            meaning,
            *(("Every rank prints this message, so it blames none of them.",) if everybody else ()),
        ),
        alternatives=tuple(
            f"{_who(group)} printed at about the same time: {group.first.text[:SHOWN]}"
            for group in rivals[:4]
        ),
        actions=(rule.action,) if rule else (),
    )


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
    return _ranks(group.ranks) or group.first.host or "a process whose rank the log does not tell"


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
        role="consequence" if group.first.kind in ("cause", "consequence") else "observation",
        confidence="medium",
        summary=f"{_who(group)}: {group.first.text[:SHOWN]}",
        victims=group.ranks,
        evidence=(f"{group.first.source} ({group.count} times)", rule.meaning if rule else ""),
        actions=(rule.action,) if rule else (),
        caused_by=reason if group.first.kind in ("cause", "consequence") else (),
    )


@dataclass(frozen=True, slots=True)
class _Counters:
    """What a rank's watchdog printed of one group: -1 or "" where it did not."""

    enqueued: int = -1
    completed: int = -1
    seq: int = -1
    op: str = ""
    numel: int = -1


def _from_counters(events: Sequence[LogEvent]) -> list[Finding]:
    """Compare the watchdogs' lines of all ranks, group by group."""
    found = []
    for name, ranks in sorted(_counters(events).items()):
        if len(ranks) > 1:
            found.extend(_compare(name, ranks))
    return found


def _counters(events: Sequence[LogEvent]) -> dict[str, dict[int, _Counters]]:
    groups: dict[str, dict[int, _Counters]] = defaultdict(dict)
    last_group: dict[int, str] = {}
    for event in events:
        if event.rank < 0 or event.code not in ("UH701", "UH702", "UH703"):
            continue
        fields = event.fields
        name = fields.get("desc") or fields.get("pg") or last_group.get(event.rank, "")
        last_group[event.rank] = name
        old = groups[name].get(event.rank) or groups[""].pop(event.rank, _Counters())
        groups[name][event.rank] = _Counters(
            enqueued=_int(fields, "enqueued", old.enqueued),
            completed=_int(fields, "completed", old.completed),
            seq=_int(fields, "seq", old.seq),
            op=fields.get("op", old.op),
            numel=_int(fields, "numel_in", old.numel),
        )
    return groups


def _int(fields: Mapping[str, str], key: str, default: int) -> int:
    text = fields.get(key, "")
    return int(text) if text.lstrip("-").isdigit() else default


def _compare(name: str, ranks: Mapping[int, _Counters]) -> list[Finding]:
    told = {rank: c.enqueued for rank, c in ranks.items() if c.enqueued >= 0}
    if len(told) > 1 and len(set(told.values())) > 1:
        return [_not_enqueued(name, told, ranks)]
    calls = {rank: c for rank, c in ranks.items() if c.seq >= 0}
    if len(calls) < 2:  # noqa: PLR2004 - one rank alone compares with nobody
        return []
    if len({c.seq for c in calls.values()}) > 1:
        return []
    for code, values in (
        ("UH201", {rank: c.op for rank, c in calls.items() if c.op}),
        ("UH202", {rank: str(c.numel) for rank, c in calls.items() if c.numel >= 0}),
    ):
        if len(set(values.values())) > 1:
            return [_mismatch(code, name, values, calls)]
    return [_all_joined(name, calls)]


def _not_enqueued(name: str, told: Mapping[int, int], ranks: Mapping[int, _Counters]) -> Finding:
    most = max(told.values())
    behind = tuple(sorted(rank for rank, count in told.items() if count < most))
    ahead = tuple(sorted(rank for rank, count in told.items() if count == most))
    op = next((ranks[rank].op for rank in ahead if ranks[rank].op), None)
    minority = len(behind) <= len(told) // 2
    return Finding(
        id="",
        code="UH101",
        role="cause",
        confidence="medium" if minority else "low",
        summary=(
            f"By the watchdogs' counters {_ranks(behind)} had not enqueued call #{most} of "
            f"{name or 'the group'} in which {_ranks(ahead)} waited."
        ),
        culprits=behind if minority else (),
        victims=ahead,
        group=GroupRef(name, name, len(told)) if name else None,
        seq=most,
        op=op,
        calls=(
            CallSide(ahead, "victim", seq=most, op=op or ""),
            *(CallSide((rank,), "culprit", seq=told[rank]) for rank in behind[:8]),
        ),
        evidence=tuple(f"rank {rank}: last enqueued work {told[rank]}" for rank in behind[:8]),
        alternatives=(
            "A rank that is stuck inside the library's call has not moved this counter either.",
        ),
        actions=(f"Take the stacks of {_ranks(behind)} with unhang stacks --native.",),
    )


def _mismatch(
    code: str, name: str, values: Mapping[int, str], calls: Mapping[int, _Counters]
) -> Finding:
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        sides[value].append(rank)
    largest = max(len(members) for members in sides.values())
    majority = [value for value, members in sides.items() if len(members) == largest]
    odd = [r for value, members in sides.items() if value != majority[0] for r in members]
    clear = len(majority) == 1 and largest * 2 > len(values)
    seq = next(iter(calls.values())).seq
    said = "; ".join(f"{_ranks(tuple(members))}: {value}" for value, members in sides.items())
    return Finding(
        id="",
        code=code,
        role="cause",
        confidence="medium" if clear else "low",
        summary=f"Ranks disagree about call #{seq} of {name or 'the group'}: {said}.",
        culprits=tuple(sorted(odd)) if clear else (),
        victims=tuple(sorted(set(values) - set(odd))) if clear else tuple(sorted(values)),
        group=GroupRef(name, name, len(values)) if name else None,
        seq=seq,
        calls=tuple(
            CallSide(tuple(members), "peer", seq=seq, op=calls[members[0]].op)
            for members in sides.values()
        ),
        evidence=(said,),
        alternatives=("A call skipped long before makes later calls meet that do not belong.",),
        actions=("Diagnose the dumps for the first call that differs.",),
    )


def _all_joined(name: str, calls: Mapping[int, _Counters]) -> Finding:
    counters = next(iter(calls.values()))
    return Finding(
        id="",
        code="UH401",
        role="cause",
        confidence="low",
        summary=(
            f"All {len(calls)} ranks that timed out were in the same call #{counters.seq} "
            f"({counters.op}) of {name or 'the group'}: no rank is at fault by these lines."
        ),
        victims=tuple(sorted(calls)),
        seq=counters.seq,
        op=counters.op or None,
        evidence=("Sequence number, operation and sizes agree on all of them.",),
        alternatives=("Ranks that print no such line may be absent from the call.",),
        actions=("Check the ranks that print nothing; then links and GPUs with unhang doctor.",),
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_ranks(ranks)}" if ranks else ""
