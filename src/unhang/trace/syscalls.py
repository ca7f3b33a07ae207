"""System calls by strace: what a process waits in, on which file or socket, and whether it spins.

strace names descriptors itself (`-yy`: paths, both ends of sockets) and says how long each call
took (`-T`). Nothing is injected. An attached process goes on when strace is ended; what strace
prints is read as it comes, so that long runs cost no memory.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from unhang.errors import InputError, ToolError, UsageError
from unhang.kinds import BUSY_WITHOUT_SYSCALLS, SPINS_IN_SYSCALLS, WAITS_IN_SYSCALL
from unhang.report import Finding, Report, Subject
from unhang.wording import printable

__all__ = [
    "Observed",
    "SyscallTrace",
    "judge_syscalls",
    "parse_strace",
    "trace_command",
    "trace_pid",
]

SPIN_PER_S = 2_000.0
"""More system calls a second than that are no work."""
BUSY = 0.8
"""Share of the time awake from which on a thread that makes few system calls is told."""
MOSTLY = 0.9
"""Share of the time in calls of one kind on one file that counts as waiting there."""
MAX_TARGETS = 10_000
PATIENCE_S = 10.0
"""For strace to let go of a process that does not answer."""

_LINE = re.compile(r"^(?:\[pid +)?(?P<pid>\d+)\]? +(?P<rest>.*)$")
_CALL = re.compile(r"^(?:<\.\.\. )?(?P<name>\w+)(?: resumed>|\()")
_DESCRIPTOR = re.compile(r"\((\d+)<((?:[^<>]|<[^<>]*>)*)>")
_WAITING = re.compile(r"(?:<unfinished \.\.\.>|<detached \.\.\.>)\s*$")
_TOOK = re.compile(r"<(?P<seconds>\d+\.\d+)>\s*$")


@dataclass(slots=True)
class SyscallTrace:
    """What one thread did: how often it made which call, and the call that it is still in.

    Attributes:
        counts: Finished calls by name.
        spent: Seconds in finished calls, by name and what they were about.
        waiting: Text of the unfinished call, or "".
        target: The file or socket that the unfinished call is about, as strace names it, or "".
        awake_s: Seconds in which it used or wanted a core; -1.0 where unknown.
    """

    pid: int
    counts: Counter[str] = field(default_factory=Counter)
    spent: Counter[tuple[str, str]] = field(default_factory=Counter)
    waiting: str = ""
    target: str = ""
    awake_s: float = -1.0

    def feed(self, rest: str, name: str) -> None:
        """Take one line of this thread, without its process id."""
        named = _DESCRIPTOR.search(rest)
        if _WAITING.search(rest) or " = " not in rest:
            self.waiting = _WAITING.sub("", rest).strip(" ,")
            self.target = named[2] if named else ""
            return
        self.counts[name] += 1
        took = _TOOK.search(rest)
        key = (name, named[2] if named else self.target)
        if took and (key in self.spent or len(self.spent) < MAX_TARGETS):
            self.spent[key] += float(took["seconds"])  # type: ignore[assignment]  # a Counter adds floats as well
        self.waiting = self.target = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """What strace saw: one trace a thread, the main thread first, and for how long.

    Attributes:
        host: Where it was seen.
        exit_code: Of the command that was started, as shells say it; None where one was attached.
    """

    traces: tuple[SyscallTrace, ...]
    seconds: float
    host: str = ""
    exit_code: int | None = None


def trace_pid(pid: int, seconds: float) -> Observed:
    """Attach strace to a process and its threads for some seconds.

    Raises:
        UsageError: If there is no such process.
        ToolError: If strace is not installed or may not attach.
        InputError: If the process ended at once, so that nothing was seen.
    """
    strace = _strace()
    if not Path(f"/proc/{pid}").exists():
        raise UsageError(
            f"there is no process {pid}", "unhang stacks lists the ranks of this node."
        )
    before = _awake_seconds(pid)
    command = [strace, "-f", "-yy", "-T", "-s", "64", "-q", "-p", str(pid)]
    with subprocess.Popen(  # noqa: S603 - a list of words
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        timers = (
            threading.Timer(seconds, process.send_signal, [signal.SIGINT]),
            threading.Timer(seconds + PATIENCE_S, process.kill),
        )
        for timer in timers:
            timer.start()
        try:
            lines = (line.decode("utf-8", "replace") for line in process.stderr or ())
            traces, rest = _read(lines, pid)
        finally:
            for timer in timers:
                timer.cancel()
            with suppress(ProcessLookupError):
                process.kill()
    if "Operation not permitted" in rest or "ptrace" in rest:
        raise ToolError(
            f"strace may not attach to process {pid}",
            "Run as its owner or as root; kernel.yama.ptrace_scope must be 0; in a container add "
            "the capability SYS_PTRACE.",
        )
    for tid, awake in _awake_seconds(pid).items():
        traces.setdefault(tid, SyscallTrace(tid)).awake_s = awake - before.get(tid, 0.0)
    if not traces:
        raise InputError(f"process {pid} ended before strace saw anything", "Is it still there?")
    return Observed(_in_order(traces, pid), seconds, socket.gethostname())


def trace_command(command: Sequence[str]) -> Observed:
    """Run a command under strace from its start to its end, with all that it starts.

    Raises:
        ToolError: If strace is not installed, or the command cannot be started.
    """
    strace = _strace()
    if shutil.which(command[0]) is None:
        raise ToolError(f"{command[0]} cannot be started: no such program", "Check its name.")
    readable, writable = os.pipe()
    words = [strace, "-f", "-yy", "-T", "-s", "64", "-q", "-o", f"/dev/fd/{writable}", "--"]
    begin = time.monotonic()
    with subprocess.Popen([*words, *command], pass_fds=(writable,)) as process:  # noqa: S603 - what the user typed
        os.close(writable)
        with open(readable, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - a descriptor
            traces, first = _interrupted(lines)
        code = process.wait()
    seconds = time.monotonic() - begin
    code = 128 - code if code < 0 else code
    return Observed(_in_order(traces, first), seconds, socket.gethostname(), code)


def _interrupted(lines: Iterable[str]) -> tuple[dict[int, SyscallTrace], int]:
    """Read to the end, also past Ctrl-C: the command got it too, and decides."""
    traces: dict[int, SyscallTrace] = {}
    iterator = iter(lines)
    while True:
        try:
            for line in iterator:
                _take(line, -1, traces)
            return traces, next(iter(traces), -1)
        except KeyboardInterrupt:  # noqa: PERF203 - rounds of Ctrl-C, not of lines
            continue


def _strace() -> str:
    found = shutil.which("strace")
    if found is None:
        raise ToolError("strace is not installed", "apt-get install strace")
    return found


def _awake_seconds(pid: int) -> dict[int, float]:
    """How long each thread of a process has used a core or waited for one so far.

    From /proc/PID/task/TID/schedstat: time on a core and time in the run queue, in ns. The sum does
    not depend on how busy the machine is. Nothing where the process ended or the kernel has none.
    """
    awake = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            running, queued = path.read_text().split()[:2]
        except (OSError, ValueError):
            continue
        awake[int(path.parent.name)] = (int(running) + int(queued)) / 1e9
    return awake


def _read(lines: Iterable[str], main_pid: int) -> tuple[dict[int, SyscallTrace], str]:
    """The traces, and the first lines that are none."""
    traces: dict[int, SyscallTrace] = {}
    rest: list[str] = []
    for line in lines:
        if not _take(line, main_pid, traces) and len(rest) < 4:  # noqa: PLR2004 - enough for an error
            rest.append(line)
    return traces, "".join(rest)


def _take(line: str, main_pid: int, traces: dict[int, SyscallTrace]) -> bool:
    found = _LINE.match(line)
    pid, rest = (int(found["pid"]), found["rest"]) if found else (main_pid, line)
    call = _CALL.match(rest)
    if call:
        traces.setdefault(pid, SyscallTrace(pid)).feed(rest, call["name"])
    return call is not None


def _in_order(traces: dict[int, SyscallTrace], main_pid: int) -> tuple[SyscallTrace, ...]:
    return tuple(sorted(traces.values(), key=lambda t: (t.pid != main_pid, t.pid)))


def parse_strace(text: str, main_pid: int) -> tuple[SyscallTrace, ...]:
    """Read what strace printed, one trace a thread, the main thread first."""
    return _in_order(_read(text.splitlines(), main_pid)[0], main_pid)


def judge_syscalls(observed: Observed) -> Report:
    """Say of each thread whether it waits, spins or works; the main thread comes first."""
    seconds = max(observed.seconds, 0.1)
    found = [f for trace in observed.traces if (f := _finding(trace, seconds)) is not None]
    findings = tuple(
        replace(finding, id=f"f{i + 1}", subjects=_on_host(finding.subjects, observed.host))
        for i, finding in enumerate(found)
    )
    total = sum(sum(trace.counts.values()) for trace in observed.traces)
    quiet = f"It made {total} system calls in {seconds:.0f} s and neither waits nor spins."
    if not total:
        quiet = f"It made no system call in {seconds:.0f} s: what it does was not seen."
    return Report(
        status="insufficient" if findings or not total else "healthy",
        summary=findings[0].summary if findings else quiet,
        findings=findings,
    )


def _finding(trace: SyscallTrace, seconds: float) -> Finding | None:
    total = sum(trace.counts.values())
    if total / seconds > SPIN_PER_S:
        return _spins(trace, total / seconds)
    if trace.awake_s / seconds > BUSY:
        return _busy(trace, total, seconds)
    if trace.waiting and not total:
        return _waits(trace, seconds)
    mostly = trace.spent.most_common(1)
    if mostly and mostly[0][1] / seconds > MOSTLY:
        return _waits_again(trace, mostly[0][0], mostly[0][1] / seconds)
    return None


def _subjects(trace: SyscallTrace, target: str = "") -> tuple[Subject, ...]:
    thread = Subject("process", f"thread {trace.pid}", pid=trace.pid, role="victim")
    return (thread, Subject("file", printable(target, 120))) if target else (thread,)


def _on_host(subjects: Sequence[Subject], host: str) -> tuple[Subject, ...]:
    """Processes with their host, without which a process id says little elsewhere."""
    return tuple(
        replace(subject, host=host or None) if subject.kind == "process" else subject
        for subject in subjects
    )


def _waits(trace: SyscallTrace, seconds: float) -> Finding:
    name = trace.waiting.split("(", 1)[0]
    on = f" on {printable(trace.target, 120)}" if trace.target else ""
    return Finding(
        id="",
        code=WAITS_IN_SYSCALL.code,
        role="observation",
        confidence="high",
        summary=f"Thread {trace.pid} waited in {printable(name)}{on} all {seconds:.0f} s.",
        subjects=_subjects(trace, trace.target),
        evidence=(printable(trace.waiting, 200),),
        actions=WAITS_IN_SYSCALL.actions,
    )


def _waits_again(trace: SyscallTrace, call: tuple[str, str], share: float) -> Finding:
    """It comes out of its call and goes in again, as loops with a time-out do."""
    name, target = call
    on = f" on {printable(target, 120)}" if target else ""
    return Finding(
        id="",
        code=WAITS_IN_SYSCALL.code,
        role="observation",
        confidence="medium",
        summary=(
            f"Thread {trace.pid} spent {min(share, 1):.0%} of the time in {name}{on}, in "
            f"{trace.counts[name]} calls."
        ),
        subjects=_subjects(trace, target),
        evidence=(f"most often: {_most(trace)}",),
        actions=WAITS_IN_SYSCALL.actions,
    )


def _spins(trace: SyscallTrace, rate: float) -> Finding:
    return Finding(
        id="",
        code=SPINS_IN_SYSCALLS.code,
        role="observation",
        confidence="medium",
        summary=f"Thread {trace.pid} spins: {rate:,.0f} system calls a second.",
        subjects=_subjects(trace),
        evidence=(f"most often: {_most(trace)}",),
        actions=SPINS_IN_SYSCALLS.actions,
    )


def _busy(trace: SyscallTrace, total: int, seconds: float) -> Finding:
    share = min(trace.awake_s / seconds, 1)
    return Finding(
        id="",
        code=BUSY_WITHOUT_SYSCALLS.code,
        role="observation",
        confidence="medium",
        summary=(
            f"Thread {trace.pid} was awake {share:.0%} of the time and made {total:,} system "
            "calls: it computes, or spins in its own code."
        ),
        subjects=_subjects(trace),
        evidence=(f"On a core, or waiting for one: {trace.awake_s:.1f} s of {seconds:.0f} s.",),
        alternatives=BUSY_WITHOUT_SYSCALLS.alternatives,
        actions=BUSY_WITHOUT_SYSCALLS.actions,
    )


def _most(trace: SyscallTrace) -> str:
    return ", ".join(f"{name} {count}" for name, count in trace.counts.most_common(4))
