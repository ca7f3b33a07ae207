"""Tells what a process does between two looks: nothing, something, or work that gets on.

CPU time alone is no work: whoever spins in a loop, or waits with a busy poll, has as much of it.
Work reads or writes, starts processes, or comes past one line after another. Who prints now and
then, as one that tries again does, does not stand still either. All of it is seen from outside; the
lines come from the heartbeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from unhang.collect.processes import Process, ProcessTable
from unhang.model import BUSY_BYTES_PER_S, BUSY_CORES, FEW_LINES
from unhang.run.watching.procs import WorkDone, work_of

__all__ = ["Doing", "Movement"]

LOOKS: Final = 30
"""So many of the newest looks count, so that a monitor's burst is no work of a rank that hangs; for
so long one that stops seems to work."""

LEAST_APART_NS: Final = 500_000_000
"""The recorder notes a line once a second, and more often where it is asked for something."""

AGAIN: Final = 2
"""Who prints, or goes on, in that many of these looks does so again and again."""

SLEEPS, LEAST_LOOKS = 8, 3
"""Of so many of the newest looks, and no fewer than the latter, none may see a sleeper gone on."""

TURN_S, TURN_CORES = 0.000_5, 0.004
"""Who goes on for so long each time that it has waited does something in turns. Of polls of files,
queues, stores and HTTP servers none took more than 0.25 ms a turn; a small batch takes 1 ms."""

RARE_TURN_S, RARE_TURNS, RARE_LOOKS = 0.001_5, 2, 20
"""The same where it waits for seconds each time, by so many turns in so many of the newest looks.
Caches are cold then: polls took 0.2 to 0.5 ms, with 2,000 files to list or lines of JSON to read
1.2 ms; a batch of an evaluation took 2.6 ms and more."""

HELPED_CORES: Final = 0.02
"""Processes that were waited for while others used all cores, and slept in between, had 4 % of one;
monitors of a job are assumed to need less than this."""

STARVED_TURNS: Final = 1
"""Whoever sleeps no more often in these looks, and runs, is kept from running more."""

STARTS: Final = 10
"""A compilation starts processes in that many of these looks; a monitor starts one now and then."""


class Doing(NamedTuple):
    """What a process does, as far as it is seen from outside.

    Attributes:
        busy: It computed, read, wrote or printed since the last look, or waits for a disk.
        works: It gets on, by the newest looks together.
    """

    busy: bool = False
    works: bool = False


@dataclass(slots=True)
class _Seen:
    """What the newest looks saw of a process since its job last got on."""

    lines: deque[int] = field(default_factory=lambda: deque(maxlen=LOOKS))
    done: deque[WorkDone] = field(default_factory=lambda: deque(maxlen=LOOKS))
    starts: deque[bool] = field(default_factory=lambda: deque(maxlen=LOOKS))
    below: frozenset[int] = frozenset()
    line_ns: int = 0


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

    def says(self, pid: int) -> bool:
        """Whether a process has printed in several of the newest looks, as one that retries does.

        Not in one alone: many say what they do and are stuck in it.
        """
        done = self._seen.get(pid, _Seen()).done
        return sum(a.said < b.said for a, b in pairwise(done)) >= AGAIN

    def fed(self, pid: int) -> bool:
        """Whether a process has gone on in several of the newest looks.

        One that waits to read goes on when something comes, and never of itself.
        """
        done = self._seen.get(pid, _Seen()).done
        return sum(a.woken < b.woken for a, b in pairwise(done)) >= AGAIN

    def helped(self, pid: int) -> bool:
        """Whether what a process has started works, though perhaps less than counts as busy."""
        newest = list(self._seen.get(pid, _Seen()).done)[-SLEEPS:]
        if len(newest) < LEAST_LOOKS:
            return False
        first, last = newest[0], newest[-1]
        return last.helped_s - first.helped_s > HELPED_CORES * (last.time_s - first.time_s)

    def sleeps(self, pid: int) -> bool:
        """Whether a process has not gone on for a moment in the newest looks, as polls do.

        In fewer of them if it said something when it last did: so does one that tries again, and
        waits for longer each time.
        """
        done = list(self._seen.get(pid, _Seen()).done)
        wakes = [at for at in range(1, len(done)) if done[at].woken != done[at - 1].woken]
        last = wakes[-1] if wakes else 0
        since = len(done) - last
        spoke = bool(wakes) and done[last].said > done[last - 1].said
        return since >= LEAST_LOOKS and (spoke or not wakes or since >= SLEEPS)

    def turns(self, pid: int) -> bool:
        """Whether a process works between its sleeps: more than to see that nothing has come.

        Or without any sleep: on a machine that has too much to do, one that computes may get less
        of a core than counts as work by itself.
        """
        done = list(self._seen.get(pid, _Seen()).done)
        newest, rarer = done[-SLEEPS:], done[-RARE_LOOKS:]
        if len(newest) < LEAST_LOOKS:
            return False
        ran_s, woken = newest[-1].ran_s - newest[0].ran_s, newest[-1].woken - newest[0].woken
        for_s = newest[-1].time_s - newest[0].time_s
        starved = woken <= STARVED_TURNS and ran_s < BUSY_CORES * for_s
        enough = max(TURN_S * woken, TURN_CORES * for_s)
        if ran_s > enough and (woken >= len(newest) - 1 or starved):
            return True
        ran_s, woken = rarer[-1].ran_s - rarer[0].ran_s, rarer[-1].woken - rarer[0].woken
        return woken >= RARE_TURNS and ran_s > RARE_TURN_S * woken

    def disturbed(self, pids: Iterable[int]) -> None:
        """These processes were looked into, which stops them for a moment."""
        for pid in pids:
            self._seen.setdefault(pid, _Seen()).done.clear()

    def weigh(self, pid: int, table: ProcessTable, now_s: float, ours: int = 0) -> Doing:
        """What a process and all below it have done since the last look; nothing at the first.

        What a thread of it that is `ours` does is left out.
        """
        seen = self._seen.setdefault(pid, _Seen())
        tree = list(table.below(pid))
        below = frozenset(process.pid for process in tree)
        if seen.done:
            seen.starts.append(bool(below - seen.below))
        seen.below = below
        seen.done.append(work_of(pid, table, now_s, ours))
        first, before, last = seen.done[0], seen.done[max(len(seen.done) - 2, 0)], seen.done[-1]
        computes = last.cpu_s - before.cpu_s > BUSY_CORES * (last.time_s - before.time_s)
        lines = len(set(seen.lines)) > FEW_LINES
        return Doing(
            busy=computes
            or last.said > before.said
            or _moved(before, last)
            or _waits_for_disk(tree),
            works=lines or _moved(first, last) or sum(seen.starts) >= STARTS,
        )


def _moved(before: WorkDone, after: WorkDone) -> bool:
    """Whether it has read and written a lot meanwhile."""
    return after.io - before.io > BUSY_BYTES_PER_S * (after.time_s - before.time_s)


def _waits_for_disk(tree: Sequence[Process]) -> bool:
    """Whether the kernel keeps one of them uninterruptible, as a slow file system does."""
    return any(process.state == "D" for process in tree)
