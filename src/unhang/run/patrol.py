"""Walks next to the ranks: looks, notices that they hang or die, and has each incident worked up.

The loop sleeps until a rank ends, the command ends, or the next look is due. What counts as stuck
is `watch`'s business, what is collected is `incident`'s; here they meet the processes.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unhang.activity.thresholds import APART_S
from unhang.casedir.manifest import Ending
from unhang.collect.processes import read_processes
from unhang.run.child.hearing import Hearing
from unhang.run.child.speak import say, write_all
from unhang.run.guard import Guard, Orders
from unhang.run.incident.acting import Course, IncidentStage, pause_words, why_spared
from unhang.run.incident.closing import short_path
from unhang.run.incident.handling import Context, NodeIncident, What
from unhang.run.incident.notifying import Notifier
from unhang.run.incident.verdict import Verdict
from unhang.run.meeting.beats import NodeBeat
from unhang.run.meeting.company import Company, SharedDisk
from unhang.run.meeting.joining import Joining
from unhang.run.watching.jobtree import JobTree, starter_below
from unhang.run.watching.moving import Movement
from unhang.run.watching.pacing import Pacing
from unhang.run.watching.roster import Gone, Roster
from unhang.run.watching.watch import (
    AUTO_AFTER,
    Alarm,
    HangWatch,
    ProgressLook,
    Resumed,
    Working,
)
from unhang.run.words import (
    elsewhere_words,
    end_words,
    look_options,
    slow_words,
    work_words,
)
from unhang.wording import printable, rank_phrase

__all__ = ["Patrol"]

MOST_INCIDENTS = 16
"""More than this many cases of one run would tell nothing new."""

INTERVAL_S = (0.25, 5.0)
IDLE_INTERVAL_S = 0.5
BEGINNING_S, BEGINNING_INTERVAL_S = 10.0, 0.1
LAUNCHER_LOOKS = 6
"""So many looks in a row must see a launcher stand still: one that imports torch computes."""
INTERRUPTED_S = 120.0
"""For so long after a signal to end, ranks that end are obeying it."""

LAUNCHER_ENDS_S = 40.0
"""Launchers end the other ranks of one that failed; torchrun gives them 30 s."""

ALL_S = STACKS_S = 10.0
"""So long a verdict that is made beside the job is waited for: before the job is ended, with the
stacks of its calls; and after its end. So long other nodes have to look once more."""

_TERMINATED = 128 + signal.SIGTERM


class Patrol:
    """One run's watching, from the first rank to the end of the command."""

    def __init__(self, guard: Guard, orders: Orders, child: int) -> None:
        self.guard = guard
        self.orders = orders
        low, high = INTERVAL_S
        self.interval_s = min(max(orders.hang_after_s / 10, low), high)
        if orders.auto:
            self.interval_s = APART_S
        self.watch = HangWatch(orders.hang_after_s, self.interval_s, auto=orders.auto)
        self.course = Course()
        self.pacing = Pacing()
        self.roster = Roster(orders.job, orders.run, child)
        self.current: NodeIncident | None = None
        self.last: NodeIncident | None = None
        self.incidents = 0
        self.tree = JobTree(child)
        self.hearing = Hearing(orders.streams, f"{orders.folder}/logs")
        self._told_of: set[int] = set()
        self._ended: int | None = None
        self._seen_then, self._began_incident_s = 0, 0.0
        self._kept_back: Alarm | None = None
        self._leaves_it = False
        self._refining: threading.Thread | None = None
        self._amending: threading.Thread | None = None
        self._newcomers_s = self._began_s = time.monotonic()
        self._told_of_launchers = self._waits_for_ranks = self._led = False
        self._looked_s = 0.0
        self._launching, self._launcher_looks = Movement(), 0
        self.meeting = _meeting_of(orders, guard)
        self.context = Context(
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
            company=lambda: self.company,
            keep_up=self._keep_up,
        )
        log = Path(orders.folder) / "notifications"
        self.notifier = Notifier(orders.notify, orders.job, log, say)

    @property
    def company(self) -> Company:
        """The other supervisors of the job, as of now."""
        return self.meeting.now()

    def walk(self) -> None:
        """Watch until the command has ended and everything is written."""
        self.meeting.start()
        try:
            self._walk()
        finally:
            self.meeting.close()

    def _walk(self) -> None:
        attempt = self.roster.attempt
        while not self.guard.is_over:
            self._sleep()
            try:
                self._ranks_ended(self.roster.refresh())
            finally:
                self.tree.let_go()
            self._tell_of_unarmed()
            if self.roster.attempt != attempt:
                attempt = self.roster.attempt
                self._close_current("the launcher restarted the job")
                self.watch.forget_ranks()
                self.course = Course()
            self._look_at_progress()
            self._listen_to_log()
            self._notice_election()
            self._listen_to_others()
            self._obey()
            self._thaw_if_asked()
        self._finish()

    # -------------------------------------------------------------- waiting

    def _sleep(self) -> None:
        """Until the next look, or until a process or the command ends."""
        self._watch_processes()
        poll = select.poll()
        pids = {descriptor: pid for pid, descriptor in self.roster.descriptors.items()}
        for descriptor in (self.guard.wake_fd, *pids):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(self._patience_s() * 1000)
        self._note_ends([pids[fd] for fd, _ in ready if fd in pids])
        with suppress(BlockingIOError):
            while os.read(self.guard.wake_fd, 512):
                pass

    def _patience_s(self) -> float:
        """Shorter while the job begins: what dies then has hardly been seen."""
        if time.monotonic() - self._newcomers_s < BEGINNING_S:
            return min(self.interval_s, BEGINNING_INTERVAL_S)
        return self.interval_s if self.roster.members else min(self.interval_s, IDLE_INTERVAL_S)

    def _watch_processes(self) -> None:
        """Hold a descriptor for each rank that becomes readable when it ends."""
        alive = {member.pid for member in self.roster.members}
        for pid in set(self.roster.descriptors) - alive:
            os.close(self.roster.descriptors.pop(pid))
        for pid in alive - set(self.roster.descriptors):
            self._newcomers_s = time.monotonic()
            with suppress(OSError):  # It has ended already: the next look finds out.
                self.roster.descriptors[pid] = os.pidfd_open(pid)
                self.roster.statuses.pop(pid, None)  # of a process that had this pid before
                self.tree.add(pid)

    def _any_lives(self) -> bool:
        """Whether a rank has not ended yet, though its end may not have been noted."""
        poll = select.poll()
        for descriptor in self.roster.descriptors.values():
            poll.register(descriptor, select.POLLIN)
        return len(poll.poll(0)) < len(self.roster.descriptors) or not self.roster.descriptors

    def _note_ends(self, pids: Sequence[int]) -> None:
        """Read how processes ended before any process waits for them, and hold their launchers."""
        ranks = {member.pid for member in self.roster.members}
        for pid in pids:
            status = self.roster.note_end(pid)
            if status != 0 and not self._obeying() and self.current is None:
                self.tree.hold_launcher(pid, ranks)

    # -------------------------------------------------------------- events

    def _ranks_ended(self, gone: Sequence[Gone]) -> None:
        bad = [end for end in gone if not end.clean]
        if not bad or self._obeying() or self.current is not None:
            return
        if self._ended_by_launcher(bad):
            if not self.orders.quiet:
                ranks = rank_phrase(sorted(end.member.rank for end in bad))
                say(f"{ranks} ended by SIGTERM, as all of the launcher, which may start others")
            return
        # Launchers end the others by SIGTERM once one has failed.
        first = min(bad, key=lambda end: end.status == _TERMINATED)
        what = What("rank-ended", f"rank {first.member.rank} {end_words(first)}")
        # The launcher may have been quicker, and the ranks of the next attempt are there already.
        incident = self._begin(what, first.member.mark.attempt)
        self._ended = first.member.rank
        self.tree.let_go()
        self._conclude(incident)

    def _ended_by_launcher(self, ends: Sequence[Gone]) -> bool:
        """Whether a launcher that lives on has ended all its ranks, as for nodes that join or go.

        It sends SIGTERM to all at once. Of one rank that others end, the rest live on as long as
        the launcher is held. Nothing is lost by waiting: a launcher that fails is an incident.
        """
        pids = {member.pid for member in self.roster.members} | {end.member.pid for end in ends}
        others = [self.tree.beside(end.member.pid, pids) for end in ends]
        if None in others or any(end.status != _TERMINATED for end in ends):
            return False
        rest = {pid for each in others for pid in each or ()}
        deadline = time.monotonic() + APART_S
        while any(self.roster.note_end(pid) is None for pid in rest):
            if time.monotonic() > deadline:
                return False
            time.sleep(BEGINNING_INTERVAL_S)
        return all(self.roster.note_end(pid) == _TERMINATED for pid in rest)

    def _tell_of_unarmed(self) -> None:
        """Say once of each rank that it has no recorder, or less of one, and what that means."""
        news: dict[str, list[int]] = {}
        limited: dict[str, list[int]] = {}
        for member in self.roster.members:
            why = member.unarmed or member.mark.limited
            if why and member.pid not in self._told_of:
                self._told_of.add(member.pid)
                (news if member.unarmed else limited).setdefault(why, []).append(member.rank)
        for why, ranks in limited.items():
            if not self.orders.quiet:
                say(f"{rank_phrase(ranks)}: watched, without dumps: {printable(why)}")
        for why, ranks in news.items():
            if not self.orders.quiet:
                say(
                    f"no recorder in {rank_phrase(ranks)}: {why}. unhang does not see their calls: "
                    "CPU time and bytes show whether they move, and stacks come from outside."
                )

    def _look_at_progress(self) -> None:
        if not self.roster.members:
            self._look_at_launchers()
            return
        if self._waits_for_ranks:
            self._waits_for_ranks = False
            self._goes_on("the launcher started its ranks")
        event = self._after_end(self._see())
        if self._runs_on():
            self._goes_on("the job ran on after a rank had ended")
        if isinstance(event, Alarm) and (self.current is None or event.again):
            first = self.current
            self._close_current("looked at again: the ranks that others wait for stand still")
            self._work_up(What("hang", event.reason, event.quiet_s, event.still_s), first)
        elif self.current is None and self.watch.moves and not self._obeying():
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
        if line and self.roster.members and self.current is None and not self._obeying():
            what = What("line", f"the log says {printable(line)!r}", still_s=self.watch.still_s)
            self._conclude(self._begin(what))
            self._close_current("a line of the log was looked into")

    def _look_at_pace(self) -> None:
        """A rank that keeps the others waiting is reported once; the job goes on in the meantime.

        Nobody is asked in a quiet: the answer costs CPU time, which would look like the rank's own.
        """
        marks = [member.mark for member in self.roster.members if not member.unarmed]
        slow = self.pacing.look(marks, time.monotonic())
        if slow is not None:
            self._conclude(self._begin(What("slow", slow_words(slow), slow=slow)))
            self._close_current("the job went on")

    def _runs_on(self) -> bool:
        """Whether a rank's end is over as an incident, so that a later hang is one of its own.

        Its number is there again, so that another process ended, or calls finish without it.
        """
        if self.current is None or self.current.what.kind != "rank-ended":
            return False
        there = {member.rank for member in self.roster.members}
        # So much progress after a rank's end makes the job one that runs on without it.
        return self._ended in there or self.watch.seen - self._seen_then >= AUTO_AFTER

    def _after_end(self, event: Alarm | Resumed | None) -> Alarm | Resumed | None:
        """Keep back an alarm at a rank's end, until a launcher has had its time to end the job.

        Where nobody ends it, what stands still then is an incident of its own: that of the end is
        closed, and what was seen then tells nothing of who waits now.
        """
        if self.current is None or self.current.what.kind != "rank-ended":
            self._kept_back = None
            return event
        if isinstance(event, Alarm) and not event.again:
            self._kept_back = event
        elif event is not None:
            self._kept_back = None
        ended_s = time.monotonic() - self._began_incident_s
        if self._kept_back is None or ended_s < LAUNCHER_ENDS_S or self._obeying():
            return event
        self._close_current("no process ended the other ranks, and they make no progress")
        text = f"{ended_s:.0f} s after a rank ended, the others still exist and make no progress"
        alarm, self._kept_back = self._kept_back, None
        return replace(alarm, reason=text, quiet_s=ended_s, still_s=self.watch.still_s)

    def _look_at_launchers(self) -> None:
        """No rank is there yet: after a while, launchers that wait for others are an incident."""
        now_s = time.monotonic()
        alone_s = now_s - self._began_s
        if self.roster.gone or self._told_of_launchers or alone_s < self.orders.hang_after_s:
            return
        table = read_processes()
        waits = bool(self.roster.launchers(table))
        busy = waits and self._launching.weigh(self.tree.child, table, now_s).busy
        self._launcher_looks = 0 if busy else self._launcher_looks + 1
        if waits and self._launcher_looks < LAUNCHER_LOOKS:
            return
        self._told_of_launchers = self._waits_for_ranks = True
        if not waits:
            if starter := starter_below(table, self.tree.child):
                say(elsewhere_words(starter, alone_s))
            return
        text = f"no rank has started for {alone_s:.0f} s, and the launcher waits"
        self._work_up(What("hang", text, alone_s, alone_s))

    def _see(self, *, acting: bool = False) -> Alarm | Resumed | None:
        """Look once; that the job moves on is said, and ends the incident, as work is said.

        Args:
            acting: An alarm is being worked up: one that falls due comes with the next look.
        """
        look = self._look()
        follows = self.company.follows
        event = self.watch.glance(look) if acting or follows else self.watch.see(look)
        if isinstance(event, Working):
            self._tell_of_work(event)
            return None
        if event is None and not acting:
            self.course.watched(suspicious=self.watch.asks_for_work)
        if isinstance(event, Resumed) and (self._obeying() or not self._any_lives()):
            return None  # Calls that the end of the job breaks off finish too.
        if isinstance(event, Resumed):
            self.course.enter(IncidentStage.RESUMED)
            say(f"the job moves on: a call has finished after {event.quiet_s:.0f} s")
            self._goes_on(f"the job moved on after {event.quiet_s:.0f} s without progress")
        return event

    def _look(self) -> ProgressLook:
        """How far all ranks are, as far as they are seen; the others hear of those here."""
        self.roster.weigh = self.company.ask_for_work(wanted=self.watch.asks_for_work)
        mine, self._looked_s = self.roster.look(), time.monotonic()
        return self.company.look(mine, lambda: self._beat(mine))

    def _keep_up(self) -> None:
        """The one that leads sees this node's ranks also while something else is waited for."""
        if self.company.follows and time.monotonic() - self._looked_s >= self.interval_s:
            self._look()

    def _beat(self, mine: ProgressLook) -> NodeBeat:
        here, gone = self.roster.of_attempt(self.roster.attempt)
        known = {member.rank for member in here} | {each.member.rank for each in gone}
        roster = self.roster
        return NodeBeat.of(mine, roster.attempt, roster.world_size, self.interval_s, known)

    def _tell_of_work(self, event: Working) -> None:
        if self.orders.quiet:
            return
        here = {member.rank: member for member in self.roster.members}
        for rank in event.ranks:
            beat = self.roster.heartbeat(here[rank]) if rank in here else None
            say(work_words(rank, beat, event.quiet_s, self.company.host_of(rank)))

    def _goes_on(self, text: str) -> None:
        if self.current is not None:
            self.notifier.tell("moves-on", self.current.case, text)
            self._amend(self.current)
        self._close_current(text)

    def _amend(self, incident: NodeIncident, *, ended_well: bool = False) -> None:
        """Judge anew, beside the job, what has turned out to be a pause."""
        if self.company.follows or not incident.amend(ended_well=ended_well):
            return
        refining = self._refining

        def work() -> None:
            if refining is not None:
                refining.join()
            verdict = incident.judge()
            if self.last is incident:
                self.guard.verdict = verdict

        self._amending = threading.Thread(target=work, name="unhang-amend", daemon=True)
        self._amending.start()

    def _listen_to_others(self) -> None:
        """Another node has seen an incident: this node's evidence belongs to it too."""
        meets = self.company.leads or self.company.follows
        if not (self.roster.members or meets) or self._obeying():
            return
        if self.current is not None and not (self._leaves_it or self.company.follows):
            return
        news = self.company.news()
        if news is not None:
            self._close_current("another node looked at its ranks again")
            kind = "hang" if news.kind == "hang" else "rank-ended"
            detail = f"{printable(news.detail)} (seen by {printable(news.run)})"
            what = What(kind, detail, still_s=self.watch.still_s)
            tell = self.company.leads  # it judges for all, and its verdict is the one
            if kind == "hang":
                self._work_up(what, tell=tell)
            else:
                self._conclude(self._begin(what), tell=tell)

    def _notice_election(self) -> None:
        """Of what another one that led has left without an end, this one raises its own alarm."""
        if self.company.leads and not self._led:
            self._close_current("the supervisor that led is lost")
            self.watch.forget_alarm()
        self._led = self.company.leads

    def _obey(self) -> None:
        """End or freeze the job here, as the one that leads has ordered: if this one would, too."""
        how = self.company.order()
        wanted = how == "keep" if self.orders.on_hang == "keep" else how == "kill"
        if not how or not wanted or self.orders.on_hang == "report":
            return
        if isinstance(self._see(acting=True), Resumed) or self.watch.left:
            say("the job goes on here: this node does not end it")
            return
        self.guard.told_to_end()
        self._end_here(how)

    def _obeying(self) -> bool:
        """Whether ranks end by order now: of a signal, or of a node that shares the last case."""
        if not self.guard.interrupted_s and self.last is not None and self.last.being_ended:
            self.guard.told_to_end()
        interrupted = self.guard.interrupted_s
        return bool(interrupted) and time.monotonic() - interrupted < INTERRUPTED_S

    def _finish(self) -> None:
        """The command has ended: what its ranks left, and how it went on."""
        code = self.guard.code or 0
        self.roster.statuses[self.tree.child] = code
        self._ranks_ended(self.roster.refresh())
        if code and self.current is None and self.roster.gone and not self._obeying():
            what = What("rank-ended", f"the command ended with exit code {code}")
            self._conclude(self._begin(what))
        elif self.roster.members and not self._obeying():
            say(f"the command has ended; {len(self.roster.members)} ranks run on, unwatched")
        text = f"the command ended with exit code {code}"
        if self.current is not None and not code and not self._obeying():
            say("the job moved on: it ended successfully")
            self.notifier.tell("moves-on", self.current.case, text)
            self._amend(self.current, ended_well=True)
        self._close_current(text, code)
        self.tree.thaw()
        self._await(self._amending)
        self.notifier.finish(self.context.in_time)

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
        self.incidents += 1
        if self.incidents > MOST_INCIDENTS:
            return None
        if not self.orders.quiet:
            say(f"{what.detail}: collecting evidence")
        incident = NodeIncident(self.context, what, follows=first)
        if not incident.collect(self.roster, self.roster.attempt if attempt is None else attempt):
            return None
        self.current = self.last = incident
        self._ended, self._seen_then = None, self.watch.seen
        self._leaves_it = False
        self._began_incident_s = time.monotonic()
        return incident

    def _conclude(self, incident: NodeIncident | None, *, tell: bool = True) -> None:
        """Judge and show; the node that saw an incident first tells of it elsewhere."""
        if incident is None or incident.case is None:
            return
        self._show(incident, incident.judge())
        if tell:
            self.notifier.tell("verdict", incident.case, incident.what.detail)
        if self.roster.members:
            self._refining = incident.refine(lambda verdict: self._refined(incident, verdict))

    def _show(self, incident: NodeIncident, verdict: Verdict) -> None:
        self.guard.verdict = verdict
        write_all(f"\n{verdict.text}\n")
        of = " of this node" if self.company.follows else ""
        say(f"the evidence{of} is in {short_path(incident.case)}")
        if incident.follows is not None:
            say(f"the first look is in {short_path(incident.follows.case)}")

    def _refined(self, incident: NodeIncident, verdict: Verdict) -> None:
        if incident is not self.last:
            return  # A later incident has a verdict of its own, which stands last.
        before, self.guard.verdict = self.guard.verdict, verdict
        told = (verdict.summary, verdict.decision)
        if before is not None and (before.summary, before.decision) != told:
            say("with the stacks of all calls, the verdict is:")
            self._show(incident, verdict)

    def _close_current(self, text: str, code: int | None = None) -> None:
        if self.current is not None:
            self.current.close(Ending(text, code))
        self.current = None

    # -------------------------------------------------------------- acting on processes

    def _act(self, incident: NodeIncident | None) -> None:
        """What --on-hang says: nothing, end the job, or freeze it.

        Only where a cause was found, and where those that are waited for stand still.
        """
        if self.orders.on_hang != "report":
            self._await(self._refining)  # ranks add the stacks of their calls while they can
        absent = self._await_all(incident)
        verdict = incident.verdict if incident else None
        if incident is None or verdict is None:
            self.course.decided("there is no verdict", looks_again=False)
            return
        if self.company.follows:
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

    def _await_all(self, incident: NodeIncident | None) -> str:
        """Why a verdict that may end the job is not of all nodes; they have a moment to look."""
        until_s = time.monotonic() + ALL_S
        acts = self.orders.on_hang != "report" and incident is not None
        while absent := self.company.why_not_all() if acts else "":
            if not self.company.leads or time.monotonic() > until_s or not self.context.in_time():
                break
            time.sleep(0.1)
        return absent

    def _put_off(self, verdict: Verdict, absent: str = "") -> bool:
        """Look again later at ranks that may yet come; the node that has them does, for all.

        Returns:
            Whether it is looked at again, here or there.
        """
        here = {member.rank for member in self.roster.members}
        late = verdict.moving or verdict.pausing or self.watch.left
        self._leaves_it = bool(late) and here.isdisjoint(late) and not self.company.leads
        if verdict.moving and not self._leaves_it:
            self.watch.put_off(verdict.moving)
        elif late and not self._leaves_it:
            pausing = {*verdict.pausing, *self.watch.left}
            self.watch.wait_until(self.orders.grace_s, pausing)
        elif absent and self.company.leads:  # later each time: it may be for ever
            self.watch.put_off(here)
        return bool(late) or bool(absent)

    def _await(self, judging: threading.Thread | None) -> None:
        """Wait for a verdict that comes next to the job, but not for long."""
        deadline = time.monotonic() + STACKS_S
        while judging is not None and judging.is_alive() and time.monotonic() < deadline:
            if not self.context.in_time():
                return
            judging.join(0.1)

    def _thaw_if_asked(self) -> None:
        if self.guard.continued or self.guard.interrupted_s:
            self.tree.thaw()


def _meeting_of(orders: Orders, guard: Guard) -> Joining | Company:
    """How this supervisor finds the others of its job, if it has any."""
    if orders.meet is not None:
        return Joining(orders.meet, orders.run, guard.nudge, say)
    if orders.named:
        return SharedDisk(Path(orders.named).absolute(), orders.job, orders.run)
    return Company()
