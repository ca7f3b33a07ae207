"""System calls by strace: of a process that runs, of a command, or what strace wrote before.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from unhang.errors import InputError, ToolError
from unhang.model import Note
from unhang.room import awake_of
from unhang.trace.strace_lines import StraceReader, SyscallTrace

__all__ = [
    "UNSTAMPED",
    "Observed",
    "SyscallTrace",
    "read_strace",
    "strace_files",
    "trace_command",
    "trace_pid",
]

MAX_PROCESSES = 64
PATIENCE_S = 10.0
"""For strace to let go of a process that does not answer."""

_DIGITS = 9
_HOW = ("-f", "-yy", "-T", "-tt", "-s", "64")
UNSTAMPED = "without time stamps (strace -tt) the trace does not show how long a call took"


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
        [strace, *_HOW, *targets],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        enough = threading.Timer(seconds, process.send_signal, [signal.SIGINT])
        too_much = threading.Timer(seconds + PATIENCE_S, process.kill)
        too_much.start()
        try:
            lines = (line.decode("utf-8", "replace") for line in process.stderr or ())
            reader.read(_kept(_once_attached(lines, enough.start), keep))
        finally:
            enough.cancel()
            too_much.cancel()
            with suppress(ProcessLookupError):
                process.kill()
    traces, rest = reader.traces, "".join(reader.rest)
    if "Operation not permitted" in rest or "ptrace" in rest:
        raise ToolError(f"strace may not attach: {refused[0]}", refused[1])
    for each in pids:
        for tid, awake in awake_of(each).items():
            traces.setdefault(tid, SyscallTrace(tid)).awake_s = sum(awake) - before.get(tid, 0.0)
    if not traces:
        raise InputError(
            f"process {pid} ended before strace saw anything", "Check that it still exists."
        )
    return Observed(_in_order(traces, pid), seconds, socket.gethostname())


def _once_attached(lines: Iterable[str], begin: Callable[[], None]) -> Iterator[str]:
    """Call `begin` when strace has said its first word: on a busy machine that takes seconds."""
    lines = iter(lines)
    for line in lines:
        begin()
        yield line
        break
    yield from lines


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
    notes = () if seconds else (Note("info", str(paths[0]), UNSTAMPED),)
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
