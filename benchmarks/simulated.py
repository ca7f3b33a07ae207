"""How often the hang watch and the pace cry wolf, and how soon they are right: simulated jobs.

The pauses are drawn from wide distributions, on purpose wider than what most jobs do; the draws
are seeded.
"""

from __future__ import annotations

import random
from bisect import bisect
from dataclasses import dataclass

from benchmarks.drawing import bars
from benchmarks.harness import ROOT, Section, placed
from unhang.model import SlowRank
from unhang.run.watching.pace import Arrival, Pace
from unhang.run.watching.pacing import EVERY_S, SUSPECTED_S
from unhang.run.watching.watch import Alarm, HangWatch, ProgressLook, RankProgress, Working

HANG_AFTER_S = 300.0


def _count(cell: list[int], alarms: int) -> None:
    cell[0] += 1
    cell[1] += alarms


def _drawn(dice: random.Random, median_s: float, spread: float, most_s: float) -> float:
    """A length of time: log-normal, with a limit."""
    return min(dice.lognormvariate(0, spread) * median_s, most_s)


@dataclass
class _Job:
    """One simulated job of two ranks, its clock and its watch."""

    dice: random.Random
    watch: HangWatch
    look_s: float
    now_s: float = 0.0
    finished: int = 0
    told: int = 0

    def look(self, *, waiting: bool, busy: bool, works: bool = False) -> bool:
        """Look once more, some seconds later; whether that raised an alarm."""
        self.now_s += self.look_s
        seen = self.finished
        ranks = (
            RankProgress(0, 10, seen, seen, waiting=False, busy=busy, works=works),
            RankProgress(1, 11, seen, seen, waiting=waiting, busy=False),
        )
        event = self.watch.see(ProgressLook(self.now_s, ranks))
        self.told += isinstance(event, Working)
        return isinstance(event, Alarm)

    def hang(self, *, spins: bool = False) -> float:
        """Seconds until a real hang is found."""
        began_s = self.now_s
        while not self.look(waiting=True, busy=spins):
            pass
        return self.now_s - began_s


# ------------------------------------------------------------------ a time that was given

LOOK_S, HOURS, JOBS = 5.0, 12, 200


def _spend(job: _Job, seconds: float, *, moves: bool, waiting: bool) -> int:
    """Let time pass; returns how many alarms were raised."""
    alarms = 0
    for _ in range(max(1, round(seconds / LOOK_S))):
        job.finished += moves
        alarms += job.look(waiting=waiting, busy=True)
    job.finished += 1
    return alarms


def hang_watch(*, quick: bool) -> Section:
    """--hang-after 300, a look in 5 s; `quick` takes a fortieth of the jobs.

    Each job compiles, trains, saves checkpoints while its peers wait in a barrier, evaluates
    without calls, and at last hangs.
    """
    jobs = JOBS // 40 if quick else JOBS
    tally = {"first compilation": [0, 0], "checkpoint": [0, 0], "evaluation": [0, 0]}
    delays = []
    for number in range(jobs):
        dice = random.Random(number)  # noqa: S311 - a simulation
        job = _Job(dice, HangWatch(HANG_AFTER_S, LOOK_S), LOOK_S)
        checkpoint_s = dice.choice((5, 20, 60, 120, 240))
        evaluation_s = dice.choice((30, 120, 600))

        def pause(what: str, median_s: float, spread: float, *, waiting: bool) -> None:
            seconds = _drawn(dice, median_s, spread, 7200.0)  # noqa: B023 - called at once
            _count(tally[what], _spend(job, seconds, moves=False, waiting=waiting))  # noqa: B023 - same

        pause("first compilation", 180, 0.8, waiting=False)
        while job.now_s < HOURS * 3600:
            _spend(job, dice.uniform(600, 3600), moves=True, waiting=True)
            pause("checkpoint", checkpoint_s, 0.25, waiting=True)
            if dice.random() < 0.3:
                pause("evaluation", evaluation_s, 0.4, waiting=False)
        delays.append(job.hang())
    rows = [
        (name, f"{pauses}", f"{alarms}", f"{100 * (1 - alarms / max(pauses, 1)):.2f} %")
        for name, (pauses, alarms) in tally.items()
    ]
    middle, _, worst = placed(delays)
    rows.append(("hang found after, median", "", "", f"{middle:.0f} s"))
    rows.append(("hang found after, worst", "", "", f"{worst:.0f} s"))
    return Section(
        title="The hang watch on healthy pauses",
        text=f"{jobs} simulated jobs of {HOURS} hours, --hang-after 300, medians of checkpoints "
        "from 5 to 240 s and of evaluations from 30 to 600 s.",
        columns=("pause", "how many", "false alarms", "without alarm"),
        rows=tuple(rows),
    )


# ------------------------------------------------------------------ the job's own rhythm

PICTURE = ROOT / "docs" / "images" / "false-alarms.svg"
BINS_S = (5, 15, 60, 120, 300, 600)
AUTO_HOURS, AUTO_JOBS = 10, 100
STORAGE_S, STORAGE_SPREAD = 1.0, 0.8
"""How long storage keeps a rank still: median, and spread of its logarithm."""

LINE_S, LINE_SPREAD = 5.0, 1.0
"""The same of a single long computation."""


def _pause(job: _Job, seconds: float) -> int:
    """Rank 0 works and the others wait; returns the alarms."""
    alarms, still, line = 0, 0.0, 0.0
    for _ in range(round(seconds)):
        if still <= 0 and job.dice.random() < 0.02:
            still = _drawn(job.dice, STORAGE_S, STORAGE_SPREAD, 3600.0)
        if line <= 0 and job.dice.random() < 0.01:
            line = _drawn(job.dice, LINE_S, LINE_SPREAD, 3600.0)
        busy = still <= 0
        alarms += job.look(waiting=True, busy=busy, works=busy and line <= 0)
        still, line = still - 1, line - 1
    job.finished += 1
    return alarms


def _train(job: _Job, seconds: float) -> int:
    """Steps of under a second: every look sees progress."""
    alarms = 0
    for _ in range(round(seconds)):
        job.finished += 1
        alarms += job.look(waiting=True, busy=True)
    return alarms


def hang_watch_auto(*, quick: bool) -> Section:
    """1,000 job-hours with a look every second; `quick` takes a fiftieth of the jobs.

    Each job of 10 hours compiles, trains in steps of 0.1 to 0.9 s, compiles again now and then,
    saves checkpoints and evaluates on one rank while the others wait, and at last hangs. A rank
    that works is seen to work, but for stretches in which it waits for storage, when nothing of it
    moves, and others in which it computes in one line, as a rank that spins does. Every other job
    hangs by spinning.
    """
    jobs = AUTO_JOBS // 50 if quick else AUTO_JOBS
    tally = {name: [0, 0] for name in ("compilation", "training", "checkpoint", "evaluation")}
    delays: dict[bool, list[float]] = {False: [], True: []}
    pauses = {what: [0] * (len(BINS_S) + 1) for what in ("pauses", "told as work", "alarms")}
    for number in range(jobs):
        dice = random.Random(number)  # noqa: S311 - a simulation
        job = _Job(dice, HangWatch(HANG_AFTER_S, 1.0, auto=True), 1.0)
        lengths = {"compilation": (60.0, 0.8), "checkpoint": (dice.choice((2.0, 10, 60)), 0.4),
                   "evaluation": (dice.choice((20.0, 60, 300)), 0.4)}  # fmt: skip
        what = "compilation"
        while job.now_s < AUTO_HOURS * 3600:
            seconds, told = _drawn(dice, *lengths[what], 3600.0), job.told
            alarms = _pause(job, seconds)
            _count(tally[what], alarms)
            for row, count in zip(pauses.values(), (1, job.told - told, alarms), strict=True):
                row[bisect(BINS_S, seconds)] += count
            _count(tally["training"], _train(job, dice.uniform(300, 1800)))
            what = dice.choices(list(lengths), (1, 20, 6))[0]
        spins = bool(number % 2)
        delays[spins].append(job.hang(spins=spins))
    names = [f"< {low} s" for low in BINS_S] + [f"≥ {BINS_S[-1]} s"]
    title = f"Healthy pauses of {jobs * AUTO_HOURS:,} simulated job-hours, by their length"
    if not quick:
        PICTURE.write_text(bars(title, names, pauses))
    rows = [(name, f"{count}", f"{alarms}") for name, (count, alarms) in tally.items()]
    told = sum(pauses["told as work"])
    rows.append(("pauses told as work, without an alarm", f"{told}", ""))
    for spins, what in ((False, "stands still"), (True, "spins")):
        middle, late, worst = placed(delays[spins])
        text = f"alarm after {middle:.0f} s (median), {late:.0f} s (p95), {worst:.0f} s (worst)"
        rows.append((f"hang: a rank {what}; {text}", f"{len(delays[spins])}", ""))
    return Section(
        title="The hang watch with its own rhythm (auto)",
        text=f"{jobs * AUTO_HOURS} simulated job-hours, a look a second, --hang-after auto.",
        columns=("what", "how many", "false alarms"),
        rows=tuple(rows),
    )


# ------------------------------------------------------------------ slow ranks

BEGINS_S, KEPT = 60.0, 2000
HEALTHY_HOURS = 100
SLOW_JOBS = 40
SIZES = (4, 8, 16, 64)


class _Paced:
    """One job and its pace.

    Steps of 50 to 800 ms in 1, 3 or 8 calls, jitter of 1 to 10 % a call, hosts that differ by some
    1 %, a slow first step, checkpoints on one rank, evaluations on one or on all, collections of
    garbage.
    """

    def __init__(self, seed: int, ranks: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a simulation
        self.ranks = range(ranks)
        self.step_s = self.dice.choice((0.05, 0.1, 0.25, 0.5, 0.8))
        self.calls = self.dice.choice((1, 3, 8))
        self.jitter = self.dice.choice((0.01, 0.03, 0.06, 0.1))
        self.hosts = [1 + self.dice.gauss(0, 0.008) for _ in self.ranks]
        self.every_s = [self.dice.uniform(20, 120), self.dice.uniform(60, 300)]
        self.next_s = list(self.every_s)
        self.now_s, self.seq = 0.0, 0
        self.newest: dict[int, list[Arrival]] = {rank: [] for rank in self.ranks}
        self.pace = Pace()
        self.looks = 0

    def pauses(self) -> dict[int, float]:
        """What ranks do beside their step now: warm-up, checkpoint, evaluation, garbage."""
        dice = self.dice
        if not self.seq:
            return {rank: dice.uniform(2, 20) for rank in self.ranks}
        if self.now_s > self.next_s[0]:
            self.next_s[0] = self.now_s + self.every_s[0]
            return {0: dice.uniform(0.2, 8)}
        if self.now_s > self.next_s[1]:
            self.next_s[1] = self.now_s + self.every_s[1]
            takes = dice.uniform(2, 20)
            who = self.ranks if dice.random() < 0.5 else [0]
            return {rank: takes * dice.uniform(0.9, 1.1) for rank in who}
        return {dice.choice(self.ranks): dice.uniform(0.05, 0.4)} if dice.random() < 0.01 else {}

    def step(self, slow: int, factor: float) -> None:
        """One step of all ranks."""
        pauses = self.pauses()
        for call in range(self.calls):
            arrived = [
                self.now_s
                + self.step_s / self.calls * host * max(0.3, self.dice.gauss(1, self.jitter))
                * (factor if rank == slow else 1.0)
                + (pauses.get(rank, 0.0) if not call else 0.0)
                for rank, host in enumerate(self.hosts)
            ]  # fmt: skip
            self.now_s, self.seq = max(arrived), self.seq + 1
            for rank, moment in enumerate(arrived):
                self.newest[rank].append(Arrival(0, self.seq, 10**18 + int(moment * 1e9)))

    def run(self, seconds: float, slow: int = -1) -> tuple[float, SlowRank] | None:
        """When a rank is first named, and how; `slow` is 10 % slower after a minute."""
        look_s = EVERY_S
        while self.now_s < seconds:
            self.step(slow, 1.1 if self.now_s > BEGINS_S else 1.0)
            if self.now_s >= look_s:
                self.newest = {rank: calls[-KEPT:] for rank, calls in self.newest.items()}
                found = self.pace.see(self.newest)
                if found is not None:
                    return self.now_s, found
                self.looks += 1
                look_s = self.now_s + (SUSPECTED_S if self.pace.suspects else EVERY_S)
        return None


def slow_ranks(*, quick: bool) -> Section:
    """How soon a slow rank is named, how often an innocent one; `quick` takes a few."""
    hours, jobs = (HEALTHY_HOURS // 50, SLOW_JOBS // 20) if quick else (HEALTHY_HOURS, SLOW_JOBS)
    named = [_Paced(n, (2, 4, 8, 16)[n % 4]).run(1800) is not None for n in range(2 * hours)]
    rows = [("healthy, 2 to 16", f"{hours} h", f"{sum(named)}", "", "", "")]
    for ranks in SIZES:
        found = [(n % ranks, _Paced(1000 + n, ranks).run(240, n % ranks)) for n in range(jobs)]
        wrong = sum(got is not None and got[1].rank != culprit for culprit, got in found)
        took = [
            got[0] - BEGINS_S
            for culprit, got in found
            if got is not None and got[1].rank == culprit
        ]
        middle, late, _ = placed(took)
        rows.append(
            (f"10 % slower, {ranks}", f"{jobs} jobs", f"{wrong}", f"{len(took)}",
             f"{middle:.0f} s", f"{late:.0f} s")
        )  # fmt: skip
    return Section(
        title="A slow rank of a job that moves",
        text=f"Simulated jobs, a look every {EVERY_S:.0f} s, after {SUSPECTED_S:.0f} s where a "
        "rank may be slow; from the moment a rank becomes slow to its name.",
        columns=("ranks", "how many", "innocent named", "right named", "median", "p95"),
        rows=tuple(rows),
    )


SECTIONS = {
    "hang_watch": hang_watch, "hang_watch_auto": hang_watch_auto, "slow_ranks": slow_ranks,
}  # fmt: skip
