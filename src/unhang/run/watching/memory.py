"""Whether the kernel killed a rank for memory: by the counter of its cgroup, around its end.

The kernel counts a kill before it sends the signal, and the process may take seconds to go. So an
end is compared with a count that is some seconds old, and no older: what was killed long before has
nothing to do with it. Kernel logs say more, and mostly no user may read them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from unhang.model import MemoryKill
from unhang.room import PROC, MemoryGroups, killed_in, memory_groups_of

TURN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Followed:
    """A process, its groups, and the count of its own one, one and two turns ago."""

    groups: MemoryGroups
    older: int
    newer: int


@dataclass(slots=True)
class MemoryCounts:
    """Counts of kills in the memory cgroups of the processes of a run."""

    proc: Path = PROC
    _followed: dict[int, _Followed] = field(default_factory=dict)
    _turned_s: float = 0.0

    def follow(self, pids: Collection[int], now_s: float) -> None:
        """Look at the counts of those that live; the others are forgotten."""
        turns = now_s - self._turned_s >= TURN_S
        self._turned_s = now_s if turns else self._turned_s
        counts: dict[Path, int] = {}
        followed = {}
        for pid in pids:
            groups = memory_groups_of(pid, self.proc)
            known = self._followed.get(pid)
            if known is not None and groups.own in known.groups.own.parents:
                groups = known.groups  # Who is about to end has left its group for the root.
            if known is None or known.groups.own != groups.own:
                count = counts.setdefault(groups.own, killed_in(groups.own))
                known = _Followed(groups, count, count)
            elif turns:
                count = counts.setdefault(groups.own, killed_in(groups.own))
                known = _Followed(groups, known.newer, count)
            followed[pid] = known
        self._followed = followed

    def kills_at_end(self, pids: Collection[int]) -> dict[int, MemoryKill]:
        """What was killed for memory as these processes ended; nothing of those without a kill."""
        ended = [(pid, known) for pid in pids if (known := self._followed.get(pid)) is not None]
        found = {}
        for pid, known in ended:
            kills = killed_in(known.groups.own) - known.older
            if kills > 0:
                alike = sum(other.groups.own == known.groups.own for _, other in ended)
                groups = known.groups
                found[pid] = MemoryKill(kills, alike, groups.limit, groups.most_used)
        self._explained(found)
        return found

    def _explained(self, found: dict[int, MemoryKill]) -> None:
        """A kill explains one end, and not a later one of the same group."""
        groups = {self._followed[pid].groups.own for pid, kill in found.items() if kill.is_certain}
        for pid, known in self._followed.items():
            if pid not in found and known.groups.own in groups:
                count = killed_in(known.groups.own)
                self._followed[pid] = _Followed(known.groups, count, count)
