"""Decides from looks at the ranks whether the job is stuck. Pure: time and looks come from outside.

Progress is a finished call on any rank; after an alarm only where that rank went on to another
one, because calls that are given up finish too. Quiet is the time since the last progress. Quiet
becomes an alarm after a limit that this job's own history sets: `hang_after` at first, more once
the job has lived through longer pauses (checkpoints, compilation, evaluation). The limit never
falls below `hang_after`: a late alarm costs minutes, a false one costs trust.

With `auto` it does, where the job's rhythm is known and nothing moves at all. Where a rank
computes it is the usual limit: it may be one that spins. A rank that works (see `moving`) is shown
once, and no alarm until it stops, or has worked for very long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from unhang.activity.thresholds import (
    AUTO_AFTER,
    AUTO_FACTOR,
    AUTO_LEAST_S,
    BUSY_FACTOR,
    IDLE_FACTOR,
    SURVIVED_FACTOR,
)
from unhang.record.contact.beatlayout import TICK_S
from unhang.wording import rank_phrase


@dataclass(frozen=True, slots=True)
class RankProgress:
    """One rank at one moment.

    Attributes:
        pid: What tells its process from others'; below 0 for one of another node.
        finished: A number that changes whenever one of its calls has finished.
        begun: A number that changes whenever it begins another call, or a step.
        waiting: A call of it is pending; None where it is not known.
        busy: It, or a child of it, computed or read since the last look.
        coming: It has not begun to join its peers, who do: its work is awaited like a call.
        works: What it did was more than computing: it read, wrote, or came past many lines. A call
            may be pending then, but the program does not wait in it.
        counted: That part of `finished` that the counters of its groups tell.
        ended: A number that changes whenever one of its calls has ended, well or by an error.
        inside: Its program stands in a call, and can go on only by that.
    """

    rank: int
    pid: int
    finished: int
    begun: int
    waiting: bool | None
    busy: bool
    coming: bool = False
    works: bool = False
    counted: int = 0
    ended: int = 0
    inside: bool = False


_UNKNOWN = RankProgress(-1, -1, finished=-1, begun=-1, waiting=None, busy=False)


@dataclass(frozen=True, slots=True)
class ProgressLook:
    """All ranks of this node at one moment.

    Attributes:
        time_s: A clock that never goes back.
        elsewhere: Other nodes have ranks of the job too, whose work is not seen.
        lost: Of those ranks a supervisor has told, and has fallen silent.
        wide: Ranks of other nodes are among these.
    """

    time_s: float
    ranks: Sequence[RankProgress]
    elsewhere: bool = False
    lost: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Alarm:
    """The job counts as stuck.

    Attributes:
        quiet_s: How long no call has finished.
        limit_s: After how long that became an alarm.
        waiting: Ranks with a pending call, ascending; none where all are idle.
        reason: One sentence for people.
        again: It has been raised before, and put off because ranks that were waited for moved, or
            may only have paused.
        still_s: For how long of that no rank has moved who may be waited for, as far as it was
            seen.
    """

    quiet_s: float
    limit_s: float
    waiting: tuple[int, ...]
    reason: str
    again: bool = False
    still_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Working:
    """No call has finished for as long as an alarm takes, but these ranks work: none is raised."""

    ranks: tuple[int, ...]
    quiet_s: float


@dataclass(frozen=True, slots=True)
class Resumed:
    """After an alarm a call finished, and its rank went on: the job was slow, not stuck."""

    quiet_s: float


@dataclass(slots=True)
class HangWatch:
    """Follows one job.

    Attributes:
        hang_after_s: The limit where history does not raise it.
        auto: Be suspicious sooner, once the job's rhythm is known; then only what stands still
            altogether is an alarm.
        interval_s: The usual time between two looks. A much longer one means that we slept
            ourselves (Ctrl-Z, a busy machine): that time is not held against the job.
        seen: How many looks saw progress.
        left: Ranks that waited in a call at the newest alarm, and have left it since, for what the
            newest look tells: it has raised, say for its time-out, and the program goes on.
    """

    hang_after_s: float
    interval_s: float = 1.0
    auto: bool = False
    longest_waiting_s: float = 0.0
    longest_idle_s: float = 0.0
    longest_still_s: float = 0.0
    longest_workless_s: float = 0.0
    longest_shut_s: float = 0.0
    seen: int = 0
    left: tuple[int, ...] = ()
    _in_call: dict[tuple[int, int], int] = field(default_factory=dict)
    _newest: Sequence[RankProgress] = ()
    _before: dict[int, RankProgress] = field(default_factory=dict)
    _quiet_since_s: float | None = None
    _still_since_s: float = 0.0
    _worked_s: float = 0.0
    _open_s: float = 0.0
    _told: bool = False
    _last_look_s: float = 0.0
    _unseen_s: float = 0.0
    _had_waiting: bool = False
    _alarmed: bool = False
    _movers: frozenset[int] = frozenset()
    _put_off: int = 0
    _until_s: float = 0.0
    _limit_s: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether the newest look saw progress."""
        return self._quiet_since_s == self._last_look_s

    @property
    def asks_for_work(self) -> bool:
        """Whether looks must tell who works: in a suspicious quiet, or after an alarm put off."""
        return bool(self._movers) or self._is_suspicious(self._last_look_s)

    def _is_suspicious(self, time_s: float) -> bool:
        if self._quiet_since_s is None or (self._alarmed and not self.auto):
            return False
        return time_s - self._quiet_since_s >= min(AUTO_LEAST_S / 2, self.hang_after_s / 4)

    @property
    def still_s(self) -> float:
        """For how long no rank had moved, at the newest look, who may be waited for.

        Without `auto`, and before an alarm, that is as long as no call has finished.
        """
        quiet = self._last_look_s - (self._quiet_since_s or self._last_look_s)
        watched = self.auto or self._movers
        return min(quiet, self._last_look_s - self._still_since_s) if watched else quiet

    def put_off(self, movers: Iterable[int], *, answers: bool = False) -> None:
        """The ranks that are waited for move: the alarm comes again once they have stood still.

        For twice as long each time, so that slow work is not looked at for ever.

        Args:
            movers: These ranks.
            answers: It is answers of other nodes that are waited for: these need no longer than
                the alarm itself took.
        """
        self._movers = frozenset(movers)
        self._put_off += 1
        self._still_since_s = self._last_look_s
        least_s = self._limit_s if answers else self.hang_after_s
        self._until_s = least_s * 2 ** (self._put_off - 1)

    def look_once_more(self, ranks: Iterable[int]) -> bool:
        """The verdict was open: the alarm comes a second time in this quiet, and no third time."""
        if self._put_off:
            return False
        self.put_off(ranks)
        return True

    def wait_until(self, still_s: float, pausing: Iterable[int]) -> None:
        """Ranks that are waited for may only pause: the alarm comes again after so long a pause."""
        self._movers = frozenset(pausing)
        self._until_s = still_s or self.hang_after_s / 2

    def see(self, look: ProgressLook) -> Alarm | Resumed | Working | None:
        """Take one look into account; says at most once that this quiet is a hang."""
        resumed = self.glance(look)
        if resumed is not None or self.moves:
            return resumed
        quiet = look.time_s - (self._quiet_since_s or 0.0)
        if self._movers and look.ranks:
            return self._again(look, quiet)
        if self._alarmed or not look.ranks:
            return None
        limit = self._limit_reached(look, quiet)
        if limit is None:
            return self._tell_of_work(look, quiet)
        self._alarmed, self._limit_s = True, limit
        self._note_calls()
        return replace(_alarm(look, quiet, limit), still_s=self.still_s)

    def glance(self, look: ProgressLook) -> Resumed | None:
        """Take one look into account that raises no alarm: what falls due is left to `see`.

        For looks while an alarm is worked up, when no other look can be taken.
        """
        if self._quiet_since_s is None:
            self._restart(look.time_s)
        self._excuse_own_sleep(look.time_s)
        unseen_s = min(look.time_s - self._last_look_s, 2 * self.interval_s)
        # Counters of groups are noted once a tick: what only they tell may be so old.
        unseen_s += TICK_S * self._is_told_late(look)
        self._last_look_s, self._newest = look.time_s, look.ranks
        if self._moved(look):
            return self._progress(look.time_s, unseen_s)
        self._had_waiting |= any(rank.waiting is not False for rank in look.ranks)
        self._weigh(look)
        self._look_for_left(look)
        return None

    def _look_for_left(self, look: ProgressLook) -> None:
        """Note who has left its call since the alarm, or the job, having made its last call.

        What the first does from then on may be a pause; the others wait for no call any more.
        """
        ended = {rank.pid: rank.ended for rank in look.ranks}
        gone_on = (rank for (pid, rank), was in self._in_call.items() if ended.get(pid) != was)
        left = tuple(sorted(gone_on))
        if left != self.left:
            self.left, self._still_since_s = left, look.time_s

    def _note_calls(self) -> None:
        """At an alarm: who waits in a call, and in which, as far as numbers tell."""
        self._in_call = {(r.pid, r.rank): r.ended for r in self._newest if r.waiting}
        self.left = ()

    def _weigh(self, look: ProgressLook) -> None:
        """Note how long nothing has moved, and no rank worked, of those that may be waited for."""
        if self._is_out_of_view(look):
            self._still_since_s = look.time_s
        if not _is_shut(look):
            self._open_s = look.time_s
        watched = [rank for rank in look.ranks if not self._movers or rank.rank in self._movers]
        works = any(rank.works for rank in watched)
        if self.auto and not self._movers:  # A rank that waits may spin, which is no work.
            watched = [rank for rank in watched if not rank.waiting]
        if any(rank.busy for rank in watched) or (self.auto and works):
            self.longest_still_s = max(self.longest_still_s, look.time_s - self._still_since_s)
            self._still_since_s = look.time_s
        if works:
            self.longest_workless_s = max(self.longest_workless_s, look.time_s - self._worked_s)
            self._worked_s = look.time_s

    def _is_out_of_view(self, look: ProgressLook) -> bool:
        """Whether one whose work put an alarm off was seen on another node, and is not now."""
        seen = {rank.rank for rank in look.ranks}
        return any(-1 - rank in self._before for rank in self._movers - seen)

    def _tell_of_work(self, look: ProgressLook, quiet: float) -> Working | None:
        """Once a quiet, where work alone has kept it from being an alarm."""
        ranks = tuple(sorted(rank.rank for rank in look.ranks if rank.works))
        usual = max(self.hang_after_s, SURVIVED_FACTOR * self.longest_waiting_s)
        if not (self.auto and self._had_waiting and ranks) or self._told or quiet < usual:
            return None
        self._told = True
        return Working(ranks, quiet)

    def _again(self, look: ProgressLook, quiet: float) -> Alarm | None:
        """The alarm once more, where those whose work put it off have stood still."""
        still = self.still_s
        if still < self._until_s:
            return None
        waiting = tuple(sorted(r.rank for r in look.ranks if r.waiting))
        who = rank_phrase(sorted(self._movers))
        self._movers = frozenset()
        self._note_calls()
        text = f"no call has finished for {quiet:.0f} s, and {who} stood still for {still:.0f} s"
        return Alarm(quiet, self._until_s, waiting, text, again=True, still_s=still)

    def forget_alarm(self) -> None:
        """What was announced is over without a verdict for all: the alarm may be raised again."""
        self._alarmed = False

    def told_of_hang(self) -> None:
        """Another node has raised the alarm: what finishes from now on means that it moves on."""
        self._alarmed = True
        self._note_calls()

    def _limit_reached(self, look: ProgressLook, quiet: float) -> float | None:
        """The limit that this quiet has passed, or None."""
        still = min(quiet, look.time_s - self._still_since_s)
        if (limit := self._auto_limit(look)) is not None and still >= limit:
            return limit
        if self.auto and look.time_s - self._open_s >= (limit := self._shut_limit()):
            return limit
        if any(rank.coming for rank in look.ranks) and still < self.hang_after_s:
            limit = BUSY_FACTOR * self.hang_after_s  # Imports, data that are read before.
            return limit if quiet >= limit else None
        if self._had_waiting:
            return self._limit_of_waiting(look, quiet)
        normal = IDLE_FACTOR * max(self.longest_waiting_s, self.longest_idle_s)
        limit = max(self.hang_after_s, normal)
        if still >= limit:
            return limit
        limit = max(BUSY_FACTOR * self.hang_after_s, normal)
        return limit if quiet >= limit else None

    def _limit_of_waiting(self, look: ProgressLook, quiet: float) -> float | None:
        """The limit while calls wait: with `auto` work counts, and is waited for much longer."""
        if not self.auto:
            limit = max(self.hang_after_s, SURVIVED_FACTOR * self.longest_waiting_s)
            return limit if quiet >= limit else None
        workless = min(quiet, look.time_s - self._worked_s)
        limit = max(self.hang_after_s, SURVIVED_FACTOR * self.longest_workless_s)
        if workless >= limit:
            return limit
        limit = max(BUSY_FACTOR * self.hang_after_s, SURVIVED_FACTOR * self.longest_waiting_s)
        return limit if quiet >= limit else None

    def _auto_limit(self, look: ProgressLook) -> float | None:
        """After how long without any movement this job is stuck, by its own rhythm; None: unknown.

        Only while calls wait: ranks between two phases of a program have no rhythm. And only where
        all ranks are seen, because those of other nodes may work; or where their node is lost, of
        which the others need not wait to learn. Nothing is ended for what is not seen.
        """
        known = self.auto and self._had_waiting and self.seen >= AUTO_AFTER
        if not known or (look.elsewhere and not look.lost):
            return None
        return min(max(AUTO_LEAST_S, AUTO_FACTOR * self.longest_still_s), self.hang_after_s)

    def _shut_limit(self) -> float:
        """How long all ranks may stand in calls, and none computes, reads or writes.

        What ranks do between calls has a rhythm that the first minute does not show. Here no rank
        is between calls, and none is left that could end what the others wait for.
        """
        return min(max(AUTO_LEAST_S, AUTO_FACTOR * self.longest_shut_s), self.hang_after_s)

    def forget_ranks(self) -> None:
        """The processes were replaced (a new attempt): the quiet begins again, history stays."""
        self._before.clear()
        self._restart(self._last_look_s)

    def _excuse_own_sleep(self, time_s: float) -> None:
        slept = time_s - self._last_look_s - self.interval_s
        if slept > max(5 * self.interval_s, 2.0) and self._quiet_since_s is not None:
            self._quiet_since_s += slept
            self._still_since_s += slept
            self._worked_s += slept
            self._open_s += slept

    def _moved(self, look: ProgressLook) -> bool:
        """Whether a rank has finished a call; after an alarm, whether it went on as well."""
        self._meet_those_of_other_nodes(look)
        moved = any(self._has_moved(rank) for rank in look.ranks)
        if moved or not self._alarmed:
            self._before = {rank.pid: rank for rank in look.ranks}
        return moved

    def _meet_those_of_other_nodes(self, look: ProgressLook) -> None:
        """Ranks that come into view were there before: what they have done by then is no news."""
        for rank in look.ranks if look.wide else ():
            if rank.pid < 0:
                self._before.setdefault(rank.pid, rank)

    def _tells_by_counters(self, rank: RankProgress) -> bool:
        """Whether nothing but its counters may tell that calls have finished."""
        before = self._before.get(rank.pid, _UNKNOWN)
        return rank.finished - rank.counted == before.finished - before.counted

    def _is_told_late(self, look: ProgressLook) -> bool:
        """Whether only counters tell of what has finished since the last look."""
        return all(map(self._tells_by_counters, look.ranks))

    def _has_moved(self, rank: RankProgress) -> bool:
        before = self._before.get(rank.pid, _UNKNOWN)
        finished = rank.finished != before.finished
        return finished and not (self._alarmed and rank.begun == before.begun)

    def _progress(self, time_s: float, unseen_s: float) -> Resumed | None:
        """The quiet is over and was survived, with what may have passed of it before a look.

        Without that a pause would be taken for shorter than it was, and the next for a hang.
        """
        self.seen += 1
        quiet = time_s - (self._quiet_since_s or time_s)
        self.longest_still_s = max(self.longest_still_s, time_s - self._still_since_s)
        self.longest_workless_s = max(self.longest_workless_s, time_s - self._worked_s)
        self.longest_shut_s = max(self.longest_shut_s, time_s - self._open_s)
        if self._had_waiting:
            self.longest_waiting_s = max(self.longest_waiting_s, quiet + self._unseen_s)
        else:
            self.longest_idle_s = max(self.longest_idle_s, quiet + self._unseen_s)
        resumed = Resumed(quiet) if self._alarmed else None
        self._restart(time_s)
        self._unseen_s = unseen_s
        return resumed

    def _restart(self, time_s: float) -> None:
        self._quiet_since_s = self._still_since_s = self._last_look_s = self._worked_s = time_s
        self._open_s = time_s
        self._had_waiting = self._alarmed = self._told = False
        self._movers, self._put_off, self._until_s = frozenset(), 0, 0.0
        self._in_call, self.left = {}, ()


def _is_shut(look: ProgressLook) -> bool:
    """Whether all ranks of the job stand in calls, and none of them does anything."""
    inside = all(rank.inside and not (rank.busy or rank.works) for rank in look.ranks)
    return bool(look.ranks) and inside and not look.elsewhere


def _alarm(look: ProgressLook, quiet: float, limit: float) -> Alarm:
    waiting = tuple(sorted(r.rank for r in look.ranks if r.waiting))
    here = "" if look.wide else " here"
    if look.ranks and all(rank.waiting is None for rank in look.ranks):
        text = f"the ranks{here}, whose calls are not seen, make no progress for {quiet:.0f} s"
        return Alarm(quiet, limit, waiting, text)
    state = (
        f"{len(waiting)} of {len(look.ranks)} ranks{here} wait in a call"
        if waiting
        else "no call is pending, and the ranks have paused longer than ever in this job"
    )
    return Alarm(quiet, limit, waiting, f"no call has finished for {quiet:.0f} s while {state}")
