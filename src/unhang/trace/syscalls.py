"""System calls by strace: what a process waits in, on which file or socket, and whether it spins.

strace names descriptors itself (`-yy`: paths, both ends of sockets) and says how long each call
took (`-T`). Nothing is injected. An attached process goes on when strace is ended; what strace
prints is read as it comes, so that long runs cost no memory.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TextIO

from unhang.errors import InputError, ToolError
from unhang.kinds import BUSY_WITHOUT_SYSCALLS, SPINS_IN_SYSCALLS, WAITS_IN_SYSCALL, Kind
from unhang.model import Note
from unhang.report import Confidence, Finding, Report, Subject
from unhang.room import awake_of
from unhang.trace.strace_lines import StraceReader, SyscallTrace
from unhang.wording import count_of, printable

__all__ = [
    "Observed",
    "SyscallTrace",
    "judge_syscalls",
    "parse_strace",
    "read_strace",
    "strace_files",
    "trace_command",
    "trace_pid",
]

SPIN_PER_S = 2_000.0
"""More system calls a second than that are no work, if they are alike."""
ALIKE = 0.8
"""Share of all calls that the three commonest are, in a thread that goes round."""
BUSY = 0.8
"""Share of the time awake from which on a thread that makes few system calls is told."""
MOSTLY = 0.9
"""Share of the time in calls of one kind on one file that counts as waiting there."""
HELD = 0.2
"""Share of the time in one unfinished call from which on it is told."""
FEW_PER_S = 200.0
"""Fewer system calls a second than that leave a busy thread to its own code."""
MAX_PROCESSES = 64
PATIENCE_S = 10.0
"""For strace to let go of a process that does not answer."""

_DIGITS = 9
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
_HOW = ("-f", "-yy", "-T", "-tt", "-s", "64")
_UNSTAMPED = "without time stamps (strace -tt) nothing tells how long a call took"


@dataclass(frozen=True, slots=True)
class Observed:
    """What strace saw: one trace a thread, the main thread first, and for how long.

    Attributes:
        host: Where it was seen.
        exit_code: Of the command that was started, as shells say it; None where one was attached.
        notes: What was seen in part only.
    """

    traces: tuple[SyscallTrace, ...]
    seconds: float
    host: str = ""
    exit_code: int | None = None
    notes: tuple[Note, ...] = ()


def trace_pid(
    pids: Sequence[int],
    seconds: float,
    keep: TextIO | None = None,
    refused: tuple[str, str] = ("the kernel refuses", ""),
) -> Observed:
    """Attach strace to processes and their threads for some seconds.

    Args:
        pids: The process that is asked about, then those below it.
        seconds: For how long.
        keep: Gets what strace prints, as it is.
        refused: Why it may not attach, where it may not, and what to do.

    Raises:
        ToolError: If strace is not installed or may not attach.
        InputError: If the process ended at once, so that nothing was seen.
    """
    strace, pid, pids = _strace(), pids[0], pids[:MAX_PROCESSES]
    before = {tid: sum(awake) for each in pids for tid, awake in awake_of(each).items()}
    targets = [word for each in pids for word in ("-p", str(each))]
    reader = StraceReader(pid)
    with subprocess.Popen(  # noqa: S603 - a list of words
        [strace, *_HOW, "-q", *targets],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        timers = (
            threading.Timer(seconds, process.send_signal, [signal.SIGINT]),
            threading.Timer(seconds + PATIENCE_S, process.kill),
        )
        for timer in timers:
            timer.start()
        try:
            lines = (line.decode("utf-8", "replace") for line in process.stderr or ())
            reader.read(_kept(lines, keep))
        finally:
            for timer in timers:
                timer.cancel()
            with suppress(ProcessLookupError):
                process.kill()
    traces, rest = reader.traces, "".join(reader.rest)
    if "Operation not permitted" in rest or "ptrace" in rest:
        raise ToolError(f"strace may not attach: {refused[0]}", refused[1])
    for each in pids:
        for tid, awake in awake_of(each).items():
            traces.setdefault(tid, SyscallTrace(tid)).awake_s = sum(awake) - before.get(tid, 0.0)
    if not traces:
        raise InputError(f"process {pid} ended before strace saw anything", "Is it still there?")
    return Observed(_in_order(traces, pid), seconds, socket.gethostname())


def trace_command(command: Sequence[str], keep: TextIO | None = None) -> Observed:
    """Run a command under strace from its start to its end, with all that it starts.

    Args:
        command: What to run.
        keep: Gets what strace prints, as it is.

    Raises:
        ToolError: If strace is not installed, or the command cannot be started.
    """
    strace = _strace()
    if shutil.which(command[0]) is None:
        raise ToolError(f"{command[0]} cannot be started: no such program", "Check its name.")
    readable, writable = os.pipe()
    words = [strace, *_HOW, "-q", "-o", f"/dev/fd/{writable}", "--"]
    begin = time.monotonic()
    with subprocess.Popen([*words, *command], pass_fds=(writable,)) as process:  # noqa: S603 - what the user typed
        os.close(writable)
        with open(readable, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - a descriptor
            reader = _interrupted(_kept(lines, keep))
        code = process.wait()
    seconds = time.monotonic() - begin
    code = 128 - code if code < 0 else code
    first = next(iter(reader.traces), -1)
    return Observed(_in_order(reader.traces, first), seconds, socket.gethostname(), code)


def read_strace(paths: Sequence[Path]) -> Observed:
    """Read what strace wrote before: one file, or those of `-ff`, which end in process ids.

    Raises:
        InputError: If a file cannot be read, or none holds a system call.
    """
    traces: dict[int, SyscallTrace] = {}
    readers = []
    for path in paths:
        suffix = path.suffix[1:]
        reader = StraceReader(int(suffix) if suffix.isdecimal() and len(suffix) <= _DIGITS else -1)
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                reader.read(lines)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        traces |= reader.traces
        readers.append(reader)
    if not traces or not any(reader.known for reader in readers):
        raise InputError(
            f"{paths[0]} holds no system call", "Give what strace -f -tt -T -o FILE wrote."
        )
    seconds = max(reader.seconds for reader in readers)
    notes = () if seconds else (Note("info", str(paths[0]), _UNSTAMPED),)
    return Observed(_in_order(traces, next(iter(traces))), seconds, notes=notes)


def strace_files(name: str) -> list[Path]:
    """The files that a name means: itself, those of `strace -ff -o NAME`, or stdin for "-"."""
    path = Path(name)
    if name == "-":
        return [Path("/dev/stdin")]
    if path.is_file():
        return [path]
    inside = path.iterdir() if path.is_dir() else path.parent.glob(f"{glob.escape(path.name)}.*")
    return sorted(found for found in inside if found.is_file() and found.name[-1:].isdecimal())


def _kept(lines: Iterable[str], keep: TextIO | None) -> Iterator[str]:
    for line in lines:
        if keep is not None:
            keep.write(line)
        yield line


def _interrupted(lines: Iterable[str]) -> StraceReader:
    """Read to the end, also past Ctrl-C: the command got it too, and decides."""
    reader = StraceReader()
    iterator = iter(lines)
    while True:
        try:
            reader.read(iterator)
        except KeyboardInterrupt:
            continue
        return reader


def _strace() -> str:
    found = shutil.which("strace")
    if found is None:
        raise ToolError("strace is not installed", "apt-get install strace")
    return found


def _in_order(traces: dict[int, SyscallTrace], main_pid: int) -> tuple[SyscallTrace, ...]:
    return tuple(sorted(traces.values(), key=lambda t: (t.pid != main_pid, t.pid)))


def parse_strace(text: str, main_pid: int) -> tuple[SyscallTrace, ...]:
    """Read what strace printed, one trace a thread, the main thread first."""
    reader = StraceReader(main_pid)
    reader.read(text.splitlines())
    return _in_order(reader.traces, main_pid)


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
        return f"It made no system call in {seconds:.0f} s: what it does was not seen."
    made = count_of(total, "system call")
    if first and first.ended:
        return f"It made {made} and {first.ended}: it neither waits nor spins."
    if not seconds:
        return f"It made {made}, without time stamps: how long it waits is not known."
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


def _told(trace: SyscallTrace, kind: Kind, sure: Confidence, says: str, *evidence: str) -> Finding:
    """A finding about one thread; `says` follows its name."""
    where = trace.target if kind is WAITS_IN_SYSCALL else ""
    return Finding(
        id="",
        code=kind.code,
        role="observation",
        confidence=sure,
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
    return _told(trace, WAITS_IN_SYSCALL, "low", says, printable(trace.waiting, 200), _UNSTAMPED)


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
