"""Processes that will be ranks and have not begun to set up process groups.

Nothing in them speaks for them yet: their environment names their rank, or they are children of
what started their peers, or of a peer, and so many as are missing. A process found so is a guess
until it has joined a group, and is looked at like the others when these wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unhang.collect.processes import Process, ProcessTable, read_processes
from unhang.collect.ranks import find_ranks, is_launcher
from unhang.rankenv import number_of
from unhang.record.contact.marks import Mark, alive
from unhang.run.watching.outside import SEARCH_S, seen_mark

STARTING = "starting"
BEFORE = (STARTING, "imported")
"""Phases of a process that has not entered `init_process_group`."""

TRACKERS = ("resource_tracker", "forkserver import")


@dataclass(frozen=True, slots=True)
class Newborn:
    """A process that is about to become a rank: which, and what stands in for its mark."""

    mark: Mark
    rank: int


@dataclass(slots=True)
class Newborns:
    """Searches as long as a rank is missing.

    Attributes:
        child: The command's process.
    """

    job: str
    run: str
    child: int
    _found: list[Newborn] = field(default_factory=list)
    _next_s: float = 0.0

    def search(self, marks: Sequence[Mark], now_s: float) -> list[Newborn]:
        """Those that are there now, without those that have come further in the meantime.

        Args:
            marks: Of this run.
            now_s: A clock that never goes back.
        """
        come = [m for m in marks if m.rank is not None or m.phase == "initialising"]
        size = max((m.world_size or m.told_size for m in marks), default=0)
        if not self.child or size < 2 or any(m.rank is not None for m in marks):  # noqa: PLR2004
            self._found = []
        elif now_s >= self._next_s:
            self._next_s = now_s + SEARCH_S
            below = ProcessTable.of(read_processes().below(self.child))
            self._found = self._among(below, marks, come, size)
        keys = {(m.pid, m.start_ticks) for m in come}
        return [each for each in self._found if (each.mark.pid, each.mark.start_ticks) not in keys]

    def _among(
        self, below: ProcessTable, marks: Sequence[Mark], come: Sequence[Mark], size: int
    ) -> list[Newborn]:
        own = {mark.pid: mark for mark in marks if alive(mark)}
        named = {
            m.env_rank: m
            for m in own.values()
            if m.phase == "imported" and _may_be_rank(m) and not _is_of_rank(m, below, own)
        }
        for target in find_ranks(below, marks):
            if target.role == "rank" and target.how != "mark" and target.process.pid not in own:
                named[target.rank] = self._mark(target.process, target.rank, size)
        here = [m.env_rank for m in come]
        missing = [rank for rank in range(size) if rank not in named and rank not in here]
        known = {mark.pid for mark in come}
        starters = {below.by_pid[pid].ppid for pid in known & below.by_pid.keys()}
        young = [
            process
            for process in self._children(below, {*starters, *known}, known)
            if (mark := own.get(process.pid)) is None or _may_be_told(mark)
        ]
        siblings = [process for process in young if process.ppid in starters]
        children = {number_of(_environ(p, "LOCAL_RANK")): p for p in young if p.ppid in known}
        if missing and len(siblings) == len(missing):
            found = dict(zip(missing, siblings, strict=True))
        else:  # the first rank may start the others of its node itself, as Lightning's does
            found = {rank: children[rank] for rank in missing if rank in children}
        for rank, process in found.items():
            named[rank] = self._mark(process, rank, size, own.get(process.pid))
        there = {m.env_rank for m in come if m.pid in own}
        return [Newborn(m, r) for r, m in named.items() if r is not None and r not in there]

    def _children(
        self, below: ProcessTable, parents: Collection[int], known: Collection[int]
    ) -> list[Process]:
        """Python processes that these have started and that have not come, oldest first."""
        found = [
            process
            for process in below.by_pid.values()
            if process.ppid in parents and process.python and process.pid not in known
            if not (is_launcher(process) or any(word in process.command for word in TRACKERS))
        ]
        return sorted(found, key=lambda process: (process.start_ticks, process.pid))

    def _mark(self, process: Process, rank: int, size: int, own: Mark | None = None) -> Mark:
        """Its own mark with the rank, or what one would say, as far as it is seen from outside."""
        if own is not None:
            return replace(own, env_rank=rank, told_size=size)
        return seen_mark(self.job, self.run, process, STARTING, rank, size)


def _environ(process: Process, name: str) -> str:
    return (process.environ or {}).get(name, "")


def _may_be_told(mark: Mark) -> bool:
    """Whether it has imported torch, and its rank will come by other ways than its environment."""
    return mark.phase == "imported" and mark.env_rank is None and mark.role != "launcher"


def _may_be_rank(mark: Mark) -> bool:
    return mark.env_rank is not None and mark.role == "unknown"


def _is_of_rank(mark: Mark, below: ProcessTable, marks: Mapping[int, Mark]) -> bool:
    """Whether a process above it may become the same rank: torch's compile workers inherit it."""
    above = (marks.get(process.pid) for process in below.above(mark.pid))
    return any(m is not None and _may_be_rank(m) and m.env_rank == mark.env_rank for m in above)
