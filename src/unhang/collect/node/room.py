"""How much of a node a process may use, and how often it was kept from it: cgroups and /proc.

Limits of containers and schedulers are cgroups, of version 1 or 2; both are read. All figures count
from the start of the group or process, so that two readings tell what happened between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Room", "kept_from", "room_of"]

THROTTLED = 0.25
"""Share of scheduling periods in which it used up its share, from which on it is told."""
FEWEST_PERIODS = 3
NEAR_LIMIT = 0.95
_UNLIMITED = 1 << 60
_MOST_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class Room:
    """One reading; 0 where nothing tells or nothing limits.

    Attributes:
        cores: Cores' worth of time that its group may use.
        periods, throttled: Scheduling periods of its group so far, and those in which it had to
            stop before their end.
        memory_used, memory_limit: Bytes of its group; the limit is the lower of `memory.high` and
            `memory.max`.
        pushed_back: How often its group met that limit.
        oom_kills: Processes of its group that were killed for memory.
        swapped: Bytes of the process itself that are swapped out.
    """

    cores: float = 0.0
    periods: int = 0
    throttled: int = 0
    memory_used: int = 0
    memory_limit: int = 0
    pushed_back: int = 0
    oom_kills: int = 0
    swapped: int = 0


def room_of(pid: int | str, proc: Path = Path("/proc")) -> Room:
    """Read what limits a process ("self" is this one)."""
    groups = dict(_groups(_text(proc / str(pid) / "cgroup")))
    unified, mounts = groups.get("", ""), _mounts(_text(proc / "self" / "mounts"))
    cpu, memory = _place(mounts, groups, "cpu", unified), _place(mounts, groups, "memory", unified)
    stat = _pairs(cpu / "cpu.stat")
    events = _pairs(memory / "memory.events")
    limit = min(
        _number(memory / "memory.max"),
        _number(memory / "memory.high"),
        _number(memory / "memory.limit_in_bytes"),
    )
    used = _number(memory / "memory.current", _number(memory / "memory.usage_in_bytes", 0))
    pushed = events.get("high", 0) + events.get("max", 0) + _number(memory / "memory.failcnt", 0)
    status = _pairs(proc / str(pid) / "status")
    return Room(
        cores=_cores(cpu),
        periods=stat.get("nr_periods", 0),
        throttled=stat.get("nr_throttled", 0),
        memory_used=used,
        memory_limit=limit if limit < _UNLIMITED else 0,
        pushed_back=pushed,
        oom_kills=events.get("oom_kill", _pairs(memory / "memory.oom_control").get("oom_kill", 0)),
        swapped=status.get("VmSwap:", 0) * 1024,
    )


def kept_from(before: Room, after: Room) -> Iterator[tuple[str, float, str]]:
    """What a process was kept from between two readings: ("cpu" or "memory", share, sentence)."""
    periods = after.periods - before.periods
    throttled = after.throttled - before.throttled
    if periods >= FEWEST_PERIODS and throttled >= THROTTLED * periods:
        told = f"{throttled:,} of {periods:,} periods ({throttled / periods:.0%})"
        sentence = f"its cgroup may use {after.cores:g} cores, and had to stop in {told}"
        yield "cpu", throttled / periods, sentence
    used, limit = after.memory_used, after.memory_limit
    pushed = after.pushed_back - before.pushed_back
    if limit and used >= NEAR_LIMIT * limit and pushed > 0:
        told = f"{used >> 20:,} of {limit >> 20:,} MB"
        yield (
            "memory",
            used / limit,
            f"its cgroup uses {told}, and was pushed back {pushed:,} times",
        )


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


def _place(mounts: dict[str, str], groups: dict[str, str], name: str, unified: str) -> Path:
    """The folder of a process's group. In a container its path may be the host's: then the root."""
    mount, path = (mounts[name], groups[name]) if name in mounts and name in groups else (
        mounts.get("", "/sys/fs/cgroup"), unified
    )  # fmt: skip
    folder = Path(mount + path)
    return folder if folder.is_dir() else Path(mount)


def _cores(folder: Path) -> float:
    words = _text(folder / "cpu.max").split()
    if len(words) != 2:  # noqa: PLR2004 - quota and period
        words = [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return 0.0
    return int(words[0]) / int(words[1])


def _number(path: Path, default: int = _UNLIMITED) -> int:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else default


def _pairs(path: Path) -> dict[str, int]:
    """The lines "name number" of a file."""
    words = (line.split() for line in _text(path).splitlines())
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_TEXT)
    except OSError:
        return ""
