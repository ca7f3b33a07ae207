"""Keeps a series of looks at each process of a run, for `unhang.activity` to say what it does.

All of it is seen from outside; the lines come from the heartbeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from unhang.activity.estimate import Activity, estimate
from unhang.activity.looks import ProcessLook
from unhang.activity.series import Series
from unhang.activity.thresholds import WINDOW_LOOKS
from unhang.collect.processes import ProcessTable
from unhang.record.contact.beatlayout import TICK_S
from unhang.run.watching.procs import work_of

LEAST_APART_NS: Final = int(TICK_S / 2 * 1e9)
"""The recorder notes a line once a tick, and more often where it is asked for something."""


@dataclass(slots=True)
class _Seen:
    """What was seen of a process since its job last got on."""

    series: Series = field(default_factory=Series)
    lines: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW_LOOKS))
    line_ns: int = 0
    below: frozenset[int] | None = None
    started: int = 0


@dataclass(slots=True)
class Movement:
    """Follows the processes of a run."""

    _seen: dict[int, _Seen] = field(default_factory=dict)

    def begin(self, pids: Iterable[int]) -> None:
        """The job got on: what these processes did until now tells nothing of what comes."""
        for pid in pids:
            self._seen.pop(pid, None)

    def passes(self, pid: int, line: int, at_ns: int) -> None:
        """A process was seen at a line, named by a number; 0 where that is unknown."""
        seen = self._seen.setdefault(pid, _Seen())
        if line and abs(at_ns - seen.line_ns) > LEAST_APART_NS:
            seen.lines.append(line)
            seen.line_ns = at_ns

    def lines(self, pid: int) -> tuple[int, int]:
        """How often a process was seen at a line lately, and at how many different ones."""
        seen = self._seen.get(pid, _Seen())
        return len(seen.lines), len(set(seen.lines))

    def looks(self, pid: int) -> tuple[ProcessLook, ...]:
        """The newest looks at a process, oldest first."""
        return tuple(self._seen.get(pid, _Seen()).series.looks)

    def disturbed(self, pids: Iterable[int]) -> None:
        """These processes were looked into, which stops them for a moment."""
        for pid in pids:
            self._seen.setdefault(pid, _Seen()).series = Series()

    def weigh(
        self, pid: int, table: ProcessTable, now_s: float, ours: int = 0, *, rpc: bool = False
    ) -> Activity:
        """What a process and all below it do, by one more look at it.

        What a thread of it that is `ours` does is left out, and of RPC the one that polls.
        """
        seen = self._seen.setdefault(pid, _Seen())
        below = frozenset(process.pid for process in table.below(pid))
        seen.started += len(below - (below if seen.below is None else seen.below))
        seen.below = below
        look = work_of(pid, table, now_s, ours, rpc=rpc)
        seen.series.looks.append(look._replace(started=seen.started))
        return estimate(seen.series, lines=len(set(seen.lines)))
