from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unhang.run.watching.watch import Alarm, HangWatch, ProgressLook, RankProgress, Resumed, Working


class Job:
    """Two ranks under a clock of our own; `play` lets seconds pass and collects what was said."""

    def __init__(self, hang_after_s: float = 10.0, *, auto: bool = False) -> None:
        self.watch = HangWatch(hang_after_s, auto=auto)
        self.now = 100.0
        self.finished = self.begun = 0

    def play(
        self, seconds: int, *, moves: bool = False, waiting: bool = True, busy: bool = False
    ) -> list[Alarm | Resumed]:
        """Let seconds pass; returns what the watch said."""
        said = []
        for _ in range(seconds):
            self.now += 1.0
            self.finished += moves
            self.begun += moves
            said.append(self.watch.see(self.look(waiting=waiting, busy=busy)))
        return [event for event in said if event is not None]

    def look(self, *, waiting: bool, busy: bool) -> ProgressLook:
        """The ranks as they are now."""
        ranks = (
            RankProgress(0, 50, self.finished, self.begun, waiting, busy),
            RankProgress(1, 51, self.finished, self.begun, waiting=False, busy=False),
        )
        return ProgressLook(self.now, ranks)


def test_a_call_that_waits_too_long_is_an_alarm_once() -> None:
    """Quiet with a waiting rank alarms at the limit, names who waits, and does not repeat."""
    job = Job()
    assert job.play(20, moves=True) == []
    assert job.play(9) == []
    (alarm,) = job.play(30)
    assert (alarm.quiet_s, alarm.waiting) == (10.0, (0,))


def test_a_job_that_moves_on_says_so_and_is_given_more_time() -> None:
    """After a false alarm of 15 s a pause of 25 s is normal, one of 35 s is not."""
    job = Job()
    job.play(5, moves=True)
    assert len(job.play(15)) == 1
    assert job.play(1, moves=True) == [Resumed(16.0)]
    assert job.play(25) == []
    job.play(1, moves=True)
    assert len(job.play(60)) == 1


def test_a_pause_may_have_begun_before_a_look_saw_it() -> None:
    """One of 2.5 s between two looks is survived as such, and one of 4.5 s is within its double."""
    job = Job(hang_after_s=4.0)
    job.play(3, moves=True)
    assert job.play(1) == []
    assert job.play(1, moves=True) == [], "the pause was of 1 to 3 s, and 2 s were seen"
    assert job.play(5) == []
    assert job.play(1, moves=True) == []


def test_counters_that_are_noted_once_a_second_tell_late_when_a_pause_began() -> None:
    """Their news come in the middle of a pause of 2.4 s: it was none of 1.9 s for all that."""

    def longest(*, counted: bool) -> float:
        watch, calls = HangWatch(4.0, interval_s=0.25), 0
        for quarter in range(40):
            calls += quarter % 10 == 0
            done = RankProgress(
                0, 50, calls, calls, waiting=True, busy=False, counted=calls if counted else 0
            )
            watch.see(ProgressLook(quarter / 4, (done,)))
        return watch.longest_waiting_s

    assert longest(counted=True) == longest(counted=False) + 1 == 3.75


def test_a_small_limit_is_not_put_off_by_steps_that_are_short_against_it() -> None:
    """What a pause may have been besides what was seen is little: a look, a tick of counters."""
    for hang_after_s, at_most_s in ((3.0, 6.0), (5.0, 7.0), (10.0, 10.5)):
        interval = hang_after_s / 10
        watch, now, calls = HangWatch(hang_after_s, interval_s=interval), 0.0, 0
        alarm = None
        while alarm is None:
            now += interval
            calls = min(int(now), 40)  # As counters tell it: steps of 0.3 s, noted once a second.
            rank = RankProgress(0, 50, calls, calls, waiting=True, busy=False, counted=calls)
            alarm = watch.see(ProgressLook(now, (rank,)))
        assert hang_after_s <= now - 40 <= at_most_s, (hang_after_s, now - 40)


def test_a_job_moves_in_the_look_that_saw_progress() -> None:
    """Only then may its ranks be asked for what costs them CPU time."""
    job = Job()
    job.play(2, moves=True)
    assert job.watch.moves
    job.play(1)
    assert not job.watch.moves
    job.play(1, moves=True)
    assert job.watch.moves


def test_a_call_that_is_given_up_is_no_progress() -> None:
    """Pending calls end when the job's own time-out comes; the rank has to go on to another one."""
    job = Job()
    job.play(5, moves=True)
    assert len(job.play(15)) == 1
    job.finished += 1
    assert job.play(5) == []
    job.begun += 1
    assert job.play(1) == [Resumed(21.0)]


def test_idle_ranks_may_compute_longer() -> None:
    """Without a pending call, ranks that compute get twelve times the limit, idle ones once."""
    computing, idle = Job(), Job()
    assert computing.play(119, waiting=False, busy=True) == []
    (alarm,) = computing.play(5, waiting=False, busy=True)
    assert alarm.waiting == ()
    assert len(idle.play(12, waiting=False)) == 1


def test_who_works_before_it_joins_is_waited_for() -> None:
    """Imports take longer than steps; who stands still, or works for ever, does not come."""

    def told(busy: range) -> list[int]:
        watch, said = HangWatch(6.0), []
        for second in range(100):
            joins = RankProgress(0, 50, 0, 0, waiting=True, busy=False)
            comes = RankProgress(1, 51, -1, -1, False, second in busy, coming=True)  # noqa: FBT003
            if watch.see(ProgressLook(100.0 + second, (joins, comes))):
                said.append(second)
        return said

    assert told(range(40)) == [45]
    assert told(range(100)) == [72]


def test_ranks_that_all_stand_in_calls_need_no_rhythm_for_an_alarm() -> None:
    """No rank is left that could end their waits; one that is outside, or works, may."""

    def told(*, inside: bool = True, busy: bool = False, elsewhere: bool = False) -> float | None:
        watch = HangWatch(300.0, auto=True)
        for second in range(100):
            ranks = [
                RankProgress(0, 50, 3, 4, waiting=True, busy=False, inside=True),
                RankProgress(1, 51, 3, 4, waiting=True, busy=busy, inside=inside),
            ]
            said = watch.see(ProgressLook(float(second), ranks, elsewhere=elsewhere))
            if isinstance(said, Alarm):
                return said.quiet_s
        return None

    assert told() == 8.0
    assert told(inside=False) is None
    assert told(busy=True) is None
    assert told(elsewhere=True) is None


def test_a_standstill_in_calls_that_was_survived_makes_the_next_limit() -> None:
    """A peer's answer may come by a thread of its own: five times as long is no accident."""
    watch, calls, alarms = HangWatch(300.0, auto=True), 0, []
    for second in range(60):
        calls += second == 6
        ranks = [
            RankProgress(rank, 50 + rank, calls, calls, waiting=True, busy=False, inside=True)
            for rank in (0, 1)
        ]
        if isinstance(said := watch.see(ProgressLook(float(second), ranks)), Alarm):
            alarms.append(said.quiet_s)
    assert alarms == [30.0]


def test_work_now_and_then_keeps_idle_ranks_from_an_alarm() -> None:
    """The stillness is counted from the last sign of work, not from the last call alone."""
    job = Job()
    for _ in range(4):
        assert job.play(8, waiting=False) == []
        assert job.play(1, waiting=False, busy=True) == []


def test_a_hang_that_another_node_has_seen_is_not_raised_again() -> None:
    """What finishes afterwards means that the job moves on."""
    job = Job()
    job.play(5, moves=True)
    job.play(3)
    job.watch.told_of_hang()
    assert job.play(30) == []
    assert job.play(1, moves=True) == [Resumed(34.0)]


def test_ranks_whose_calls_are_not_seen_alarm_when_they_stand_still() -> None:
    """Nothing is said of calls, of which nothing is known."""
    watch, said = HangWatch(10.0), []
    for second in range(40):
        ranks = [
            RankProgress(rank, 50 + rank, min(second, 20), 0, None, busy=False) for rank in (0, 1)
        ]
        said.append(watch.see(ProgressLook(float(second), ranks)))
    (alarm,) = [event for event in said if isinstance(event, Alarm)]
    assert alarm.waiting == ()
    assert alarm.reason == "the ranks here, whose calls are not seen, make no progress for 10 s"


def test_time_in_which_we_slept_ourselves_is_excused() -> None:
    """Ctrl-Z for an hour is no hang of the job."""
    job = Job()
    job.play(5, moves=True)
    job.play(3)
    job.now += 3600
    assert job.play(6) == []
    assert len(job.play(10)) == 1


def test_new_processes_begin_a_new_quiet() -> None:
    """After a restart the ranks get the whole limit again."""
    job = Job()
    job.play(5, moves=True)
    job.play(8)
    job.watch.forget_ranks()
    job.finished = 0
    assert job.play(9) == []


def test_no_ranks_no_alarm() -> None:
    """A command without ranks is never stuck."""
    watch = HangWatch(10.0)
    assert all(watch.see(ProgressLook(float(t), ())) is None for t in range(100))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), max_size=40))
def test_pauses_below_the_limit_never_alarm(pauses: Iterable[tuple[int, bool, bool]]) -> None:
    """Whatever a healthy job does between its calls, pauses shorter than the limit are its own."""
    job = Job()
    for seconds, waiting, busy in pauses:
        assert job.play(seconds, waiting=waiting, busy=busy) == []
        assert job.play(1, moves=True) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=20))
def test_every_real_hang_is_found(pauses: Iterable[int]) -> None:
    """However long the pauses were, a quiet without end alarms within twice the longest."""
    job = Job()
    job.play(2, moves=True)
    for seconds in pauses:
        job.play(seconds)
        job.play(1, moves=True)
    limit = max(10.0, 2 * job.watch.longest_waiting_s)
    assert len(job.play(int(limit) + 1)) == 1


def test_an_alarm_that_was_put_off_comes_again_once_the_work_ends() -> None:
    """As long as the rank that is waited for works it does not; then after the limit, once."""
    job = Job()
    job.play(5, moves=True)
    assert len(job.play(12)) == 1
    job.watch.put_off([0])
    assert job.watch.asks_for_work
    assert job.play(100, busy=True) == []
    (alarm,) = job.play(30)
    assert isinstance(alarm, Alarm)
    assert alarm.again
    assert "and rank 0 stood still for 10 s" in alarm.reason
    assert not job.watch.asks_for_work


def test_a_quiet_is_looked_into_before_its_alarm() -> None:
    """From a quarter of the limit on: who prints or sleeps is told by several looks alone."""
    job = Job()
    job.play(5, moves=True)
    asked = [(job.play(1), job.watch.asks_for_work)[1] for _ in range(6)]
    assert asked == [False, False, True, True, True, True]
    job.play(6)
    assert not job.watch.asks_for_work, "the alarm has come"


def test_an_alarm_that_is_put_off_again_waits_twice_as_long() -> None:
    """Work that does not show from outside is not looked at for ever."""
    job = Job()
    job.play(5, moves=True)
    assert len(job.play(12)) == 1
    for patience in (10, 20, 40):
        job.watch.put_off([0])
        assert job.play(patience - 1) == []
        assert len(job.play(1)) == 1


def test_an_alarm_that_other_nodes_left_unanswered_comes_again_as_soon_as_it_came() -> None:
    """They were late by seconds: that is no reason to leave a job for minutes that hangs."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    assert len(job.play(12)) == 1
    for patience in (8, 16, 32):
        job.watch.put_off([0], answers=True)
        assert job.play(patience - 1) == []
        (alarm,) = job.play(1)
        assert alarm.again


def test_an_alarm_beside_a_pause_comes_again_after_the_time_of_grace() -> None:
    """Whether or not it has stood still: only once, and not before so long a quiet."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    assert len(job.play(12)) == 1
    job.watch.wait_until(60.0, [0])
    assert job.play(47) == []
    (alarm,) = job.play(30)
    assert isinstance(alarm, Alarm)
    assert alarm.again
    assert (alarm.quiet_s, alarm.still_s) == (60.0, 60.0)
    assert job.play(200) == []


def test_a_pause_in_which_work_begins_is_waited_for() -> None:
    """Who computes when the time of grace is over is looked at once it stands still."""
    job = Job(10.0)
    job.play(5, moves=True)
    assert len(job.play(12)) == 1
    job.watch.wait_until(30.0, [0])
    assert job.play(40, busy=True) == []
    (alarm,) = job.play(40)
    assert (alarm.quiet_s, alarm.still_s) == (82.0, 30.0)


def test_a_job_that_moves_on_forgets_what_was_put_off() -> None:
    """The next quiet begins anew."""
    job = Job()
    job.play(5, moves=True)
    job.play(12)
    job.watch.put_off([0])
    assert [type(event) for event in job.play(1, moves=True)] == [Resumed]
    assert not job.watch.asks_for_work
    assert job.play(15) == []


def test_a_known_rhythm_makes_an_alarm_in_seconds() -> None:
    """Steps every second for a while: eight seconds in which nothing moves are a hang."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    (alarm,) = job.play(20)
    assert alarm.quiet_s == 8.0


def test_an_unknown_rhythm_is_not_judged_by() -> None:
    """The first steps compile: nobody knows yet how long this job may pause."""
    job = Job(300.0, auto=True)
    job.play(5, moves=True)
    assert job.play(120) == []


def test_whoever_works_while_others_wait_is_no_sudden_alarm() -> None:
    """Rank 1 evaluates, rank 0 waits for it and spins: only the long limit counts."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    said = []
    for _ in range(100):
        job.now += 1.0
        ranks = (
            RankProgress(0, 50, job.finished, job.begun, waiting=True, busy=True),
            RankProgress(1, 51, job.finished, job.begun, waiting=False, busy=True),
        )
        said.append(job.watch.see(ProgressLook(job.now, ranks)))
    assert set(said) == {None}
    assert job.watch.asks_for_work


def who_is_waited_for(job: Job, seconds: int, *, busy: bool, works: bool) -> list[object]:
    """Rank 0 waits, rank 1 does what is told; returns what the watch said."""
    said = []
    for _ in range(seconds):
        job.now += 1.0
        ranks = (
            RankProgress(0, 50, job.finished, job.begun, waiting=True, busy=True),
            RankProgress(1, 51, job.finished, job.begun, waiting=False, busy=busy, works=works),
        )
        said.append(job.watch.see(ProgressLook(job.now, ranks)))
    return [event for event in said if event is not None]


def test_a_job_with_long_standstills_is_given_longer_ones() -> None:
    """It has lived through 20 s in which nothing moved: 90 s are no alarm, 110 are."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    job.watch.longest_still_s = 20.0
    assert job.play(90) == []
    assert len(job.play(20)) == 1


def test_work_teaches_nothing_of_standstills() -> None:
    """After an evaluation of 200 s a hang is found as soon as before, but for the first looks."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    assert who_is_waited_for(job, 200, busy=True, works=True) == []
    job.play(5, moves=True)
    (alarm,) = job.play(20)
    assert alarm.quiet_s == 8.0


def test_work_is_told_once_and_is_no_alarm_until_it_stops() -> None:
    """An evaluation of half an hour; then nothing moves any more."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    assert who_is_waited_for(job, 1800, busy=True, works=True) == [Working((1,), 300.0)]
    (alarm,) = job.play(20)
    assert isinstance(alarm, Alarm)
    assert alarm.quiet_s == 1808.0


def test_a_rank_that_spins_is_an_alarm_after_the_usual_limit() -> None:
    """It computes and comes past no further line: from the beginning, or after it has worked."""
    spins, stops = Job(300.0, auto=True), Job(300.0, auto=True)
    for job in (spins, stops):
        job.play(30, moves=True)
    (alarm,) = who_is_waited_for(spins, 310, busy=True, works=False)
    assert isinstance(alarm, Alarm)
    assert alarm.quiet_s == 300.0
    who_is_waited_for(stops, 500, busy=True, works=True)
    assert len(who_is_waited_for(stops, 310, busy=True, works=False)) == 1


def test_work_without_end_is_an_alarm_at_last() -> None:
    """After twelve times the limit somebody should look."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    told, alarm = who_is_waited_for(job, 3700, busy=True, works=True)
    assert isinstance(told, Working)
    assert isinstance(alarm, Alarm)
    assert alarm.quiet_s == 3600.0


@pytest.mark.parametrize(("lost", "after_s"), [(False, 300.0), (True, 8.0)])
def test_ranks_of_other_nodes_may_work_unseen(after_s: float, *, lost: bool) -> None:
    """All ranks of this node wait: only the usual limit counts; but not for a node that is lost."""
    job = Job(300.0, auto=True)
    job.play(30, moves=True)
    said = []
    for _ in range(310):
        job.now += 1.0
        look = job.look(waiting=True, busy=False)
        said.append(job.watch.see(ProgressLook(look.time_s, look.ranks, True, lost)))  # noqa: FBT003 - elsewhere
    (alarm,) = [event for event in said if event is not None]
    assert isinstance(alarm, Alarm)
    assert alarm.quiet_s == after_s


@given(
    hang_after_s=st.integers(8, 80),
    grace_s=st.integers(1, 80),
    acting_s=st.integers(0, 40),
    interval_s=st.sampled_from([0.25, 1.0, 1.2, 5.0]),
)
@example(hang_after_s=12, grace_s=15, acting_s=3, interval_s=1.2)
@example(hang_after_s=52, grace_s=60, acting_s=9, interval_s=5.0)
@example(hang_after_s=55, grace_s=60, acting_s=6, interval_s=5.0)
@settings(max_examples=150, deadline=None)
def test_the_second_look_comes_whenever_a_pause_has_lasted(
    hang_after_s: int, grace_s: int, acting_s: int, interval_s: float
) -> None:
    """An alarm that falls due while the first one is worked up is kept for the next look."""
    watch, now = HangWatch(float(hang_after_s), interval_s=interval_s), 100.0

    def look(at_s: float) -> ProgressLook:
        ranks = (
            RankProgress(0, 50, 7, 7, waiting=True, busy=False),
            RankProgress(1, 51, 6, 6, waiting=False, busy=False),
        )
        return ProgressLook(at_s, ranks)

    watch.see(look(now))
    alarms: list[Alarm] = []
    while not alarms:
        now += interval_s
        alarms = [e for e in [watch.see(look(now))] if isinstance(e, Alarm)]
    now += acting_s  # dumps, stacks and the verdict: no look is taken
    assert watch.glance(look(now)) is None
    watch.wait_until(float(grace_s), [1])
    again: list[Alarm] = []
    until_s = now + grace_s + 2 * interval_s
    while now <= until_s:
        now += interval_s
        again += [e for e in [watch.see(look(now))] if isinstance(e, Alarm)]
    assert [event.again for event in again] == [True]
    assert again[0].still_s >= grace_s


def test_who_has_left_the_call_since_the_alarm() -> None:
    """Its time-out was handled: no call finished, and none of the two waits in it any more."""

    def look(at_s: float, *ended: int) -> ProgressLook:
        ranks = [
            RankProgress(n, 50 + n, 7, 7, waiting=n != 1, busy=False, ended=each)
            for n, each in enumerate(ended)
        ]
        return ProgressLook(at_s, ranks)

    watch = HangWatch(10.0, interval_s=10.0)
    watch.see(look(100.0, 7, 6, 7))
    assert isinstance(watch.see(look(110.0, 7, 6, 7)), Alarm)
    assert (watch.glance(look(112.0, 7, 6, 7)), watch.left) == (None, ())
    assert (watch.glance(look(114.0, 8, 7, 8)), watch.left) == (None, (0, 2))
    watch.wait_until(30.0, watch.left)
    assert watch.see(look(140.0, 8, 7, 8)) is None, "their pause is one of 26 s"
    assert isinstance(watch.see(look(144.0, 8, 7, 8)), Alarm)
    assert (watch.glance(look(146.0, 8, 7, 8)), watch.left) == (None, ())


def test_another_node_s_alarm_notes_the_calls_that_ranks_here_wait_in() -> None:
    """Of its ranks, too, nothing is ended in a call that has failed meanwhile."""
    watch = HangWatch(10.0)
    watch.see(ProgressLook(0.0, (RankProgress(0, 50, 7, 7, waiting=True, busy=False, ended=3),)))
    watch.told_of_hang()
    failed = RankProgress(0, 50, 7, 7, waiting=True, busy=False, ended=4)
    assert watch.glance(ProgressLook(4.0, (failed,))) is None
    assert watch.left == (0,)


def test_who_has_left_the_job_since_the_alarm_waits_for_no_call() -> None:
    """Its last calls ended, and it did, between two looks."""

    def look(at_s: float, *ranks: int) -> ProgressLook:
        seen = [RankProgress(n, 50 + n, 7, 7, waiting=True, busy=False, ended=3) for n in ranks]
        return ProgressLook(at_s, seen)

    watch = HangWatch(10.0, interval_s=10.0)
    watch.see(look(100.0, 0, 1))
    assert isinstance(watch.see(look(110.0, 0, 1)), Alarm)
    assert (watch.glance(look(112.0, 1)), watch.left) == (None, (0,))
    assert (watch.glance(look(114.0)), watch.left) == (None, (0, 1))
