"""How often the hang watch cries wolf: simulated healthy jobs with long pauses, at one look in 5 s.

Each job compiles, trains, saves checkpoints while its peers wait in a barrier, evaluates without
calls, and at last hangs. The pauses are drawn from wide distributions, on purpose wider than what
most jobs do; the draws are seeded.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

from benchmarks.figures import Section, show
from unhang.run.watching.watch import Alarm, HangWatch, ProgressLook, RankProgress

__all__ = ["main"]

HANG_AFTER_S = 300.0
LOOK_S = 5.0
HOURS = 12
JOBS = 200


@dataclass
class _Job:
    """One simulated job, its clock and its watch."""

    random: random.Random
    watch: HangWatch = field(default_factory=lambda: HangWatch(HANG_AFTER_S, LOOK_S))
    now_s: float = 0.0
    finished: int = 0

    def spend(self, seconds: float, *, moves: bool, waiting: bool, busy: bool) -> int:
        """Let time pass; returns how many alarms were raised."""
        alarms = 0
        for _ in range(max(1, round(seconds / LOOK_S))):
            self.now_s += LOOK_S
            self.finished += moves
            ranks = (
                RankProgress(0, 10, self.finished, self.finished, waiting=False, busy=busy),
                RankProgress(1, 11, self.finished, self.finished, waiting=waiting, busy=False),
            )
            alarms += isinstance(self.watch.see(ProgressLook(self.now_s, ranks)), Alarm)
        self.finished += 1
        return alarms

    def around(self, median_s: float, spread: float) -> float:
        """A pause: log-normal, never above two hours."""
        return min(self.random.lognormvariate(0, spread) * median_s, 7200.0)


def main(*, quick: bool = False) -> Section:
    """Simulate; `quick` takes a tenth of the jobs."""
    jobs = JOBS // 10 if quick else JOBS
    tally = {"first compilation": [0, 0], "checkpoint": [0, 0], "evaluation": [0, 0]}
    delays = []
    for number in range(jobs):
        job = _Job(random.Random(number))  # noqa: S311 - a simulation
        checkpoint_s = job.random.choice((5, 20, 60, 120, 240))
        evaluation_s = job.random.choice((30, 120, 600))
        _count(tally["first compilation"],
               job.spend(job.around(180, 0.8), moves=False, waiting=False, busy=True))  # fmt: skip
        while job.now_s < HOURS * 3600:
            job.spend(job.random.uniform(600, 3600), moves=True, waiting=True, busy=True)
            pause = job.around(checkpoint_s, 0.25)
            _count(tally["checkpoint"], job.spend(pause, moves=False, waiting=True, busy=True))
            if job.random.random() < 0.3:
                pause = job.around(evaluation_s, 0.4)
                _count(tally["evaluation"],
                       job.spend(pause, moves=False, waiting=False, busy=True))  # fmt: skip
        delays.append(_hang(job))
    delays.sort()
    rows = [
        (name, f"{pauses}", f"{alarms}", f"{100 * (1 - alarms / max(pauses, 1)):.2f} %")
        for name, (pauses, alarms) in tally.items()
    ]
    rows.append(("hang found after, median", "", "", f"{delays[len(delays) // 2]:.0f} s"))
    rows.append(("hang found after, worst", "", "", f"{delays[-1]:.0f} s"))
    return Section(
        title="The hang watch on healthy pauses",
        text=f"{jobs} simulated jobs of {HOURS} hours, --hang-after 300, medians of checkpoints "
        "from 5 to 240 s and of evaluations from 30 to 600 s.",
        columns=("pause", "how many", "false alarms", "without alarm"),
        rows=tuple(rows),
    )


def _count(cell: list[int], alarms: int) -> None:
    cell[0] += 1
    cell[1] += alarms


def _hang(job: _Job) -> float:
    """Seconds until a real hang is found."""
    began_s = job.now_s
    while not job.spend(LOOK_S, moves=False, waiting=True, busy=False):
        job.finished -= 1
    return job.now_s - began_s


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
