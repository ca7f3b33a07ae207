"""Walks next to the ranks: looks, notices that they hang or die, and has each incident worked up.

The loop sleeps until a rank ends, the command ends, or the next look is due. What counts as stuck
is `watch`'s business, what is collected is `incident`'s, what other nodes see and order `others`';
here they meet the processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from unhang.activity.thresholds import APART_S, AUTO_AFTER
from unhang.run.child.hearing import Hearing
from unhang.run.child.speak import say
from unhang.run.docket import Docket
from unhang.run.guard import Guard, Orders
from unhang.run.incident.acting import Course, IncidentStage, pause_words, why_spared
from unhang.run.incident.handling import NodeIncident, What
from unhang.run.incident.verdict import Verdict
from unhang.run.others import Others
from unhang.run.sleeping import Sleeper, any_lives
from unhang.run.starters import TERMINATED, RanklessCommand, ended_all
from unhang.run.watching.jobtree import JobTree
from unhang.run.watching.pacing import Pacing
from unhang.run.watching.roster import Gone, Roster
from unhang.run.watching.watch import (
    Alarm,
    HangWatch,
    ProgressLook,
    Resumed,
    Working,
)
from unhang.run.words import end_words, slow_words, unarmed_words, work_words
from unhang.wording import printable, rank_phrase

INTERRUPTED_S = 120.0
"""For so long after a signal to end, ranks that end are obeying it."""

LAUNCHER_ENDS_S = 40.0
"""Launchers end the other ranks of one that failed; torchrun gives them 30 s."""


class Patrol:
    """One run's watching, from the first rank to the end of the command."""

    def __init__(self, guard: Guard, orders: Orders, child: int) -> None:
        self.guard = guard
        self.orders = orders
        self.interval_s = APART_S if orders.auto else min(APART_S, orders.hang_after_s / 10)
        self.watch = HangWatch(orders.hang_after_s, self.interval_s, auto=orders.auto)
        self.course = Course()
        self.pacing = Pacing()
        self.roster = Roster(orders.job, orders.run, child)
        self.tree = JobTree(child)
        self.sleeper = Sleeper(guard, self.interval_s)
        self.rankless = RanklessCommand()
        self.others = Others(orders, guard, self.interval_s)
        self.docket = Docket(guard, orders, lambda: self.others.company, self._keep_up)
        self.hearing = Hearing(orders.streams, f"{orders.folder}/logs")
        self._told_of: set[int] = set()
        self._ended: int | None = None
        self._seen_then = 0
        self._kept_back: Alarm | None = None
        self._leaves_it = self._waits_for_ranks = self._heard = False

    def walk(self) -> None:
        """Watch until the command has ended and everything is written."""
        self.others.start()
        try:
            self._walk()
        finally:
            self.others.close()

    def _walk(self) -> None:
        attempt = self.roster.attempt
        while not self.guard.is_over:
            self._note_ends(self.sleeper.sleep(self.roster, self.tree))
            try:
                self._ranks_ended(self.roster.refresh())
            finally:
                self.tree.let_go()
            self._tell_of_unarmed()
            if self.roster.attempt != attempt:
                attempt = self.roster.attempt
                self.docket.close("the launcher restarted the job")
                self.watch.forget_ranks()
                self.course = Course()
            self._look_at_progress()
            self._listen_to_log()
            self._take_over()
            self._listen_to_others()
            self._obey()
            self._thaw_if_asked()
        self._finish()

    # -------------------------------------------------------------- events

    def _note_ends(self, pids: Sequence[int]) -> None:
        """Read how processes ended before any process waits for them, and hold their launchers."""
        ranks = {member.pid for member in self.roster.members}
        for pid in pids:
            status = self.roster.note_end(pid)
            if status != 0 and not self._obeying() and self.docket.current is None:
                self.tree.hold_launcher(pid, ranks)

    def _ranks_ended(self, gone: Sequence[Gone]) -> None:
        bad = [end for end in gone if not end.clean]
        if not bad or self._obeying() or self.docket.current is not None:
            return
        if ended_all(bad, self.roster, self.tree):
            if not self.orders.quiet:
                ranks = rank_phrase(sorted(end.member.rank for end in bad))
                say(f"{ranks} ended by SIGTERM, as all of the launcher, which may start others")
            return
        # Launchers end the others by SIGTERM once one has failed.
        first = min(bad, key=lambda end: end.status == TERMINATED)
        what = What("rank-ended", f"rank {first.member.rank} {end_words(first)}")
        # The launcher may have been quicker, and the ranks of the next attempt are there already.
        incident = self._begin(what, first.member.mark.attempt)
        self._ended = first.member.rank
        self.tree.let_go()
        self._conclude(incident)

    def _tell_of_unarmed(self) -> None:
        """Say once of each rank that it has no recorder, or less of one, and what that means."""
        new = [each for each in self.roster.members if each.pid not in self._told_of]
        lacking = [each for each in new if each.unarmed or each.mark.limited]
        self._told_of |= {each.pid for each in lacking}
        for text in [] if self.orders.quiet else unarmed_words(lacking):
            say(text)

    def _look_at_progress(self) -> None:
        if not self.roster.members:
            what = self.rankless.look(self.roster, self.tree, self.orders.hang_after_s)
            if what is not None:
                self._waits_for_ranks = True
                self._work_up(what)
            return
        if self._waits_for_ranks:
            self._waits_for_ranks = False
            self._goes_on("the launcher started its ranks")
        event = self._after_end(self._see())
        if self._runs_on():
            self._goes_on("the job ran on after a rank had ended")
        if self._is_over(event):
            self._goes_on("calls have finished, or ranks have started, since")
        if isinstance(event, Alarm) and (self.docket.current is None or event.again):
            first = self.docket.current
            self.docket.close("looked at again: the ranks that others wait for stand still")
            self._work_up(What("hang", event.reason, event.quiet_s, event.still_s), first)
        elif self.docket.current is None and self.watch.moves and not self._obeying():
            self._look_at_pace()

    def _work_up(self, what: What, first: NodeIncident | None = None, *, tell: bool = True) -> None:
        """An alarm, from its evidence to what is done about it.

        Args:
            what: What happened.
            first: The first look, where this is another at the same incident.
            tell: Notify of it.
        """
        self.course.enter(IncidentStage.ALARM)
        self.course.enter(IncidentStage.COLLECTING)
        incident = self._begin(what, first=first)
        self._conclude(incident, tell=tell)
        self.course.enter(IncidentStage.TOLD)
        if not tell:
            self.watch.told_of_hang()
        self._act(incident)

    def _listen_to_log(self) -> None:
        """A line that says that something stands still: the stacks are taken, nothing is ended.

        What it stands for is an alarm's to decide: an engine may compile for minutes.
        """
        line = self.hearing.news()
        if line and self.roster.members and self.docket.current is None and not self._obeying():
            what = What("line", f"the log says {printable(line)!r}", still_s=self.watch.still_s)
            self._conclude(self._begin(what))
            self.docket.close("a line of the log was looked into")

    def _look_at_pace(self) -> None:
        """A rank that keeps the others waiting is reported once; the job goes on in the meantime.

        No rank is asked in a lull: the answer costs CPU time, which would look like the rank's own.
        """
        marks = [member.mark for member in self.roster.members if not member.unarmed]
        slow = self.pacing.look(marks, time.monotonic())
        if slow is not None:
            self._conclude(self._begin(What("slow", slow_words(slow), slow=slow)))
            self.docket.close("the job went on")

    def _runs_on(self) -> bool:
        """Whether a rank's end is over as an incident, so that a later hang is one of its own.

        Its number is there again, so that another process ended, or calls finish without it.
        """
        if self.docket.current is None or self.docket.current.what.kind != "rank-ended":
            return False
        there = {member.rank for member in self.roster.members}
        # So much progress after a rank's end makes the job one that runs on without it.
        return self._ended in there or self.watch.seen - self._seen_then >= AUTO_AFTER

    def _is_over(self, event: Alarm | Resumed | None) -> bool:
        """Whether an open hang is over that another node saw: the watch here knows no end of it.

        One that leads sees all ranks: what its own watch raises is another hang.
        """
        what = self.docket.current.what if self.docket.current is not None else None
        if what is None or what.kind != "hang" or self._obeying():
            return False
        is_new = isinstance(event, Alarm) and not event.again and self.others.company.leads
        return self.watch.seen > self._seen_then or (self._heard and is_new)

    def _after_end(self, event: Alarm | Resumed | None) -> Alarm | Resumed | None:
        """Keep back an alarm at a rank's end, until a launcher has had its time to end the job.

        Where it is not ended, what stands still then is an incident of its own: that of the end is
        closed, and what was seen then tells nothing of who waits now.
        """
        if self.docket.current is None or self.docket.current.what.kind != "rank-ended":
            self._kept_back = None
            return event
        if isinstance(event, Alarm) and not event.again:
            self._kept_back = event
        elif event is not None:
            self._kept_back = None
        ended_s = self.docket.open_s
        if self._kept_back is None or ended_s < LAUNCHER_ENDS_S or self._obeying():
            return event
        self.docket.close("no process ended the other ranks, and they make no progress")
        text = f"{ended_s:.0f} s after a rank ended, the others still exist and make no progress"
        alarm, self._kept_back = self._kept_back, None
        return replace(alarm, reason=text, quiet_s=ended_s, still_s=self.watch.still_s)

    def _see(self, *, acting: bool = False) -> Alarm | Resumed | None:
        """Look once; that the job moves on is said, and ends the incident, as work is said.

        Args:
            acting: An alarm is being worked up: one that falls due comes with the next look.
        """
        look = self._look()
        company = self.others.company
        theirs = company.follows or company.elects
        event = self.watch.glance(look) if acting or theirs else self.watch.see(look)
        if isinstance(event, Working):
            self._tell_of_work(event)
            return None
        if event is None and not acting:
            self.course.watched(suspicious=self.watch.asks_for_work)
        if isinstance(event, Resumed) and (self._obeying() or not any_lives(self.roster)):
            return None  # Calls that the end of the job breaks off finish too.
        if isinstance(event, Resumed):
            self.course.enter(IncidentStage.RESUMED)
            say(f"the job moves on: a call has finished after {event.quiet_s:.0f} s")
            self._goes_on(f"the job moved on after {event.quiet_s:.0f} s without progress")
        return event

    def _keep_up(self) -> None:
        """The one that leads sees this node's ranks also while something else is waited for."""
        if self.others.must_hear():
            self._look()

    def _look(self) -> ProgressLook:
        return self.others.look(self.roster, wanted=self.watch.asks_for_work)

    def _goes_on(self, text: str) -> None:
        self.docket.goes_on(text)
        self.docket.close(text)

    def _tell_of_work(self, event: Working) -> None:
        if self.orders.quiet:
            return
        here = {member.rank: member for member in self.roster.members}
        for rank in event.ranks:
            beat = self.roster.heartbeat(here[rank]) if rank in here else None
            say(work_words(rank, beat, event.quiet_s, self.others.company.host_of(rank)))

    def _take_over(self) -> None:
        """Of what another one that led has left without an end, this one raises its own alarm."""
        if self.others.was_elected():
            self.docket.close("the supervisor that led is lost")
            self.watch.forget_alarm()

    def _listen_to_others(self) -> None:
        """Another node has seen an incident: this node's evidence belongs to it too."""
        if not (self.roster.members or self.others.may_have_news) or self._obeying():
            return
        follows = self.others.company.follows
        if self.docket.current is not None and not (self._leaves_it or follows):
            return
        what = self.others.incident(self.watch.still_s)
        if what is not None:
            self.docket.close("another node looked at its ranks again")
            tell = self.others.company.leads  # it judges for all, and its verdict is the one
            if what.kind == "hang":
                self._work_up(what, tell=tell)
            else:
                self._conclude(self._begin(what), tell=tell)
            self._heard = True

    def _obey(self) -> None:
        """End or freeze the job here, as the one that leads has ordered: if this one would, too."""
        how = self.others.order()
        if not how:
            return
        if isinstance(self._see(acting=True), Resumed) or self.watch.left:
            say("the job goes on here: this node does not end it")
            return
        self.guard.told_to_end()
        self._end_here(how)

    def _obeying(self) -> bool:
        """Whether ranks end by order now: of a signal, or of a node that shares the last case."""
        last = self.docket.last
        if not self.guard.interrupted_s and last is not None and last.being_ended:
            self.guard.told_to_end()
        interrupted = self.guard.interrupted_s
        return bool(interrupted) and time.monotonic() - interrupted < INTERRUPTED_S

    def _finish(self) -> None:
        """The command has ended: what its ranks left, and how it went on."""
        code = self.guard.code or 0
        self.roster.statuses[self.tree.child] = code
        self._ranks_ended(self.roster.refresh())
        if code and self.docket.current is None and self.roster.gone and not self._obeying():
            what = What("rank-ended", f"the command ended with exit code {code}")
            self._conclude(self._begin(what))
        elif self.roster.members and not self._obeying():
            say(f"the command has ended; {len(self.roster.members)} ranks run on, unwatched")
        text = f"the command ended with exit code {code}"
        if self.docket.current is not None and not code and not self._obeying():
            say("the job moved on: it ended successfully")
            self.docket.goes_on(text, ended_well=True)
        self.docket.close(text, code)
        self.tree.thaw()
        self.docket.finish()

    # -------------------------------------------------------------- incidents

    def _begin(
        self, what: What, attempt: int | None = None, first: NodeIncident | None = None
    ) -> NodeIncident | None:
        """Collect the evidence of an incident; None where none more are kept or can be.

        Args:
            what: What happened.
            attempt: In which attempt of the launcher; the present one by default.
            first: The first look at the same incident.
        """
        attempt = self.roster.attempt if attempt is None else attempt
        incident = self.docket.begin(what, self.roster, attempt, first)
        if incident is not None:
            self._ended, self._seen_then, self._heard = None, self.watch.seen, False
            self._leaves_it = False
        return incident

    def _conclude(self, incident: NodeIncident | None, *, tell: bool = True) -> None:
        self.docket.conclude(incident, tell=tell, refine=bool(self.roster.members))

    # -------------------------------------------------------------- acting on processes

    def _act(self, incident: NodeIncident | None) -> None:
        """What --on-hang says: nothing, end the job, or freeze it.

        Only where a cause was found, and where those that are waited for stand still.
        """
        if self.orders.on_hang != "report":
            self.docket.wait_for_stacks()  # ranks add the stacks of their calls while they can
        acts = self.orders.on_hang != "report" and incident is not None
        absent = self.others.wait_for_all(self.docket.context.in_time) if acts else ""
        verdict = incident.verdict if incident else None
        if incident is None or verdict is None:
            self.course.decided("there is no verdict", looks_again=False)
            return
        if self.others.company.follows:
            self.course.decided("the supervisor that leads decides", looks_again=True)
            return
        how, grace_s = self.orders.on_hang, self.orders.grace_s
        if isinstance(self._see(acting=True), Resumed):
            return
        again = self._put_off(verdict, absent)
        if how == "report":
            if verdict.pausing and not self.orders.quiet:
                say(pause_words(verdict, "looked at again when", grace_s))
            self.course.decided("--on-hang report", looks_again=again)
            return
        spared = why_spared(verdict, how, grace_s, self.watch.left, absent)
        if spared:
            say(f"{spared} (--on-hang {how})")
        if self.course.decided(spared, looks_again=again) and self.course.enter(
            IncidentStage.ACTING
        ):
            self._end_or_freeze(incident, how)

    def _end_or_freeze(self, incident: NodeIncident, how: str) -> None:
        if how != "keep":
            self.guard.told_to_end()
        incident.tell_of_end("keep" if how == "keep" else "kill")
        self._end_here(how)

    def _end_here(self, how: str) -> None:
        if how == "keep":
            self.tree.freeze()
            say(f"the job is frozen for a debugger; to go on: kill -CONT {os.getpid()}")
            return
        say(f"ending the job (--on-hang {how})")
        self.tree.end(lambda: self.guard.is_over)

    def _put_off(self, verdict: Verdict, absent: str = "") -> bool:
        """Look again later at ranks that may yet come; the node that has them does, for all.

        Returns:
            Whether it is looked at again, here or there.
        """
        here = {member.rank for member in self.roster.members}
        late = verdict.moving or verdict.pausing or self.watch.left
        self._leaves_it = bool(late) and here.isdisjoint(late) and not self.others.company.leads
        if verdict.moving and not self._leaves_it:
            self.watch.put_off(verdict.moving)
        elif late and not self._leaves_it:
            pausing = {*verdict.pausing, *self.watch.left}
            self.watch.wait_until(self.orders.grace_s, pausing)
        elif absent and self.others.company.leads:  # later each time: it may be for ever
            self.watch.put_off(here, answers=True)
        elif not (late or absent) and verdict.is_open:
            return self.watch.look_once_more(here)
        return bool(late) or bool(absent)

    def _thaw_if_asked(self) -> None:
        if self.guard.continued or self.guard.interrupted_s:
            self.tree.thaw()
