"""How soon a slow rank of a job that moves is named, how often an innocent one: simulated jobs.

Steps of 50 to 800 ms in 1, 3 or 8 calls, jitter of 1 to 10 % a call, hosts that differ by some 1 %,
a slow first step, checkpoints on one rank, evaluations on one or on all, collections of garbage.
"""

from __future__ import annotations

import random
import sys

from benchmarks.figures import Section, show
from unhang.model import SlowRank
from unhang.run.watching.pace import Arrival, Pace
from unhang.run.watching.pacing import EVERY_S, SUSPECTED_S

__all__ = ["main"]

BEGINS_S, KEPT = 60.0, 2000
HEALTHY_HOURS = 100
JOBS = 40
SIZES = (4, 8, 16, 64)


class _Job:
    """One job and its pace."""

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


def main(*, quick: bool = False) -> Section:
    """Simulate; `quick` takes a tenth."""
    hours, jobs = (HEALTHY_HOURS // 10, JOBS // 10) if quick else (HEALTHY_HOURS, JOBS)
    named = [_Job(n, (2, 4, 8, 16)[n % 4]).run(1800) is not None for n in range(2 * hours)]
    rows = [("healthy, 2 to 16", f"{hours} h", f"{sum(named)}", "", "", "")]
    for ranks in SIZES:
        found = [(n % ranks, _Job(1000 + n, ranks).run(240, n % ranks)) for n in range(jobs)]
        wrong = sum(got is not None and got[1].rank != culprit for culprit, got in found)
        took = sorted(
            got[0] - BEGINS_S
            for culprit, got in found
            if got is not None and got[1].rank == culprit
        )
        rows.append(
            (f"10 % slower, {ranks}", f"{jobs} jobs", f"{wrong}", f"{len(took)}",
             f"{took[len(took) // 2]:.0f} s", f"{took[int(len(took) * 0.95)]:.0f} s")
        )  # fmt: skip
    return Section(
        title="A slow rank of a job that moves",
        text=f"Simulated jobs, a look every {EVERY_S:.0f} s, after {SUSPECTED_S:.0f} s where a "
        "rank may be slow; from the moment a rank becomes slow to its name.",
        columns=("ranks", "how many", "innocent named", "right named", "median", "p95"),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
