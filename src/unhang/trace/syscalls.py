"""System calls by strace: what a process waits in, on which file or socket, and whether it spins.

strace names descriptors itself (`-yy`: paths, both ends of sockets). Nothing is injected and the
traced process goes on; strace is ended after the time that was asked for.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from unhang.errors import InputError, ToolError, UsageError
from unhang.report import Finding, Report, Subject
from unhang.wording import printable

__all__ = ["SyscallTrace", "judge_syscalls", "parse_strace", "trace_pid"]

SPIN_PER_S = 2_000.0
_LINE = re.compile(r"^(?:\[pid +)?(?P<pid>\d+)\]? +(?P<rest>.*)$")
_CALL = re.compile(r"^(?:<\.\.\. )?(?P<name>\w+)(?: resumed>|\()")
_DESCRIPTOR = re.compile(r"\((\d+)<((?:[^<>]|<[^<>]*>)*)>")
_WAITING = re.compile(r"(?:<unfinished \.\.\.>|<detached \.\.\.>)\s*$")


@dataclass(slots=True)
class SyscallTrace:
    """What one thread did: how often it made which call, and the call that it is still in.

    Attributes:
        waiting: Text of the unfinished call, or "".
        target: The file or socket that the unfinished call is about, as strace names it, or "".
    """

    pid: int
    counts: Counter[str] = field(default_factory=Counter)
    waiting: str = ""
    target: str = ""


def trace_pid(pid: int, seconds: float) -> str:
    """Attach strace to a process and its threads for some seconds; returns its output.

    Raises:
        UsageError: If there is no such process.
        ToolError: If strace is not installed or may not attach.
    """
    strace = shutil.which("strace")
    if strace is None:
        raise ToolError("strace is not installed", "apt-get install strace")
    if not Path(f"/proc/{pid}").exists():
        raise UsageError(
            f"there is no process {pid}", "unhang stacks lists the ranks of this node."
        )
    command = [strace, "-f", "-yy", "-s", "64", "-q", "-p", str(pid)]
    with subprocess.Popen(  # noqa: S603 - a list of words
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            _, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=10)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
    text = errors.decode("utf-8", "replace")
    if "Operation not permitted" in text or "ptrace" in text.split("\n", 1)[0]:
        raise ToolError(
            f"strace may not attach to process {pid}",
            "Run as its owner or as root; kernel.yama.ptrace_scope must be 0; in a container add "
            "the capability SYS_PTRACE.",
        )
    return text


def parse_strace(text: str, main_pid: int) -> list[SyscallTrace]:
    """Read strace's output, one trace a thread, the main thread first.

    Raises:
        InputError: If no line is a system call.
    """
    traces: dict[int, SyscallTrace] = {}
    for raw in text.splitlines():
        found = _LINE.match(raw)
        pid, rest = (int(found["pid"]), found["rest"]) if found else (main_pid, raw)
        call = _CALL.match(rest)
        if not call:
            continue
        trace = traces.setdefault(pid, SyscallTrace(pid))
        if _WAITING.search(rest) or " = " not in rest:
            trace.waiting = _WAITING.sub("", rest).strip(" ,")
            named = _DESCRIPTOR.search(rest)
            trace.target = named[2] if named else ""
        else:
            trace.counts[call["name"]] += 1
            trace.waiting = trace.target = ""
    if not traces:
        raise InputError("strace saw no system call", "A longer time may help: --seconds 30")
    return sorted(traces.values(), key=lambda t: (t.pid != main_pid, t.pid))


def judge_syscalls(traces: Sequence[SyscallTrace], seconds: float) -> Report:
    """Say of each thread whether it waits, spins or works; the main thread comes first."""
    findings: list[Finding] = []
    for trace in traces:
        total = sum(trace.counts.values())
        if total / max(seconds, 0.1) > SPIN_PER_S:
            findings.append(_spins(len(findings), trace, total / max(seconds, 0.1)))
        elif trace.waiting and not total:
            findings.append(_waits(len(findings), trace, seconds))
    if findings:
        summary = findings[0].summary
    else:
        total = sum(sum(trace.counts.values()) for trace in traces)
        summary = f"It made {total} system calls in {seconds:.0f} s and neither waits nor spins."
    return Report(
        status="insufficient" if findings else "healthy",
        summary=summary,
        findings=tuple(findings),
    )


def _thread(trace: SyscallTrace) -> Subject:
    return Subject("process", f"thread {trace.pid}", pid=trace.pid, role="victim")


def _waits(index: int, trace: SyscallTrace, seconds: float) -> Finding:
    name = trace.waiting.split("(", 1)[0]
    on = f" on {printable(trace.target, 120)}" if trace.target else ""
    file = (Subject("file", printable(trace.target, 120)),) if trace.target else ()
    return Finding(
        id=f"f{index + 1}",
        code="UH604",
        role="observation",
        confidence="high",
        summary=f"Thread {trace.pid} waited in {name}{on} all {seconds:.0f} s.",
        subjects=(_thread(trace), *file),
        evidence=(printable(trace.waiting, 200),),
        actions=("unhang stacks --pid shows which line of the program that is.",),
    )


def _spins(index: int, trace: SyscallTrace, rate: float) -> Finding:
    most = ", ".join(f"{name} {count}" for name, count in trace.counts.most_common(4))
    return Finding(
        id=f"f{index + 1}",
        code="UH605",
        role="observation",
        confidence="medium",
        summary=f"Thread {trace.pid} spins: {rate:.0f} system calls a second.",
        subjects=(_thread(trace),),
        evidence=(f"most often: {most}",),
        actions=("unhang stacks --pid shows which line of the program that is.",),
    )
