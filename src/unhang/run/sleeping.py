"""Sleeps until something happens: a rank or the command ends, or the next look is due."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress

from unhang.run.guard import Guard
from unhang.run.watching.jobtree import JobTree
from unhang.run.watching.roster import Roster

BEGINNING_S, BEGINNING_INTERVAL_S = 10.0, 0.1


class Sleeper:
    """Holds a descriptor for each rank, which becomes readable when the rank ends."""

    def __init__(self, guard: Guard, interval_s: float) -> None:
        """Look this often at ranks that run; the guard wakes it."""
        self._guard, self._interval_s = guard, interval_s
        self._newcomers_s = time.monotonic()

    def sleep(self, roster: Roster, tree: JobTree) -> list[int]:
        """Until the next look, or until a process or the command ends.

        Returns:
            The processes of ranks that have ended.
        """
        self._watch(roster, tree)
        poll = select.poll()
        pids = {descriptor: pid for pid, descriptor in roster.descriptors.items()}
        for descriptor in (self._guard.wake_fd, *pids):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(self._patience_s(roster) * 1000)
        with suppress(BlockingIOError):
            while os.read(self._guard.wake_fd, 512):
                pass
        return [pids[fd] for fd, _ in ready if fd in pids]

    def _patience_s(self, roster: Roster) -> float:
        """Shorter while the job begins: what dies then has hardly been seen."""
        if time.monotonic() - self._newcomers_s < BEGINNING_S:
            return min(self._interval_s, BEGINNING_INTERVAL_S)
        return self._interval_s if roster.members else self._interval_s / 2

    def _watch(self, roster: Roster, tree: JobTree) -> None:
        alive = {member.pid for member in roster.members}
        for pid in set(roster.descriptors) - alive:
            os.close(roster.descriptors.pop(pid))
        for pid in alive - set(roster.descriptors):
            self._newcomers_s = time.monotonic()
            with suppress(OSError):  # It has ended already: the next look finds out.
                roster.descriptors[pid] = os.pidfd_open(pid)
                roster.statuses.pop(pid, None)  # of a process that had this pid before
                tree.add(pid)


def any_lives(roster: Roster) -> bool:
    """Whether a rank has not ended yet, though its end may not have been noted."""
    poll = select.poll()
    for descriptor in roster.descriptors.values():
        poll.register(descriptor, select.POLLIN)
    return len(poll.poll(0)) < len(roster.descriptors) or not roster.descriptors
