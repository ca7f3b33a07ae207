"""What cores tell: which process crashed, which ended after another, which was alive.

A crash in native code is a cause. An abort by a watchdog is a consequence. A core of a living
process shows one moment and proves no hang: that is said, and no rank is blamed.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from unhang.cores.reading import CoreReading
from unhang.kinds import Kind
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.report import Finding, Job, RankStatus, Report, Site, Subject, SubjectRole
from unhang.stacks.meaning import main_thread, meaning_of
from unhang.stacks.ownership import user_frame
from unhang.wording import rank_phrase

CORE_CRASH: Final = Kind(
    "UH796",
    "core-crash",
    "failure",
    "A core file shows a crash in native code.",
)

CORE_ABORT: Final = Kind(
    "UH797",
    "core-abort",
    "failure",
    "A core file shows a process that aborted.",
    role="consequence",
)

CORE_ALIVE: Final = Kind(
    "UH798",
    "core-alive",
    "program",
    "A core file shows where a living process stood.",
    role="observation",
)

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS}
# Frames that show who called abort(), with what it means.
_ABORTERS = (
    ("HeartbeatMonitor", "torch's heartbeat monitor ended the process after an earlier hang"),
    ("ncclHeartbeatMonitor", "torch's heartbeat monitor ended the process after an earlier hang"),
    ("ProcessGroupNCCL::Watchdog", "torch's NCCL watchdog ended the process after a timeout"),
    ("ncclCommWatchdog", "torch's NCCL watchdog ended the process after a timeout"),
    ("handleException", "an error of a collective was raised again and not caught"),
    ("EnforceNotMet", "Gloo refused a call, usually because sizes differ between ranks"),
    ("std::rethrow_exception", "an error of another thread was rethrown and not caught"),
    ("std::terminate", "a C++ exception was not caught"),
    ("__cxa_throw", "a C++ exception was not caught"),
    ("fatal_error", "the interpreter found a fatal error"),
)
_INNERMOST_NOISE = ("raise", "abort", "pthread_kill", "__pthread_kill", "gsignal", "__restore_rt")
_MOST = 8


def judge_cores(readings: Sequence[CoreReading]) -> Report:
    """The verdict over all cores of one incident."""
    found = _folded([_told_by(reading) for reading in readings])
    causes = [finding for finding in found if finding.role == "cause"]
    reason = tuple(finding.id for finding in causes)
    findings = tuple(replace(f, caused_by=reason) if f.role == "consequence" else f for f in found)
    culprits = {rank for finding in causes for rank in finding.culprits}
    ranks = sorted({r.facts.rank for r in readings if r.facts.rank >= 0})
    return Report(
        status="problem" if causes else "insufficient",
        summary=causes[0].summary if causes else _no_cause(findings),
        job=Job(ranks_seen=len(ranks), world_size=_world(readings)),
        findings=findings,
        ranks=tuple(
            RankStatus(rank, "culprit" if rank in culprits else "unknown", stack_id=f"s{rank}")
            for rank in ranks
        ),
        stacks={_stack_id(r): _faulting(r).frames for r in readings if r.sample.threads},
        notes=tuple(note for reading in readings for note in reading.notes),
    )


def sample_of(reading: CoreReading) -> tuple[ProcessSample | None, str]:
    """A core as one look at its process, for a verdict over more than cores.

    Returns:
        The look, its faulting thread as the main one; None, and why, where a core proves nothing
        about its rank: it has none, or it ended itself, which is a consequence of something else.
    """
    facts = reading.facts
    if facts.rank < 0:
        return None, "skipped: the core does not show its rank"
    if facts.signal == signal.SIGABRT:
        return None, f"skipped: rank {facts.rank} aborted, as an effect of another failure"
    crashed = facts.signal in _CRASHES
    thread = replace(_faulting(reading), is_main=True) if crashed else None
    return replace(
        reading.sample,
        threads=(thread,) if thread and thread.frames else reading.sample.threads,
        exit_status=128 + facts.signal if crashed else None,
    ), ""


def _world(readings: Sequence[CoreReading]) -> int:
    return max((reading.facts.world_size for reading in readings), default=0)


def _no_cause(findings: Sequence[Finding]) -> str:
    if any(f.role == "consequence" for f in findings):
        return "These cores come from processes that aborted: the cause lies earlier."
    return f"{findings[0].summary} One moment does not show whether it moved."


@dataclass(frozen=True, slots=True)
class _Told:
    """What one core tells of its process.

    Attributes:
        does: What is said of it, after its name.
        how: What is seen in its core.
    """

    reading: CoreReading
    kind: Kind
    does: str
    how: str
    alternatives: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()

    @property
    def site(self) -> Frame | None:
        """Where it stood in the user's code."""
        return user_frame(_faulting(self.reading).frames)


def _told_by(reading: CoreReading) -> _Told:
    number = reading.facts.signal
    if number in _CRASHES:
        return _crash(reading)
    if number == signal.SIGABRT:
        return _abort(reading)
    return _alive(reading)


def _crash(reading: CoreReading) -> _Told:
    thread = _faulting(reading)
    native = thread.frames[0].function if thread.frames else "unknown code"
    name = signal.Signals(reading.facts.signal).name
    site = user_frame(thread.frames)
    place = f" below {site.function} at {site.file}:{site.line}" if site else ""
    return _Told(
        reading,
        CORE_CRASH,
        does=f"crashed with {name} in {native}{place}",
        how=f"{name} in thread {thread.name or thread.tid}",
        alternatives=("Memory that another library corrupted earlier also shows up here.",),
        actions=(
            f"unhang core --full {reading.path} shows all threads.",
            "Update or rebuild the extension of the innermost frames.",
        ),
    )


def _abort(reading: CoreReading) -> _Told:
    threads = reading.sample.threads
    frames = [frame for thread in (_faulting(reading), *threads) for frame in thread.frames]
    why = next((text for part, text in _ABORTERS if any(part in f.function for f in frames)), "")
    return _Told(
        reading,
        CORE_ABORT,
        does="ended itself with SIGABRT" + (f": {why}" if why else ""),
        how="SIGABRT",
        actions=("Look for the first failure of any rank: unhang logs, unhang diagnose.",),
    )


def _alive(reading: CoreReading) -> _Told:
    meaning = meaning_of(reading.sample)
    where = f" at {meaning.site.file}:{meaning.site.line}" if meaning.site else ""
    number = reading.facts.signal
    return _Told(
        reading,
        CORE_ALIVE,
        does=f"was {meaning.says}{where}",
        how=f"It was ended by {_signal_name(number)}." if number else "It was alive (gcore).",
        actions=("Sample the living process twice with unhang stacks to see whether it moves.",),
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _finding(group: Sequence[_Told]) -> Finding:
    """What cores of one kind at one place tell, over their ranks."""
    first = group[0]
    ranks = tuple(sorted({t.reading.facts.rank for t in group if t.reading.facts.rank >= 0}))
    blamed = first.kind.role == "cause"
    role: SubjectRole = "culprit" if blamed else "victim"
    pids = (told.reading.facts.pid for told in group)
    return Finding(
        id="",
        code=first.kind.code,
        role=first.kind.role,
        confidence="high" if first.reading.sample.threads else "medium",
        confidence_reasons=() if first.reading.sample.threads else ("the core gave no stack",),
        summary=f"{_who(group, ranks)} {first.does}.",
        culprits=ranks if blamed else (),
        victims=() if blamed else ranks,
        subjects=tuple(Subject("process", f"pid {pid}", pid=pid, role=role) for pid in pids),
        sites=_sites(first, ranks, role),
        evidence=tuple(f"{told.reading.path}: {told.how}" for told in group[:_MOST]),
        alternatives=first.alternatives,
        actions=first.actions,
    )


def _sites(told: _Told, ranks: tuple[int, ...], role: SubjectRole) -> tuple[Site, ...]:
    if (at := told.site) is None:
        return ()
    return (Site(ranks, role, at.file, at.line, at.function, _stack_id(told.reading)),)


def _stack_id(reading: CoreReading) -> str:
    rank = reading.facts.rank
    return f"s{rank}" if rank >= 0 else f"p{reading.facts.pid}"


def _faulting(reading: CoreReading) -> ThreadStack:
    """The thread that got the signal, without the frames of the signal itself."""
    threads = reading.sample.threads
    tid = reading.facts.faulting_tid
    chosen = next((thread for thread in threads if thread.tid == tid), None)
    chosen = chosen or main_thread(reading.sample) or (threads[0] if threads else None)
    if chosen is None:
        return ThreadStack("", tid, ())
    frames = chosen.frames
    while len(frames) > 1 and frames[0].function.split("@")[0].strip() in _INNERMOST_NOISE:
        frames = frames[1:]
    return replace(chosen, frames=frames)


def _who(group: Sequence[_Told], ranks: Sequence[int]) -> str:
    if ranks:
        return rank_phrase(ranks).capitalize()
    if len(group) > 1:
        return f"{len(group)} processes"
    facts = group[0].reading.facts
    return f"Process {facts.pid} ({facts.program or 'unknown program'})"


def _folded(told: Sequence[_Told]) -> list[Finding]:
    """What cores tell, those of one kind at one place together; causes first."""
    groups: dict[tuple[object, ...], list[_Told]] = {}
    for number, each in enumerate(told):
        site = each.site
        place = (site.file, site.line) if site else (number,)
        groups.setdefault((each.kind.code, *place), []).append(each)
    order = {"cause": 0, "consequence": 1, "observation": 2}
    found = sorted(map(_finding, groups.values()), key=lambda f: order[f.role])
    return [replace(finding, id=f"f{i + 1}") for i, finding in enumerate(found)]
