"""What the system calls of threads mean: which wait, on which file or socket, and which spin.

Thresholds are shares of the time that was watched. A helper that waits for work is no finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from unhang.kinds import Kind
from unhang.report import Confidence, Finding, Report, Subject
from unhang.trace.syscalls import UNSTAMPED, Observed, SyscallTrace
from unhang.wording import count_of, printable

_LOOK_AT_ITS_STACK: Final = "unhang stacks --pid shows which line of the program that is."

WAITS_IN_SYSCALL: Final = Kind(
    "UH604",
    "waits-in-syscall",
    "program",
    "A thread waited in one system call all the time.",
    role="observation",
    actions=(_LOOK_AT_ITS_STACK,),
)

SPINS_IN_SYSCALLS: Final = Kind(
    "UH605",
    "spins-in-syscalls",
    "program",
    "A thread makes system calls without end.",
    role="observation",
    actions=(_LOOK_AT_ITS_STACK,),
)

BUSY_WITHOUT_SYSCALLS: Final = Kind(
    "UH606",
    "busy-without-syscalls",
    "program",
    "A thread never sleeps and makes no system calls.",
    role="observation",
    alternatives=("Long work of its own: compiling, preparing data, a loop in Python.",),
    actions=(_LOOK_AT_ITS_STACK,),
)

SPIN_PER_S = 2_000.0
"""More system calls a second than that are no work, if they are alike."""
ALIKE = 0.8
"""Share of all calls that the three commonest are, in a thread that goes round."""
BUSY = 0.8
"""Share of the time awake from which on a thread that makes few system calls is reported."""
MOSTLY = 0.9
"""Share of the time in calls of one kind on one file that counts as waiting there."""
HELD = 0.2
"""Share of the time in one unfinished call from which on it is reported."""
FEW_PER_S = 200.0
"""Fewer system calls a second than that leave a busy thread to its own code."""

_WELL = "exited with 0"
_FAILURES = {
    "ENOSPC": "no space left on device",
    "EDQUOT": "disk quota exceeded",
    "EIO": "input/output error",
    "ESTALE": "stale file handle",
    "EMFILE": "too many open files",
    "ENFILE": "too many open files in the system",
}
"""Errors that no program makes on purpose."""


def judge_syscalls(observed: Observed) -> Report:
    """Say of each thread whether it waits, spins or works; the main thread comes first.

    Helpers wait for work: where the main thread goes on, or all ended well, that is no finding.
    """
    seconds, watched = observed.seconds, _watched(observed)
    found = [f for trace in observed.traces if (f := _finding(trace, watched)) is not None]
    first = observed.traces[0] if observed.traces else None
    if first is not None and _goes_on(first, observed):
        found = [f for f in found if f.code != WAITS_IN_SYSCALL.code]
    findings = tuple(
        replace(finding, id=f"f{i + 1}", subjects=_on_host(finding.subjects, observed.host))
        for i, finding in enumerate(found)
    )
    total = sum(trace.total for trace in observed.traces)
    ended = first is not None and first.ended
    unseen = not total or (not seconds and ended != _WELL) or (ended and ended != _WELL)
    failed = _failed(observed.traces)
    return Report(
        status="insufficient" if findings or unseen or failed else "healthy",
        summary=(findings[0].summary if findings else _quiet(observed, total)) + failed,
        findings=findings,
        notes=observed.notes,
    )


def _failed(traces: Iterable[SyscallTrace]) -> str:
    """The call that failed for want of room or a broken device, as a sentence; or nothing."""
    for trace in traces:
        for name, target, outcome in trace.alike:
            if outcome in _FAILURES:
                on = f" on {printable(target, 120)}" if target else ""
                return f" {trace.name} failed in {name}{on}: {outcome} ({_FAILURES[outcome]})."
    return ""


class _Watched(NamedTuple):
    """For how long was watched (0 where nothing tells), and until when, by strace's stamps."""

    seconds: float
    end_s: float


def _watched(observed: Observed) -> _Watched:
    began_s = min((t.first_s for t in observed.traces if t.first_s >= 0), default=0.0)
    return _Watched(observed.seconds, began_s + observed.seconds)


def _goes_on(first: SyscallTrace, observed: Observed) -> bool:
    """Whether the main thread comes out of its calls, or has ended as it should."""
    if observed.exit_code == 0 or first.ended == _WELL:
        return True
    return first.total > 0 and _finding(first, _watched(observed)) is None


def _quiet(observed: Observed, total: int) -> str:
    """What is said where nothing was found."""
    seconds, first = observed.seconds, observed.traces[0] if observed.traces else None
    if not total:
        return f"It made no system call in {seconds:.0f} s: what it does is unknown."
    made = count_of(total, "system call")
    if first and first.ended:
        return f"It made {made} and {first.ended}: it neither waits nor spins."
    if not seconds:
        return f"It made {made}, without time stamps: how long it waits is unknown."
    return f"It made {made} in {seconds:.0f} s and neither waits nor spins; most often: " + (
        f"{_most(first)}." if first else "none."
    )


def _finding(trace: SyscallTrace, watched: _Watched) -> Finding | None:
    """What is the matter with one thread."""
    if not watched.seconds:
        return _stands(trace) if trace.waiting else None
    seconds = max(watched.seconds, 0.1)
    if trace.total / seconds > SPIN_PER_S and _goes_round(trace):
        return _spins(trace, trace.total / seconds)
    if trace.awake_s / seconds > BUSY and trace.total / seconds < FEW_PER_S:
        return _busy(trace, trace.total, seconds)
    return _waiting(trace, seconds, watched.end_s)


def _waiting(trace: SyscallTrace, seconds: float, end_s: float) -> Finding | None:
    """That it waits: all the time, now, or again and again."""
    if trace.waiting and not trace.total:
        return _waits(trace, seconds)
    silent_s = end_s - trace.last_s if trace.last_s >= 0 else 0.0
    if trace.waiting and silent_s > HELD * seconds:
        return _waits_now(trace, silent_s)
    mostly = trace.spent.most_common(1)
    if mostly and mostly[0][1] / seconds > MOSTLY:
        return _waits_again(trace, mostly[0][0], mostly[0][1] / seconds)
    return None


def _goes_round(trace: SyscallTrace) -> bool:
    """Whether most calls are alike: a start-up makes as many, and each is another."""
    common = sum(number for _, number in trace.alike.most_common(3))
    return common > ALIKE * trace.total


def _subjects(trace: SyscallTrace, target: str = "") -> tuple[Subject, ...]:
    known = trace.pid >= 0
    thread = Subject("process", f"thread {trace.pid}", pid=trace.pid, role="victim")
    file = Subject("file", printable(target, 120))
    return (*((thread,) if known else ()), *((file,) if target else ()))


def _on_host(subjects: Sequence[Subject], host: str) -> tuple[Subject, ...]:
    """Processes with their host, without which a process id says little elsewhere."""
    return tuple(
        replace(subject, host=host or None) if subject.kind == "process" else subject
        for subject in subjects
    )


_DOUBTS: Final = {
    WAITS_IN_SYSCALL.code: "it was watched briefly: a slow peer looks the same",
    SPINS_IN_SYSCALLS.code: "it may wait by polling without a pause",
    BUSY_WITHOUT_SYSCALLS.code: "system calls do not separate work from a loop",
}
_NO_TIME = "how long it has been in that call is unknown"


def _doubts(kind: Kind, sure: Confidence) -> tuple[str, ...]:
    if sure == "high":
        return ()
    return (_NO_TIME,) if sure == "low" else (_DOUBTS[kind.code],)


def _told(trace: SyscallTrace, kind: Kind, sure: Confidence, says: str, *evidence: str) -> Finding:
    """A finding about one thread; `says` follows its name."""
    where = trace.target if kind is WAITS_IN_SYSCALL else ""
    return Finding(
        id="",
        code=kind.code,
        role="observation",
        confidence=sure,
        confidence_reasons=_doubts(kind, sure),
        summary=f"{trace.name} {says}",
        subjects=_subjects(trace, where),
        evidence=evidence,
        alternatives=kind.alternatives,
        actions=kind.actions,
    )


def _call(trace: SyscallTrace) -> str:
    """The call that it is in, and on what."""
    name = printable(trace.waiting.split("(", 1)[0])
    return name + (f" on {printable(trace.target, 120)}" if trace.target else "")


def _waits(trace: SyscallTrace, seconds: float) -> Finding:
    says = f"waited in {_call(trace)} all {seconds:.0f} s."
    return _told(trace, WAITS_IN_SYSCALL, "high", says, printable(trace.waiting, 200))


def _waits_now(trace: SyscallTrace, silent_s: float) -> Finding:
    """It came to this call and did not come out of it."""
    says = f"has been in {_call(trace)} for the last {silent_s:.0f} s."
    return _told(trace, WAITS_IN_SYSCALL, "medium", says, printable(trace.waiting, 200))


def _stands(trace: SyscallTrace) -> Finding:
    """Its last call had not ended when strace did; for how long is not known."""
    says = f"was in {_call(trace)} when strace ended."
    return _told(trace, WAITS_IN_SYSCALL, "low", says, printable(trace.waiting, 200), UNSTAMPED)


def _waits_again(trace: SyscallTrace, call: tuple[str, str], share: float) -> Finding:
    """It comes out of its call and goes in again, as loops with a time-out do."""
    name, target = call
    on = f" on {printable(target, 120)}" if target else ""
    number = trace.counts[name]
    says = f"spent {min(share, 1):.0%} of the time in {name}{on}, in {number} calls."
    found = _told(trace, WAITS_IN_SYSCALL, "medium", says, f"most often: {_most(trace)}")
    return replace(found, subjects=_subjects(trace, target))


def _spins(trace: SyscallTrace, rate: float) -> Finding:
    says = f"spins: {rate:,.0f} system calls a second."
    return _told(trace, SPINS_IN_SYSCALLS, "medium", says, f"most often: {_most(trace)}")


def _busy(trace: SyscallTrace, total: int, seconds: float) -> Finding:
    share = min(trace.awake_s / seconds, 1)
    says = (
        f"was awake {share:.0%} of the time and made {total:,} system calls: it computes, or spins "
        "in its own code."
    )
    rests_on = f"On a core, or waiting for one: {trace.awake_s:.1f} s of {seconds:.0f} s."
    return _told(trace, BUSY_WITHOUT_SYSCALLS, "medium", says, rests_on)


def _most(trace: SyscallTrace) -> str:
    return ", ".join(f"{name} {count}" for name, count in trace.counts.most_common(4))
