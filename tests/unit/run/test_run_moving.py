"""What the looks of a run amount to: busy since the last one, working over half a minute."""

from __future__ import annotations

import pytest

from unhang.activity.looks import ProcessLook
from unhang.activity.thresholds import FEW_LINES, STARTING_LOOKS, WINDOW_LOOKS
from unhang.collect.processes import Process, ProcessTable
from unhang.run.watching import moving
from unhang.run.watching.moving import Movement

PID, CHILD = 1 << 30, (1 << 30) + 1
"""Beyond what Linux gives out: /proc knows nothing of them."""

NOTHING, BUSY, WORKING = (False, False), (True, False), (False, True)


class Looks:
    """Looks at one process, a second apart."""

    def __init__(self) -> None:
        self.movement = Movement()
        self.now = 0.0
        self.cpu = 0.0

    def look(
        self, *, cpu: float = 0.0, line: int = 0, state: str = "S", child: int = 0
    ) -> tuple[bool, bool]:
        """A second in which it used so much of a core, and ended at a line: busy, and works."""
        self.now += 1.0
        self.cpu += cpu
        rows = [Process(PID, 1, state=state, cpu_s=self.cpu)]
        if child:
            rows.append(Process(child, PID, state="S", cpu_s=0.0))
        self.movement.passes(PID, line, round(self.now * 1e9))
        seen = self.movement.weigh(PID, ProcessTable.of(rows), self.now)
        return seen.busy, bool(seen.steady)


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
    said = [looks.look(line=99) for _ in range(WINDOW_LOOKS)]
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
    said = [looks.look(line=7, child=CHILD + second) for second in range(STARTING_LOOKS + 1)]
    assert said == [NOTHING] * STARTING_LOOKS + [WORKING]


def test_a_monitor_beside_a_rank_that_hangs_is_no_work() -> None:
    """It starts a program every few seconds."""
    looks = Looks()
    said = {looks.look(line=7, child=CHILD + second // 5) for second in range(100)}
    assert said == {NOTHING}


def test_a_line_that_is_printed_is_movement_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alarm waits; whether it is printed again and again matters for the verdict."""
    looks = Looks()
    doing = []
    for said in (0, 20, 20, 45, 45):
        look = ProcessLook(0.0, said=said)
        monkeypatch.setattr(moving, "work_of", lambda *_, look=look, **__: look)
        doing.append(looks.look(line=7))
    assert doing == [NOTHING, BUSY, NOTHING, BUSY, NOTHING]


def test_looks_before_a_process_was_looked_into_are_forgotten() -> None:
    """That stops it for a moment, and wakes it."""
    looks = Looks()
    for _ in range(WINDOW_LOOKS + 5):
        looks.look()
    assert len(looks.movement.looks(PID)) == WINDOW_LOOKS
    looks.movement.disturbed([PID])
    assert looks.movement.looks(PID) == ()


def test_a_process_that_waits_for_a_disk_is_busy() -> None:
    """The kernel says so; that may take longer than a rhythm lets one guess."""
    looks = Looks()
    monitored = looks.look()
    table = ProcessTable.of([Process(PID, 1, state="D", cpu_s=0.0)])
    assert (monitored, looks.movement.weigh(PID, table, 9.0).busy) == (NOTHING, True)
