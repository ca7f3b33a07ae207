"""The incidents of one run: the open one, the last, and their verdicts.

When one begins and ends, and what is done about it, the patrol decides.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from unhang.casedir.manifest import Ending
from unhang.run.child.speak import say, write_all
from unhang.run.guard import Guard, Orders
from unhang.run.incident.closing import short_path
from unhang.run.incident.handling import Context, NodeIncident, What
from unhang.run.incident.notifying import Notifier
from unhang.run.incident.verdict import Verdict
from unhang.run.meeting.company import Company
from unhang.run.others import ALL_S
from unhang.run.watching.roster import Roster
from unhang.run.words import look_options

MOST_INCIDENTS = 16
"""More than this many cases of one run would tell nothing new."""

STACKS_S = ALL_S
"""So long a verdict made while the job runs is waited for: before the job is ended, with the
stacks of its calls; and after its end."""


class Docket:
    """Opens incidents, tells their verdicts, and closes them.

    Attributes:
        current: The incident that is open, or None.
        last: The last that was opened.
    """

    def __init__(
        self,
        guard: Guard,
        orders: Orders,
        company: Callable[[], Company],
        keep_up: Callable[[], None],
    ) -> None:
        """Nothing has happened yet.

        Args:
            guard: Is given the verdict that stands last.
            orders: Where cases are made, and who is notified.
            company: The other supervisors, as of now.
            keep_up: Tells them what is seen here, while a verdict is awaited.
        """
        self.current: NodeIncident | None = None
        self.last: NodeIncident | None = None
        self.context = _context(guard, orders, company, keep_up)
        log = Path(orders.folder) / "notifications"
        self.notifier = Notifier(orders.notify, orders.job, log, say)
        self._first: NodeIncident | None = None
        self._guard, self._quiet = guard, orders.quiet
        self._begun, self._opened_s = 0, 0.0
        self._refining: threading.Thread | None = None
        self._amending: threading.Thread | None = None

    @property
    def open_s(self) -> float:
        """For how long the last one has been open."""
        return time.monotonic() - self._opened_s

    def begin(
        self, what: What, roster: Roster, attempt: int, first: NodeIncident | None = None
    ) -> NodeIncident | None:
        """Collect the evidence of an incident; None where none more are kept or can be.

        Args:
            what: What happened.
            roster: The ranks here.
            attempt: In which attempt of the launcher.
            first: The first look at the same incident.
        """
        self._begun += 1
        if self._begun > MOST_INCIDENTS:
            return None
        if not self._quiet:
            say(f"{what.detail}: collecting evidence")
        incident = NodeIncident(self.context, what, follows=first)
        if not incident.collect(roster, attempt):
            return None
        self.current = self.last = incident
        self._opened_s = time.monotonic()
        return incident

    def conclude(
        self, incident: NodeIncident | None, *, tell: bool = True, refine: bool = True
    ) -> None:
        """Judge and show; the node that saw an incident first tells of it elsewhere.

        Args:
            incident: None where there is none to judge.
            tell: Notify of it.
            refine: Judge again once there are stacks of calls: ranks live that may add them.
        """
        if incident is None or incident.case is None:
            return
        self._show(incident, incident.judge())
        if tell:
            self.notifier.tell("verdict", incident.case, incident.what.detail)
        if refine:
            self._refining = incident.refine(lambda verdict: self._refined(incident, verdict))

    def _stand(self, incident: NodeIncident, verdict: Verdict) -> None:
        """Keep what stands at the end: the last verdict, and that of the first incident."""
        self._guard.verdict = verdict
        while incident.follows is not None:
            incident = incident.follows
        self._first = self._first or incident
        if incident is self._first:
            self._guard.first = verdict

    def _show(self, incident: NodeIncident, verdict: Verdict) -> None:
        self._stand(incident, verdict)
        write_all(f"\n{verdict.text}\n")
        of = " of this node" if self.context.company().follows else ""
        say(f"the evidence{of} is in {short_path(incident.case)}")
        if incident.follows is not None:
            say(f"the first look is in {short_path(incident.follows.case)}")

    def _refined(self, incident: NodeIncident, verdict: Verdict) -> None:
        if incident is not self.last:
            return  # A later incident has a verdict of its own, which stands last.
        before = self._guard.verdict
        self._stand(incident, verdict)
        told = (verdict.summary, verdict.decision)
        if before is not None and (before.summary, before.decision) != told:
            say("with the stacks of all calls, the verdict is:")
            self._show(incident, verdict)

    # -------------------------------------------------------------- how it goes on

    def goes_on(self, text: str, *, ended_well: bool = False) -> None:
        """What is open has turned out to be a pause: that is reported, and judged again.

        Args:
            text: How it turned out.
            ended_well: The command has ended successfully.
        """
        if self.current is not None:
            self.notifier.tell("moves-on", self.current.case, text)
            self._amend(self.current, ended_well=ended_well)

    def _amend(self, incident: NodeIncident, *, ended_well: bool) -> None:
        """Judge again, while the job runs, what has turned out to be a pause."""
        if self.context.company().follows or not incident.amend(ended_well=ended_well):
            return
        refining = self._refining

        def work() -> None:
            if refining is not None:
                refining.join()
            verdict = incident.judge()
            if self.last is incident:
                self._stand(incident, verdict)

        thread = threading.Thread(target=work, name="unhang-amend", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no room for a thread: the watch waits for the verdict
            work()
        else:
            self._amending = thread

    def close(self, text: str, code: int | None = None) -> None:
        """The one that is open is over; `text` says how.

        Args:
            text: For its manifest.
            code: Exit code of the command, where it has ended.
        """
        if self.current is not None:
            self.current.close(Ending(text, code))
        self.current = None

    def wait_for_stacks(self) -> None:
        """Wait for the verdict with the stacks of calls, but not for long."""
        self._await(self._refining)

    def finish(self) -> None:
        """The command has ended: wait for what is still judged and told, but not for long."""
        self._await(self._amending)
        self.notifier.finish(self.context.in_time)

    def _await(self, judging: threading.Thread | None) -> None:
        deadline = time.monotonic() + STACKS_S
        while judging is not None and judging.is_alive() and time.monotonic() < deadline:
            if not self.context.in_time():
                return
            self.context.keep_up()
            judging.join(0.1)


def _context(
    guard: Guard, orders: Orders, company: Callable[[], Company], keep_up: Callable[[], None]
) -> Context:
    return Context(
        command=orders.command,
        env=orders.plan.apply(os.environ),
        torch=orders.plan.torch,
        streams=orders.streams,
        folder=Path(orders.folder),
        run=orders.run,
        job=orders.job,
        named=Path(orders.named).absolute() if orders.named else None,
        look=look_options(),
        grace_s=orders.grace_s,
        say=say,
        in_time=lambda: not guard.hurried,
        company=company,
        keep_up=keep_up,
    )
