"""How much room a process has: what cgroups allow it, what it wanted and did not get.

Read from /proc and the cgroup trees of both versions, once before and once after a while; what lies
between two readings is a `Shortage`. Nothing is judged here, and nothing is asked of a process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from unhang.model import MemoryKill, Room, Shortage

PROC = Path("/proc")
_UNLIMITED = 1 << 60
_MOST_TEXT = 4 << 20
_MOST_THREADS = 512
_MOSTLY = 0.5
_MAJOR_FAULTS = 9
"""Position of `majflt` behind the command in /proc/PID/stat (see proc(5), field 12)."""


@dataclass(frozen=True, slots=True)
class RoomReading:
    """A process at one moment.

    Attributes:
        threads: Of each thread, how long it was on a core and how long it wanted one, in seconds.
        usable: Cores that it may be put on.
        faults: Pages that it had to read from a disk so far.
        memory_stalled_s: How long a process has waited for memory so far.
        swapped_in: Bytes that the node has read back from swap so far.
    """

    pid: int
    time_s: float
    room: Room
    threads: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    usable: int = 0
    faults: int = 0
    memory_stalled_s: float = 0.0
    swapped_in: int = 0


class MemoryGroups(NamedTuple):
    """The cgroups that count and limit the memory of a process.

    Attributes:
        own: The one that it is in; it counts who is killed, whichever limit is the reason.
        tightest: Of that and those above it, the one that may use the least.
    """

    own: Path
    tightest: Path

    @property
    def limit(self) -> int:
        """Bytes that it may use; 0 where nothing limits it."""
        limit = _limit(self.tightest)
        return limit if limit < _UNLIMITED else 0

    @property
    def most_used(self) -> int:
        """The most bytes that it ever used; 0 where nothing tells."""
        peaks = ("memory.peak", "memory.max_usage_in_bytes")
        return max(_number(self.tightest / name, 0) for name in peaks)


def memory_groups_of(pid: int, proc: Path = PROC) -> MemoryGroups:
    """The groups of a process that lives: one that has ended is in none."""
    groups = list(_groups_of(pid, proc, "memory"))
    return MemoryGroups(groups[0], min(groups, key=_limit))


def killed_in(group: Path) -> int:
    """How many processes of a memory cgroup were killed for lack of memory so far."""
    for name in ("memory.events.local", "memory.events", "memory.oom_control"):
        if (kills := pairs_of(group / name).get("oom_kill")) is not None:
            return kills
    return 0


def killed_beside(pid: int, proc: Path = PROC) -> MemoryKill | None:
    """What the kernel killed in the memory cgroup of a process that lives; None for nothing."""
    groups = memory_groups_of(pid, proc)
    kills = killed_in(groups.own)
    return MemoryKill(kills, 0, groups.limit, groups.most_used) if kills else None


def reading_of(pid: int, proc: Path = PROC) -> RoomReading:
    """Read what a process has used and lacked so far; zeros of one that is gone."""
    memory = _memory_place(pid, proc)
    return RoomReading(
        pid=pid,
        time_s=time.monotonic(),
        room=room_of(pid, proc),
        threads=awake_of(pid, proc),
        usable=_usable(pid),
        faults=_faults(proc / str(pid) / "stat"),
        memory_stalled_s=pressure_of("memory", proc, memory),
        swapped_in=pairs_of(proc / "vmstat").get("pswpin", 0) * os.sysconf("SC_PAGE_SIZE"),
    )


def short_of(before: RoomReading, after: RoomReading) -> Shortage:
    """What a process lacked between two readings."""
    seconds = max(after.time_s - before.time_s, 0.0)
    main = _gained(before, after, after.pid)
    awake = [sum(_gained(before, after, tid)) for tid in after.threads if tid in before.threads]
    then, now = before.room, after.room
    counted = ("periods", "throttled", "pushed_back")
    grown = {name: max(getattr(now, name) - getattr(then, name), 0) for name in counted}
    if (then.cores, then.memory_limit) != (now.cores, now.memory_limit):
        grown = dict.fromkeys(counted, 0)  # another cgroup, whose counts began elsewhere
    stalled_s = after.memory_stalled_s - before.memory_stalled_s
    return Shortage(
        seconds=round(seconds, 3),
        ran_s=round(main[0], 3),
        queued_s=round(main[1], 3),
        threads=sum(each > _MOSTLY * seconds for each in awake),
        usable=after.usable,
        **{**asdict(now), **grown},
        memory_stalled=round(min(max(stalled_s / seconds, 0.0), 1.0), 3) if seconds else 0.0,
        faults=max(after.faults - before.faults, 0),
        swapped_in=max(after.swapped_in - before.swapped_in, 0),
    )


def _gained(before: RoomReading, after: RoomReading, tid: int) -> tuple[float, float]:
    now, then = after.threads.get(tid), before.threads.get(tid)
    if now is None or then is None:
        return 0.0, 0.0
    return max(now[0] - then[0], 0.0), max(now[1] - then[1], 0.0)


# ------------------------------------------------------------------ of a process


def awake_of(pid: int, proc: Path = PROC) -> dict[int, tuple[float, float]]:
    """How long each thread of a process was on a core so far, and how long it wanted one.

    From /proc/PID/task/TID/schedstat: time on a core and time in the run queue, in ns; a thread
    whose group is throttled stands in the queue. Their sum does not depend on how busy the machine
    is. Nothing where the process ended or the kernel has none.
    """
    awake: dict[int, tuple[float, float]] = {}
    for path in (proc / str(pid) / "task").glob("*/schedstat"):
        words = text_of(path).split()
        if len(words) > 1 and words[0].isdecimal() and words[1].isdecimal():
            awake[int(path.parent.name)] = int(words[0]) / 1e9, int(words[1]) / 1e9
        if len(awake) >= _MOST_THREADS:
            break
    return awake


def _usable(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return 0


def _faults(path: Path) -> int:
    words = text_of(path).rpartition(")")[2].split()
    return int(words[_MAJOR_FAULTS]) if len(words) > _MAJOR_FAULTS else 0


def room_of(pid: int | str, proc: Path = PROC) -> Room:
    """Read what limits a process ("self" is this one)."""
    cpu, memory = _cpu_place(pid, proc), _memory_place(pid, proc)
    own = next(_groups_of(pid, proc, "memory"))
    stat, events = pairs_of(cpu / "cpu.stat"), pairs_of(memory / "memory.events")
    limit = _limit(memory)
    used = _number(memory / "memory.current", _number(memory / "memory.usage_in_bytes", 0))
    pushed = events.get("high", 0) + events.get("max", 0) + _number(memory / "memory.failcnt", 0)
    status = pairs_of(proc / str(pid) / "status")
    return Room(
        cores=_cores(cpu),
        periods=stat.get("nr_periods", 0),
        throttled=stat.get("nr_throttled", 0),
        memory_used=used,
        memory_held=_held(memory),
        memory_limit=limit if limit < _UNLIMITED else 0,
        pushed_back=pushed,
        oom_kills=max(killed_in(own), events.get("oom_kill", 0)),
        swapped=status.get("VmSwap:", 0) * 1024,
    )


def _held(folder: Path) -> int:
    """Bytes of a group that no reclaim gives back without swap: of programs, and shared ones."""
    stat = pairs_of(folder / "memory.stat")
    if "anon" in stat:
        return stat["anon"] + stat.get("shmem", 0)
    return stat.get("total_rss", 0) + stat.get("total_shmem", 0)


# ------------------------------------------------------------------ of its groups


def _cpu_place(pid: int | str, proc: Path) -> Path:
    """The group, of those that a process is in, that may use the fewest cores; else its own."""
    groups = list(_groups_of(pid, proc, "cpu"))
    limited = [group for group in groups if _cores(group)]
    return min(limited, key=_cores, default=groups[0])


def _memory_place(pid: int | str, proc: Path) -> Path:
    """The group, of those that a process is in, that may use the least memory; else its own."""
    return min(_groups_of(pid, proc, "memory"), key=_limit)


def _groups_of(pid: int | str, proc: Path, controller: str) -> Iterator[Path]:
    """The folder of a process's group, then those of the groups that it is in.

    In a container the group's path may be the host's: then there is only the root.
    """
    groups = dict(_groups(text_of(proc / str(pid) / "cgroup")))
    mounts = _mounts(text_of(proc / "self" / "mounts"))
    own = controller if controller in mounts and controller in groups else ""
    top = Path(mounts.get(own, "/sys/fs/cgroup"))
    folder = Path(f"{top}{groups.get(own, '')}")
    folder = folder if folder.is_dir() else top
    yield folder
    while folder != top and top in folder.parents:
        folder = folder.parent
        yield folder


def frozen_group(pid: int | str, proc: Path = PROC) -> str:
    """The folder of a process's cgroup where that is frozen, of either version; "" where not."""
    for controller in ("freezer", ""):
        group = next(_groups_of(pid, proc, controller))
        freezes = text_of(group / "freezer.state").startswith(("FROZEN", "FREEZING"))
        if freezes or pairs_of(group / "cgroup.events").get("frozen"):
            return str(group)
    return ""


def pids_of(pid: int | str, proc: Path = PROC) -> tuple[int, int]:
    """How many threads a process's group has, and may have; zeros where nothing limits it."""
    groups = [g for g in _groups_of(pid, proc, "pids") if _number(g / "pids.max") < _UNLIMITED]
    tightest = min(groups, key=lambda g: _number(g / "pids.max"), default=None)
    if tightest is None:
        return 0, 0
    return _number(tightest / "pids.current", 0), _number(tightest / "pids.max")


def _groups(text: str) -> Iterator[tuple[str, str]]:
    """Controller -> path, of /proc/PID/cgroup; "" is the unified hierarchy (version 2)."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(",") if number != "0" else [""]:
            yield name, path


def _mounts(text: str) -> dict[str, str]:
    """Controller -> where its hierarchy is mounted; "" is the unified one."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 3 and words[2] == "cgroup2":  # noqa: PLR2004 - device, place, type, options
            found.setdefault("", words[1])
        elif len(words) > 3 and words[2] == "cgroup":  # noqa: PLR2004 - the same
            for option in words[3].split(","):
                found.setdefault(option, words[1])
    return found


def _cores(folder: Path) -> float:
    words = text_of(folder / "cpu.max").split()
    if len(words) != 2:  # noqa: PLR2004 - quota and period
        words = [text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return 0.0
    return int(words[0]) / int(words[1])


def _limit(folder: Path) -> int:
    names = ("memory.max", "memory.high", "memory.limit_in_bytes")
    return min(_number(folder / name) for name in names)


def pressure_of(what: str, proc: Path = PROC, group: Path | None = None) -> float:
    """Seconds in which a process has waited for `what` so far: in a group, or else on the node.

    From the line "some" of pressure stall information (psi); 0 where the kernel has none.
    """
    text = text_of(group / f"{what}.pressure") if group else ""
    text = text or text_of(proc / "pressure" / what)
    total = text.partition("\n")[0].rpartition("total=")[2].strip()
    return int(total) / 1e6 if text.startswith("some ") and total.isdecimal() else 0.0


# ------------------------------------------------------------------ files


def _number(path: Path, default: int = _UNLIMITED) -> int:
    text = text_of(path).strip()
    return int(text) if text.isdecimal() else default


def pairs_of(path: Path) -> dict[str, int]:
    """The lines "name number" of a file; none of what cannot be read."""
    words = (line.split() for line in text_of(path).splitlines())
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdecimal()}


def text_of(path: Path, most: int = _MOST_TEXT) -> str:
    """The beginning of a file; "" where it is not there, or another user's."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""
