"""This supervisor among those of its job's other nodes: all that the patrol asks of them.

How they are found and what carries it is `meeting`'s business. Here it is put in the patrol's
words: what is seen of all ranks, which incident another one has raised, what it has ordered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from unhang.run.child.speak import say
from unhang.run.guard import Guard, Orders
from unhang.run.incident.handling import What
from unhang.run.meeting.beats import NodeBeat
from unhang.run.meeting.company import Company, SharedDisk
from unhang.run.meeting.joining import Joining
from unhang.run.watching.roster import Roster
from unhang.run.watching.watch import ProgressLook
from unhang.wording import printable

ALL_S = 10.0
"""So long other nodes have to look once more before a job is ended, as stacks have to come."""


class Others:
    """The other supervisors, from the first rank to the end of the command."""

    def __init__(self, orders: Orders, guard: Guard, interval_s: float) -> None:
        """Get ready; none is reached for before `start`.

        Args:
            orders: Where they meet, and what is wanted of a hang here.
            guard: Is nudged when they have news.
            interval_s: How often this one looks.
        """
        self._orders, self._interval_s = orders, interval_s
        self._meeting = _meeting_of(orders, guard)
        self._led = False
        self._looked_s = 0.0

    @property
    def company(self) -> Company:
        """They, as of now."""
        return self._meeting.now()

    def start(self) -> None:
        """Begin to look for them."""
        self._meeting.start()

    def close(self) -> None:
        """The command is over here: let them know."""
        self._meeting.close()

    # -------------------------------------------------------------- looks

    def look(self, roster: Roster, *, wanted: bool) -> ProgressLook:
        """How far all ranks are, as far as they are seen; the others hear of those here.

        Args:
            roster: The ranks here.
            wanted: Whether the watch here asks who works.
        """
        roster.weigh = self.company.ask_for_work(wanted=wanted)
        mine, self._looked_s = roster.look(), time.monotonic()
        return self.company.look(mine, lambda: self._beat(roster, mine))

    def _beat(self, roster: Roster, mine: ProgressLook) -> NodeBeat:
        here, gone = roster.of_attempt(roster.attempt)
        known = {member.rank for member in here} | {each.member.rank for each in gone}
        return NodeBeat.of(mine, roster.attempt, roster.world_size, self._interval_s, known)

    def must_hear(self) -> bool:
        """Whether the one that leads has waited for a look of this node as long as between two."""
        return self.company.follows and time.monotonic() - self._looked_s >= self._interval_s

    # -------------------------------------------------------------- news

    def was_elected(self) -> bool:
        """Whether this one leads since it was last asked."""
        before, self._led = self._led, self.company.leads
        return self._led and not before

    @property
    def may_have_news(self) -> bool:
        """Whether it matters what they see even where no rank runs here."""
        return self.company.leads or self.company.follows

    def incident(self, still_s: float) -> What | None:
        """One that another has seen, and in which this node has no part yet.

        Args:
            still_s: For how long no rank here has moved that may be waited for.
        """
        news = self.company.news()
        if news is None:
            return None
        kind = "hang" if news.kind == "hang" else "rank-ended"
        detail = f"{printable(news.detail)} (seen by {printable(news.run)})"
        return What(kind, detail, still_s=still_s)

    def order(self) -> str:
        """What the one that leads has ordered, "kill" or "keep", where it is wanted here too."""
        how = self.company.order()
        on_hang = self._orders.on_hang
        wanted = how == "keep" if on_hang == "keep" else how == "kill"
        return how if wanted and on_hang != "report" else ""

    def wait_for_all(self, in_time: Callable[[], bool]) -> str:
        """Why a verdict that may end the job is not of all nodes; they have a moment to look.

        Args:
            in_time: False once the user is impatient.
        """
        until_s = time.monotonic() + ALL_S
        while absent := self.company.why_not_all():
            if not self.company.leads or time.monotonic() > until_s or not in_time():
                break
            time.sleep(0.1)
        return absent


def _meeting_of(orders: Orders, guard: Guard) -> Joining | Company:
    """How this supervisor finds the others of its job, if it has any."""
    if orders.meet is not None:
        return Joining(orders.meet, orders.run, guard.nudge, say)
    if orders.named:
        return SharedDisk(Path(orders.named).absolute(), orders.job, orders.run)
    return Company()
