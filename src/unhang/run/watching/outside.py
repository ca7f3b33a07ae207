"""Ranks of this run that carry no recorder: found among the command's descendants.

Python started with -I, -E or -S skips the start-up hook, an emptied environment has no path to it,
and --no-arm leaves it out. A process counts as such a rank only where its environment names a rank,
libtorch is loaded in it, and no recorder is to be expected any more; why there is none is said.
Its calls are not seen, so CPU time and bytes are all that tells that it moves.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from unhang.collect.processes import Process, ProcessTable, read_processes
from unhang.collect.ranks import Target, find_ranks
from unhang.rankenv import attempt_of
from unhang.record import HOOK_DIR
from unhang.record.contact.marks import Mark
from unhang.room import text_of

UNARMED = "unarmed"
"""The phase of a process without a recorder."""

SEARCH_S, _LONGEST_S = 2.0, 60.0
"""Between two searches: reading all of /proc is not free, and jobs rarely get ranks later."""

_PATIENCE_S = 2 * _LONGEST_S
"""For so long a process that has the hook may take from loading libtorch to being armed."""

_TAKES_A_VALUE = ("-X", "-W", "--check-hash-based-pycs")


@dataclass(frozen=True, slots=True)
class Unarmed:
    """A rank without a recorder: what stands in for its mark, and why it has none of its own."""

    mark: Mark
    rank: int
    why: str


@dataclass(slots=True)
class Outsiders:
    """Searches now and then; remembers what it has found.

    Attributes:
        child: The command's process.
        known: What was found, by pid and start.
    """

    job: str
    run: str
    child: int
    known: dict[tuple[int, int], Unarmed] = field(default_factory=dict)
    _seen_s: dict[tuple[int, int], float] = field(default_factory=dict)
    _next_s: float = 0.0
    _apart_s: float = SEARCH_S

    def search(self, marks: Iterable[Mark], now_s: float, *, anew: bool = False) -> list[Unarmed]:
        """All that were found so far, dead or alive; those that were armed in the meantime are not.

        Args:
            marks: Of this job's processes.
            now_s: A clock that never goes back.
            anew: Ranks have ended, others may follow: search as often as in the beginning.
        """
        marks = list(marks)
        if anew:
            self._apart_s, self._next_s = SEARCH_S, now_s
        if self.child and now_s >= self._next_s:
            self._next_s = now_s + self._apart_s
            self._apart_s = min(2 * self._apart_s, _LONGEST_S)
            self._find(marks, now_s)
        for mark in marks:
            self.known.pop((mark.pid, mark.start_ticks), None)
        return list(self.known.values())

    def _find(self, marks: list[Mark], now_s: float) -> None:
        below = ProcessTable.of(read_processes().below(self.child))
        for target in find_ranks(below, marks):
            process = target.process
            key = (process.pid, process.start_ticks)
            if target.how in ("", "mark") or key in self.known:
                continue
            if not _uses_torch(process.pid):
                continue
            since = self._seen_s.setdefault(key, now_s)
            why = why_unarmed(process, waited=now_s - since >= _PATIENCE_S)
            if why:
                self.known[key] = Unarmed(self._mark(target), target.rank, why)

    def _mark(self, target: Target) -> Mark:
        seen = seen_mark(
            self.job, self.run, target.process, UNARMED, target.rank, target.world_size
        )
        return replace(
            seen,
            role="rank",
            rank=target.rank,
            world_size=target.world_size or None,
            local_rank=target.local_rank if target.local_rank >= 0 else None,
            armed_ns=time.time_ns(),
        )


def seen_mark(job: str, run: str, process: Process, phase: str, rank: int, size: int) -> Mark:
    """What a recorder would have written, as far as it can be seen from outside."""
    return Mark(
        pid=process.pid,
        start_ticks=process.start_ticks,
        host=socket.gethostname(),
        uid=process.uid,
        job_id=job,
        run=run,
        attempt=attempt_of(process.environ or {}),
        phase=phase,
        env_rank=rank,
        told_size=size,
        command=process.command[:1000],
    )


def why_unarmed(process: Process, *, waited: bool) -> str:
    """Why a process that uses torch has no recorder; "" where it may still get one.

    Args:
        process: A Python process.
        waited: It has had torch for long enough.
    """
    option = next((word for word in _options(process.command) if _skips_the_hook(word)), "")
    if option:
        return f"python {option} skips the startup hook"
    environ = _environ(process.pid)
    if environ.get("UNHANG_ARM") == "0":
        return "UNHANG_ARM=0 switches the recorder off"
    if str(HOOK_DIR) not in environ.get("PYTHONPATH", "").split(os.pathsep):
        return "its PYTHONPATH lacks the startup hook"
    return "its startup hook did not arm it" if waited else ""


def _options(command: str) -> Iterator[str]:
    """Python's own options, before the script."""
    words = iter(command.split()[1:])
    for word in words:
        if not word.startswith("-") or word.startswith(("-c", "-m")):
            return
        yield word
        if word in _TAKES_A_VALUE:
            next(words, "")


def _skips_the_hook(option: str) -> bool:
    """Whether one of the letters is E, I or S; those behind X and W are values."""
    letters = option[1:].partition("X")[0].partition("W")[0]
    return not option.startswith("--") and any(letter in letters for letter in "EIS")


def _environ(pid: int) -> dict[str, str]:
    """What a process was started with; empty where it cannot be read."""
    pairs = (word.partition("=") for word in text_of(Path(f"/proc/{pid}/environ")).split("\0"))
    return {name: value for name, _, value in pairs}


def _uses_torch(pid: int) -> bool:
    return "/libtorch" in text_of(Path(f"/proc/{pid}/maps"))
