"""What a node has and how short it is: cores, memory, swap, huge pages, pressure, clock."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from unhang.room import pairs_of, pids_of, text_of

WINDOW_S = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TIMEX = struct.Struct("@Illlli")
"""The beginning of struct timex (adjtimex(2)): modes, offset, freq, maxerror, esterror, status."""
_TIMEX_BYTES = 256
_STA_UNSYNC = 0x40


@dataclass(frozen=True, slots=True)
class Machine:
    """One node at one moment; 0 where nothing tells.

    Attributes:
        cores, usable: Cores of the node, and those that this process may be put on.
        memory_total, memory_available, page_cache, swap_total, swap_used: Bytes.
        swapped_in: Bytes a second that are read back from swap.
        cpu_stalled, memory_stalled, io_stalled: Share of the last minute in which a process waited
            for it (PSI); -1 where the kernel does not tell.
        huge_pages, huge_free, huge_bytes: Pages that are set aside, those of them that no process
            uses, and the size of one.
        tasks, tasks_limit: Of the cgroup: threads that it has, and may have.
        synchronised: Whether the kernel knows its clock to be set by a service; None: not known.
        clock_error_s: How far off it may be at most.
    """

    cores: int = 0
    usable: int = 0
    memory_total: int = 0
    memory_available: int = 0
    page_cache: int = 0
    swap_total: int = 0
    swap_used: int = 0
    swapped_in: float = 0.0
    cpu_stalled: float = -1.0
    memory_stalled: float = -1.0
    io_stalled: float = -1.0
    huge_pages: int = 0
    huge_free: int = 0
    huge_bytes: int = 0
    tasks: int = 0
    tasks_limit: int = 0
    synchronised: bool | None = None
    clock_error_s: float = 0.0


def machine_now(proc: Path = Path("/proc")) -> Machine:
    """Read what this node has; takes half a second."""
    before, began_s = pairs_of(proc / "vmstat"), time.monotonic()
    time.sleep(WINDOW_S)
    after, seconds = pairs_of(proc / "vmstat"), time.monotonic() - began_s
    memory = {name: value * 1024 for name, value in pairs_of(proc / "meminfo").items()}
    counted = pairs_of(proc / "meminfo")
    tasks, most = pids_of("self", proc)
    known, error_s = _clock()
    return Machine(
        cores=os.cpu_count() or 0,
        usable=len(os.sched_getaffinity(0)),
        memory_total=memory.get("MemTotal:", 0),
        memory_available=memory.get("MemAvailable:", 0),
        page_cache=memory.get("Cached:", 0),
        swap_total=memory.get("SwapTotal:", 0),
        swap_used=memory.get("SwapTotal:", 0) - memory.get("SwapFree:", 0),
        swapped_in=round((after.get("pswpin", 0) - before.get("pswpin", 0)) * _PAGE / seconds, 1),
        cpu_stalled=_last_minute(proc / "pressure" / "cpu"),
        memory_stalled=_last_minute(proc / "pressure" / "memory"),
        io_stalled=_last_minute(proc / "pressure" / "io"),
        huge_pages=counted.get("HugePages_Total:", 0),
        huge_free=counted.get("HugePages_Free:", 0),
        huge_bytes=memory.get("Hugepagesize:", 0),
        tasks=tasks,
        tasks_limit=most,
        synchronised=known,
        clock_error_s=error_s,
    )


def _last_minute(path: Path) -> float:
    """Share of the last minute in which a process waited, of a file of PSI."""
    words = text_of(path).partition("avg60=")[2].split()
    return round(float(words[0]) / 100, 4) if words else -1.0


def _clock() -> tuple[bool | None, float]:
    """Whether a service sets the kernel's clock, and its greatest error in seconds (adjtimex)."""
    room = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes is 0: nothing is set
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(room)
    except (OSError, AttributeError):
        return None, 0.0
    if state < 0:
        return None, 0.0
    _, _, _, most_us, _, status = _TIMEX.unpack_from(room)
    return not status & _STA_UNSYNC, most_us / 1e6
