"""Processes of PID namespaces below this one: which number of ours each of them has.

A container may have its own numbers of processes: what a recorder says in it of itself names it
there. The kernel tells both numbers of all who are below (`NSpid` in /proc/PID/status). Inside a
container nothing can be seen of processes that are not in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")


class Named(NamedTuple):
    """What names a process for ever: its namespace, its number there, when it began (ticks)."""

    pid_ns: str
    pid: int
    start_ticks: int


class Numbers:
    """The numbers here of processes below, which are remembered when these have ended.

    Args:
        proc: Where the kernel tells of processes.
    """

    def __init__(self, proc: Path = _PROC) -> None:
        self.proc = proc
        self._known: dict[Named, int] = {}

    def of(self, named: Collection[Named]) -> dict[Named, int]:
        """Their numbers here; without those that were not seen while they lived."""
        wanted = set(named) - self._known.keys()
        if wanted:  # A mark is written by a living process: who is not found now never will be.
            self._known.update(dict.fromkeys(wanted, 0))
            self._known.update(self._search({each.pid_ns for each in wanted}))
        return {each: pid for each in named if (pid := self._known[each])}

    def _search(self, namespaces: Collection[str]) -> Iterator[tuple[Named, int]]:
        for path in self.proc.glob("[0-9]*"):
            namespace = pid_namespace(path.name, self.proc)
            if namespace in namespaces and (inner := self._inner(path)):
                yield Named(namespace, inner, start_ticks(path.name, self.proc)), int(path.name)

    def _inner(self, path: Path) -> int:
        """Its number in its own namespace, which is the last; 0 where nothing tells."""
        try:
            lines = (path / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return 0
        words = next((line.split() for line in lines if line.startswith("NSpid:")), ["0"])
        return int(words[-1]) if words[-1].isdecimal() else 0


def start_ticks(pid: int | str = "self", proc: Path = _PROC) -> int:
    """Start time of a process in clock ticks since boot; 0 where it cannot be read."""
    return int(next(iter(stat_words(pid, proc)[19:]), 0))


def stat_words(pid: int | str = "self", proc: Path = _PROC) -> list[str]:
    """What /proc/PID/stat says behind the command, from the state on; empty for no process."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def pid_namespace(pid: int | str = "self", proc: Path = _PROC) -> str:
    """The PID namespace of a process ("pid:[4026531836]"), or "" where it cannot be read."""
    try:
        return str((proc / str(pid) / "ns" / "pid").readlink())
    except OSError:
        return ""
