"""What launchers do about ranks: they wait for others before any starts, and end all of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from unhang.activity.thresholds import APART_S, SETTLED_LOOKS
from unhang.collect.processes import read_processes
from unhang.run.child.speak import say
from unhang.run.incident.handling import What
from unhang.run.sleeping import BEGINNING_INTERVAL_S
from unhang.run.watching.jobtree import JobTree, starter_below
from unhang.run.watching.moving import Movement
from unhang.run.watching.roster import Gone, Roster
from unhang.run.words import elsewhere_words

TERMINATED = 128 + signal.SIGTERM


class RanklessCommand:
    """A command without a rank so far."""

    def __init__(self) -> None:
        """It has just begun."""
        self._began_s = time.monotonic()
        self._told = False
        self._movement, self._still = Movement(), 0

    def look(self, roster: Roster, tree: JobTree, hang_after_s: float) -> What | None:
        """After a while, once: that its launchers wait for others; what starts them elsewhere."""
        now_s = time.monotonic()
        alone_s = now_s - self._began_s
        if roster.gone or self._told or alone_s < hang_after_s:
            return None
        table = read_processes()
        waits = bool(roster.launchers(table))
        busy = waits and self._movement.weigh(tree.child, table, now_s).busy
        self._still = 0 if busy else self._still + 1
        if waits and self._still < SETTLED_LOOKS:
            return None
        self._told = True
        if not waits:
            if starter := starter_below(table, tree.child):
                say(elsewhere_words(starter, alone_s))
            return None
        text = f"no rank has started for {alone_s:.0f} s, and the launcher waits"
        return What("hang", text, alone_s, alone_s)


def ended_all(ends: Sequence[Gone], roster: Roster, tree: JobTree) -> bool:
    """Whether a launcher that lives on has ended all its ranks, as for nodes that join or go.

    It sends SIGTERM to all at once. Of one rank that others end, the rest live on as long as
    the launcher is held. Nothing is lost by waiting: a launcher that fails is an incident.
    """
    pids = {member.pid for member in roster.members} | {end.member.pid for end in ends}
    others = [tree.beside(end.member.pid, pids) for end in ends]
    if None in others or any(end.status != TERMINATED for end in ends):
        return False
    rest = {pid for each in others for pid in each or ()}
    deadline = time.monotonic() + APART_S
    while any(roster.note_end(pid) is None for pid in rest):
        if time.monotonic() > deadline:
            return False
        time.sleep(BEGINNING_INTERVAL_S)
    return all(roster.note_end(pid) == TERMINATED for pid in rest)
