"""Who works, who only computes, and who does nothing between two looks."""

from __future__ import annotations

import pytest

from unhang.collect.processes import Process, ProcessTable
from unhang.model import FEW_LINES
from unhang.run.watching import moving
from unhang.run.watching.moving import LOOKS, STARTS, Doing, Movement
from unhang.run.watching.procs import WorkDone

PID, CHILD = 1 << 30, (1 << 30) + 1
"""Beyond what Linux gives out: /proc knows nothing of them."""

NOTHING, BUSY, WORKING = Doing(), Doing(busy=True), Doing(works=True)


class Looks:
    """Looks at one process, a second apart."""

    def __init__(self) -> None:
        self.movement = Movement()
        self.now = 0.0
        self.cpu = 0.0

    def look(self, *, cpu: float = 0.0, line: int = 0, state: str = "S", child: int = 0) -> Doing:
        """A second in which it used so much of a core, and ended at a line."""
        self.now += 1.0
        self.cpu += cpu
        rows = [Process(PID, 1, state=state, cpu_s=self.cpu)]
        if child:
            rows.append(Process(child, PID, state="S", cpu_s=0.0))
        self.movement.passes(PID, line, round(self.now * 1e9))
        return self.movement.weigh(PID, ProcessTable.of(rows), self.now)


def test_the_first_look_tells_nothing() -> None:
    """What it did before is not known; afterwards CPU time tells."""
    looks = Looks()
    said = [looks.look(cpu=50.0), looks.look(cpu=1.0), looks.look(cpu=0.01)]
    assert said == [NOTHING, BUSY, NOTHING]


def test_a_rank_that_spins_is_busy_and_does_not_work() -> None:
    """All of a core, on the few lines of its loop."""
    looks = Looks()
    said = {looks.look(cpu=1.0, line=1 + second % FEW_LINES) for second in range(50)}
    assert said == {NOTHING, BUSY}


def test_a_rank_that_comes_past_many_lines_works_until_it_stops() -> None:
    """With or without CPU time; for some looks after its last line it still seems to."""
    looks = Looks()
    said = [looks.look(line=line) for line in range(1, 20)]
    assert said[FEW_LINES:] == [WORKING] * (19 - FEW_LINES)
    said = [looks.look(line=99) for _ in range(LOOKS)]
    assert said[-1] == NOTHING


def test_what_a_rank_came_past_before_the_quiet_is_forgotten() -> None:
    """Training comes past many lines, which says nothing of the hang that follows."""
    looks = Looks()
    for line in range(1, 20):
        looks.look(line=line)
    looks.movement.begin([PID])
    assert {looks.look(line=7) for _ in range(5)} == {NOTHING}


def test_one_new_process_after_another_is_work() -> None:
    """A compiler runs for every kernel, while the line of who waits for it stays the same."""
    looks = Looks()
    said = [looks.look(line=7, child=CHILD + second) for second in range(STARTS + 1)]
    assert said == [NOTHING] * STARTS + [WORKING]


def test_a_monitor_beside_a_rank_that_hangs_is_no_work() -> None:
    """It starts a program every few seconds."""
    looks = Looks()
    said = {looks.look(line=7, child=CHILD + second // 5) for second in range(100)}
    assert said == {NOTHING}


def test_one_line_is_said_and_two_are_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many say what they begin, and are stuck in it; who tries again says so again."""
    looks = Looks()
    doing = []
    for said, loops in ((0, False), (20, False), (20, False), (45, True), (45, True)):
        done = WorkDone(0.0, 0.0, 0, said=said)
        monkeypatch.setattr(moving, "work_of", lambda *_, done=done: done)
        doing.append(looks.look(line=7))
        assert looks.movement.says(PID) is loops
    assert doing == [NOTHING, BUSY, NOTHING, BUSY, NOTHING]


def test_who_goes_on_again_and_again_is_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a pipe that it reads from, for one, which brings a line now and then."""
    looks, fed = Looks(), []
    for woken in (7, 7, 9, 9, 9, 11, 11):
        done = WorkDone(0.0, 0.0, 0, woken=woken)
        monkeypatch.setattr(moving, "work_of", lambda *_, done=done: done)
        looks.look(line=7)
        fed.append(looks.movement.fed(PID))
    assert fed == [False] * 5 + [True] * 2


def test_who_has_started_what_works_is_helped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four hundredths of a core are enough on a crowded machine; a monitor needs less."""
    for cores, is_helped in ((0.04, True), (0.01, False)):
        looks = Looks()
        for at in range(9):
            done = WorkDone(float(at), 0.0, 0, helped_s=1.0 + cores * at)
            monkeypatch.setattr(moving, "work_of", lambda *_, done=done: done)
            looks.look(line=7)
        assert looks.movement.helped(PID) is is_helped


def test_who_sleeps_all_the_time_does_not_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who polls goes on for a moment; looking into a process wakes it, too, and does not count."""
    looks = Looks()
    slept = []
    for woken in (5, 5, 5, 5, 6, 7):
        done = WorkDone(0.0, 0.0, 0, woken=woken)
        monkeypatch.setattr(moving, "work_of", lambda *_, done=done: done)
        looks.look(line=7)
        slept.append(looks.movement.sleeps(PID))
    assert slept == [False, False, True, True, False, False]
    looks.movement.disturbed([PID])
    assert [(looks.look(), looks.movement.sleeps(PID))[1] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("speaks", [True, False])
def test_who_says_that_it_tries_again_is_asleep_sooner(
    monkeypatch: pytest.MonkeyPatch,
    speaks: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """Three looks after it has printed and gone to sleep; one that says nothing, after eight."""
    looks, slept = Looks(), []
    for at in range(14):
        done = WorkDone(float(at), 0.0, 0, woken=at >= 4, said=60 * (speaks and at >= 4))
        monkeypatch.setattr(moving, "work_of", lambda *_, done=done: done)
        looks.look(line=7)
        slept.append(looks.movement.sleeps(PID))
    first = 6 if speaks else 11
    assert slept == [False, False, True, True] + [False] * (first - 4) + [True] * (14 - first)


@pytest.mark.parametrize(
    ("woken", "ran_s", "works"),
    [
        (10, 0.009, True),  # a small batch ten times a second
        (10, 0.0013, False),  # a poll of a file as often
        (17, 0.0039, False),  # of an HTTP server
        (1000, 0.03, False),  # a thousand polls a second
        (1, 0.001, False),  # next to nothing
        (1, 0.003, True),  # a batch of an evaluation once a second
        (0, 1.0, False),  # it spins
        (0, 0.03, True),  # it computes, beside so many others that it gets 3 % of a core
        (0, 0.001, False),  # it stands still
    ],
)
def test_who_works_between_short_sleeps_is_told_from_polls(
    monkeypatch: pytest.MonkeyPatch,
    woken: int,
    ran_s: float,
    works: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """By its CPU time each time that it goes on, as measured of real polls; a second a look."""
    looks = Looks()
    told = []
    for at in range(4):
        done = WorkDone(float(at), 0.0, 0, woken=at * woken, ran_s=at * ran_s)
        monkeypatch.setattr(moving, "work_of", lambda *_, done=done: done)
        looks.look(line=7)
        told.append(looks.movement.turns(PID))
    assert told == [False, False, works, works]


@pytest.mark.parametrize(("ran_s", "works"), [(0.003, True), (0.0012, False)])
def test_who_works_between_long_sleeps_is_told_from_polls(
    monkeypatch: pytest.MonkeyPatch,
    ran_s: float,
    works: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """An evaluation with a pause of four seconds in each batch, and a poll of many files."""
    looks = Looks()
    told = []
    for at in range(12):
        done = WorkDone(float(at), 0.0, 0, woken=at // 4, ran_s=at // 4 * ran_s)
        monkeypatch.setattr(moving, "work_of", lambda *_, done=done: done)
        looks.look(line=7)
        told.append(looks.movement.turns(PID))
    assert told == [False] * 8 + [works] * 4


def test_who_waits_for_a_disk_is_busy() -> None:
    """The kernel says so; that may take longer than a rhythm lets one guess."""
    looks = Looks()
    assert [looks.look(), looks.look(state="D")] == [NOTHING, BUSY]
