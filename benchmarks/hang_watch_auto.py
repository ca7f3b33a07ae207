"""How often `--hang-after auto` cries wolf: 1,000 simulated job-hours with a look every second.

Each job of 10 hours compiles, trains in steps of 0.1 to 0.9 s, compiles again now and then, saves
checkpoints and evaluates on one rank while the others wait, and at last hangs. A rank that works is
seen to work, but for stretches in which it waits for storage, when nothing of it moves, and others
in which it computes in one line, as a rank that spins does. Every other job hangs by spinning.
"""

from __future__ import annotations

import random
import sys
from bisect import bisect
from dataclasses import dataclass, field

from benchmarks.figures import ROOT, Section, show
from benchmarks.plot import bars
from unhang.run.watching.watch import (
    Alarm,
    HangWatch,
    ProgressLook,
    RankProgress,
    Working,
)

__all__ = ["main"]

PICTURE = ROOT / "docs" / "images" / "false-alarms.svg"
BINS_S = (5, 15, 60, 120, 300, 600)
HANG_AFTER_S = 300.0
HOURS, JOBS = 10, 100
STORAGE_S, STORAGE_SPREAD = 1.0, 0.8
"""How long storage keeps a rank still: median, and spread of its logarithm."""

LINE_S, LINE_SPREAD = 5.0, 1.0
"""The same of a single long computation."""


@dataclass
class _Job:
    """One simulated job, its clock and its watch."""

    dice: random.Random
    watch: HangWatch = field(default_factory=lambda: HangWatch(HANG_AFTER_S, 1.0, auto=True))
    now_s: float = 0.0
    finished: int = 0
    told: int = 0

    def look(self, *, waiting: bool, busy: bool, works: bool = False) -> bool:
        """One second later; whether that raised an alarm."""
        self.now_s += 1.0
        ranks = (
            RankProgress(0, 10, self.finished, self.finished, False, busy, works=works),  # noqa: FBT003 - waiting
            RankProgress(1, 11, self.finished, self.finished, waiting=waiting, busy=False),
        )
        event = self.watch.see(ProgressLook(self.now_s, ranks))
        self.told += isinstance(event, Working)
        return isinstance(event, Alarm)

    def pause(self, seconds: float) -> int:
        """Rank 0 works and the others wait; returns the alarms."""
        alarms, still, line = 0, 0.0, 0.0
        for _ in range(round(seconds)):
            if still <= 0 and self.dice.random() < 0.02:
                still = self.around(STORAGE_S, STORAGE_SPREAD)
            if line <= 0 and self.dice.random() < 0.01:
                line = self.around(LINE_S, LINE_SPREAD)
            busy = still <= 0
            alarms += self.look(waiting=True, busy=busy, works=busy and line <= 0)
            still, line = still - 1, line - 1
        self.finished += 1
        return alarms

    def around(self, median_s: float, spread: float) -> float:
        """A length of time: log-normal, at most an hour."""
        return min(self.dice.lognormvariate(0, spread) * median_s, 3600.0)

    def train(self, seconds: float) -> int:
        """Steps of under a second: every look sees progress."""
        alarms = 0
        for _ in range(round(seconds)):
            self.finished += 1
            alarms += self.look(waiting=True, busy=True)
        return alarms


def main(*, quick: bool = False) -> Section:
    """Simulate; `quick` takes a tenth of the jobs."""
    jobs = JOBS // 10 if quick else JOBS
    tally = {name: [0, 0] for name in ("compilation", "training", "checkpoint", "evaluation")}
    delays: dict[bool, list[float]] = {False: [], True: []}
    pauses = {what: [0] * (len(BINS_S) + 1) for what in ("pauses", "told as work", "alarms")}
    for number in range(jobs):
        job = _Job(random.Random(number))  # noqa: S311 - a simulation
        lengths = {"compilation": (60.0, 0.8), "checkpoint": (job.dice.choice((2.0, 10, 60)), 0.4),
                   "evaluation": (job.dice.choice((20.0, 60, 300)), 0.4)}  # fmt: skip
        what = "compilation"
        while job.now_s < HOURS * 3600:
            seconds, told = job.around(*lengths[what]), job.told
            alarms = job.pause(seconds)
            _count(tally[what], alarms)
            for row, count in zip(pauses.values(), (1, job.told - told, alarms), strict=True):
                row[bisect(BINS_S, seconds)] += count
            _count(tally["training"], job.train(job.dice.uniform(300, 1800)))
            what = job.dice.choices(list(lengths), (1, 20, 6))[0]
        spins = bool(number % 2)
        delays[spins].append(_hang(job, spins=spins))
    names = [f"< {low} s" for low in BINS_S] + [f"≥ {BINS_S[-1]} s"]
    title = f"Healthy pauses of {jobs * HOURS:,} simulated job-hours, by their length"
    if not quick:
        PICTURE.write_text(bars(title, names, pauses))
    rows = [(name, f"{count}", f"{alarms}") for name, (count, alarms) in tally.items()]
    told = sum(pauses["told as work"])
    rows.append(("pauses told as work, without an alarm", f"{told}", ""))
    for spins, what in ((False, "stands still"), (True, "spins")):
        found = sorted(delays[spins])
        middle, late, worst = found[len(found) // 2], found[int(len(found) * 0.95)], found[-1]
        text = f"alarm after {middle:.0f} s (median), {late:.0f} s (p95), {worst:.0f} s (worst)"
        rows.append((f"hang: a rank {what}; {text}", f"{len(found)}", ""))
    return Section(
        title="The hang watch with its own rhythm (auto)",
        text=f"{jobs * HOURS} simulated job-hours, a look a second, --hang-after auto.",
        columns=("what", "how many", "false alarms"),
        rows=tuple(rows),
    )


def _count(cell: list[int], alarms: int) -> None:
    cell[0] += 1
    cell[1] += alarms


def _hang(job: _Job, *, spins: bool) -> float:
    """Seconds until a real hang is found."""
    began_s = job.now_s
    while not job.look(waiting=True, busy=spins):
        pass
    return job.now_s - began_s


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
