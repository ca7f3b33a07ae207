"""The processes of this node as /proc shows them, read once, without harm.

Every field may be missing: processes end while they are looked at, and those of other users hide
their environment. Nothing is signalled, traced or stopped here. Command lines come
without the secrets that can be recognised (`unhang.telltale`).
"""

from __future__ import annotations

import os
import platform
import re
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unhang.model import ProcessState
from unhang.rankenv import VARIABLES
from unhang.room import frozen_group, text_of
from unhang.telltale import harmless_command

PROC = Path("/proc")
MAX_ENVIRON = 1 << 20
MAX_COMMAND = 4_096

_PYTHON = re.compile(r"^(python|pypy|ipython|pt_main_thread)", re.IGNORECASE)
_TICKS = os.sysconf("SC_CLK_TCK")
_CLOCK_NANOSLEEP = {"x86_64": "230", "aarch64": "115"}
"""The number of that system call by machine, as /proc/PID/syscall has it (aarch64: not tried)."""
_TIMER_ABSTIME = 1
_SLEEP_WORDS = 4

_FREEZES = ("D", "get_signal", "do_freezer_trap")
"""The state of a process that version 1 of cgroups has frozen, whatever it waits in, and where one
stands that version 2 has (seen on Linux 6.18; do_freezer_trap where it is not inlined)."""

_TOLD = VARIABLES | {
    "NCCL_RAS_ADDR", "TORCH_WORKER_SERVER_SOCKET", "UNHANG_RUNTIME_DIR",
    "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCHELASTIC_ERROR_FILE", "XDG_CACHE_HOME", "HOME",
}  # fmt: skip
"""The variables that are kept: the others do not belong here, secrets above all."""


@dataclass(frozen=True, slots=True)
class Process(ProcessState):
    """One process at one moment.

    Attributes:
        start_ticks: When it began, in clock ticks since boot: with `pid` it names a process.
        uid: Its user; -1 where unknown.
        python: Whether its program is a Python interpreter.
        environ: The variables that tell ranks and jobs; None where it cannot be read.
    """

    pid: int
    ppid: int = 0
    start_ticks: int = 0
    uid: int = -1
    name: str = ""
    python: bool = False
    environ: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """All processes by id, with their children."""

    by_pid: Mapping[int, Process]
    children: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, processes: Iterable[Process]) -> ProcessTable:
        """Index processes by id and by parent."""
        by_pid = {process.pid: process for process in processes}
        children: dict[int, list[int]] = {}
        for process in by_pid.values():
            children.setdefault(process.ppid, []).append(process.pid)
        return cls(by_pid, {pid: tuple(sorted(below)) for pid, below in children.items()})

    def below(self, pid: int) -> Iterator[Process]:
        """A process and all its descendants, parents first."""
        todo, seen = [pid], set()
        while todo:
            current = todo.pop()
            if current in seen or current not in self.by_pid:
                continue
            seen.add(current)
            yield self.by_pid[current]
            todo.extend(reversed(self.children.get(current, ())))

    def above(self, pid: int) -> Iterator[Process]:
        """The ancestors of a process, nearest first."""
        seen = {pid}
        process = self.by_pid.get(pid)
        while process and process.ppid not in seen:
            seen.add(process.ppid)
            process = self.by_pid.get(process.ppid)
            if process:
                yield process


def read_processes(proc: Path = PROC) -> ProcessTable:
    """Read all processes that are there; those that end in the meantime are left out."""
    pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    found = (read_process(pid, proc) for pid in sorted(pids))
    return ProcessTable.of(process for process in found if process)


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """Read one process; None where there is none (any more)."""
    folder = proc / str(pid)
    name, _, rest = text_of(folder / "stat").rpartition(")")
    values = rest.split()
    try:
        state, ppid, start = values[0], int(values[1]), int(values[19])
        cpu_s = (int(values[11]) + int(values[12])) / _TICKS
    except (IndexError, ValueError):
        return None
    status = text_of(folder / "status")
    command = text_of(folder / "cmdline")[:MAX_COMMAND].rstrip("\0")
    tracer = max(_number(status, "TracerPid"), 0)
    channel = _wait_channel(folder)
    frozen = frozen_group(pid, proc) if {state, channel}.intersection(_FREEZES) else ""
    harmless = " ".join(harmless_command(command.split("\0")))
    return Process(
        pid=pid,
        ppid=ppid,
        start_ticks=start,
        uid=_number(status, "Uid"),
        state="T" if frozen else state,
        frozen=frozen,
        name=name.partition("(")[2],
        command=harmless,
        python=_is_python(folder, name.partition("(")[2], command),
        environ=_environ(folder),
        wait_channel=channel,
        cpu_s=cpu_s,
        tracer=tracer,
        tracer_name=text_of(proc / str(tracer) / "comm").strip() if tracer else "",
    )


def wakes_in_s(pid: int, proc: Path = PROC) -> float:
    """Seconds until the sleep of a process's main thread ends; -1 where it has none that tells.

    Python 3.11 and later sleep until a moment (clock_nanosleep(2) with TIMER_ABSTIME), which lies
    in their memory; earlier ones wait in select(2) for a while, and its rest is not to be seen.
    """
    words = text_of(proc / str(pid) / "syscall").split()
    if len(words) <= _SLEEP_WORDS or words[0] != _CLOCK_NANOSLEEP.get(platform.machine()):
        return -1.0
    clock, flags, address = (int(word, 16) for word in words[1:_SLEEP_WORDS])
    if flags != _TIMER_ABSTIME or clock not in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC):
        return -1.0
    try:
        with (proc / str(pid) / "mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            until: tuple[int, int] = struct.unpack("qq", memory.read(16))
    except (OSError, OverflowError, ValueError, struct.error):
        return -1.0
    return max(until[0] + until[1] / 1e9 - time.clock_gettime(clock), 0.0)


def _number(status: str, key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else -1


def _wait_channel(folder: Path) -> str:
    channel = text_of(folder / "wchan").strip()
    return "" if channel == "0" else channel


def _is_python(folder: Path, name: str, command: str) -> bool:
    try:
        program = (folder / "exe").readlink().name
    except OSError:  # another user's: its own words must do
        program = command.partition("\0")[0].rpartition("/")[2] or name
    return _PYTHON.match(program) is not None


def _environ(folder: Path) -> dict[str, str] | None:
    try:
        with (folder / "environ").open("rb") as file:
            raw = file.read(MAX_ENVIRON)
    except OSError:
        return None
    pairs = (item.partition("=") for item in raw.decode("utf-8", "replace").split("\0"))
    return {key: value for key, _, value in pairs if key in _TOLD}
