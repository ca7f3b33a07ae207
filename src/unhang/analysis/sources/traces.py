"""What call traces say: who fell silent before the others, and in which call.

A trace tells where a process was last heard of, not why, so it never blames a rank by itself. Where
dumps name a culprit, its trace shows what it was doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unhang._version import __version__
from unhang.model import LastCall, Note
from unhang.report import Finding, Job, RankStatus, Report, Site, Subject
from unhang.wording import count_of, fold_ranks, printable

__all__ = ["judge_traces", "with_traces"]

SILENT_S = 5.0
"""A process whose last call is this much older than the newest of all has fallen silent."""
_MOST = 8


def judge_traces(calls: Sequence[LastCall], notes: Sequence[Note] = ()) -> Report:
    """Say which process fell silent first, and in which call.

    Args:
        calls: One per process, oldest first.
        notes: What went wrong while reading them.
    """
    findings = tuple(
        replace(finding, id=f"f{number + 1}") for number, finding in enumerate(_silent(calls))
    )
    ranks = sorted(call.rank for call in calls if call.rank >= 0)
    inside = any(call.open_calls for call in calls)
    return Report(
        status="insufficient" if findings or inside or not calls else "healthy",
        summary=_summary(findings, calls, ranks),
        job=Job(ranks_seen=len(ranks), world_size=len(ranks)),
        findings=findings,
        ranks=tuple(
            RankStatus(c.rank, "unknown", detail=_last(c), pid=c.pid, stack_id=_stack_id(c))
            for c in sorted(calls, key=lambda c: c.rank)
            if c.rank >= 0
        ),
        stacks={_stack_id(c): c.open_calls for c in calls if c.open_calls},
        notes=tuple(notes),
        tool_version=__version__,
    )


def _summary(findings: Sequence[Finding], calls: Sequence[LastCall], ranks: Sequence[int]) -> str:
    if findings:
        return f"{findings[0].summary} A trace tells where, not why."
    if not calls:
        return "Not enough evidence: the traces hold no call."
    who = f"ranks {fold_ranks(ranks)}" if ranks else count_of(len(calls), "process", "processes")
    quiet = f"No process fell silent before the others ({who})"
    if any(call.open_calls for call in calls):
        return f"{quiet}; calls are open, and traces do not tell whether all of them hang."
    return f"{quiet}, and every traced call has ended."


def with_traces(findings: Sequence[Finding], calls: Sequence[LastCall]) -> list[Finding]:
    """Show where culprits were last heard of; where nobody is blamed, who fell silent first.

    Args:
        findings: From dumps and stacks, causes first.
        calls: One per traced process, oldest first.
    """
    if not calls:
        return list(findings)
    if any(finding.role == "cause" for finding in findings):
        return [_placed(f, calls) if f.role == "cause" else f for f in findings]
    return [*_silent(calls), *findings]


def _silent(calls: Sequence[LastCall]) -> list[Finding]:
    newest = calls[-1].time_ns if calls else 0
    return [_finding(c, newest) for c in calls if _age_s(c, newest) > SILENT_S and c.open_calls]


def _age_s(call: LastCall, newest_ns: int) -> float:
    return (newest_ns - call.time_ns) / 1e9


def _placed(finding: Finding, calls: Sequence[LastCall]) -> Finding:
    """A cause with what its culprits did last, by their traces."""
    own = [call for call in calls if call.rank in finding.culprits][:_MOST]
    newest = calls[-1].time_ns
    said = tuple(
        f"Trace: rank {call.rank} {_last(call)}, {_age_s(call, newest):.1f} s before the last call "
        f"of all ranks{_within(call)}."
        for call in own
    )
    known = {rank for site in finding.sites if site.role == "culprit" for rank in site.ranks}
    sites = tuple(_site(c, "culprit", newest) for c in own if c.open_calls and c.rank not in known)
    return replace(finding, evidence=(*said, *finding.evidence), sites=(*sites, *finding.sites))


def _within(call: LastCall) -> str:
    names = [printable(frame.function) for frame in call.open_calls[:_MOST]]
    return f"; open calls, innermost first: {', '.join(names)}" if names else ""


def _last(call: LastCall) -> str:
    word = "entered" if call.entered else "left"
    frame = call.frame
    return f"{word} {printable(frame.function)} at {printable(frame.file)}:{frame.line}"


def _stack_id(call: LastCall) -> str:
    return f"p{call.pid}"


def _site(call: LastCall, role: str, newest_ns: int) -> Site:
    frame = call.open_calls[0]
    ranks = (call.rank,) if call.rank >= 0 else ()
    return Site(ranks, role, frame.file, frame.line, frame.function, "", _age_s(call, newest_ns))


def _finding(call: LastCall, newest_ns: int) -> Finding:
    who = f"Rank {call.rank}" if call.rank >= 0 else f"Process {call.pid}"
    age = _age_s(call, newest_ns)
    site = replace(_site(call, "victim", newest_ns), stack_id=_stack_id(call))
    return Finding(
        id="",
        code="UH603",
        role="observation",
        confidence="medium",
        summary=f"{who} made its last traced call {age:.0f} s before the others: {_last(call)}.",
        victims=(call.rank,) if call.rank >= 0 else (),
        subjects=(Subject("process", f"pid {call.pid}", pid=call.pid),),
        sites=(site,),
        evidence=tuple(
            f"open call: {printable(f.function)} at {printable(f.file)}:{f.line}"
            for f in call.open_calls[:_MOST]
        ),
        actions=("Sample it with unhang stacks, or trace its system calls with --syscalls.",),
    )
