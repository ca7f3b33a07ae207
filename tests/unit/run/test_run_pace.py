"""Slow ranks of a job that moves: who is named, since when, and who never is."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from unhang.model import SlowRank
from unhang.run.watching.pace import Arrival, Pace
from unhang.run.watching.pacing import EVERY_S, SUSPECTED_S, arrivals_of

START_NS = 1_800_000_000 * 10**9
OwnTime = Callable[[random.Random, int, float], float]


def followed(ranks: int, seconds: float, own_s: OwnTime) -> list[SlowRank]:
    """What is noticed of a job by looks every 8 s, or sooner; `own_s` takes dice, rank and time."""
    pace, found = Pace(), []
    dice = random.Random(ranks)  # noqa: S311 - a simulation
    calls: dict[int, list[Arrival]] = {rank: [] for rank in range(ranks)}
    now_s, next_s = 0.0, 8.0
    for seq in range(10**6):
        arrived = [now_s + own_s(dice, rank, now_s) for rank in range(ranks)]
        now_s = max(arrived)
        for rank, moment in enumerate(arrived):
            calls[rank].append(Arrival(0, seq, START_NS + int(moment * 1e9)))
        if now_s >= next_s:
            slow = pace.see({rank: kept[-500:] for rank, kept in calls.items()})
            next_s = now_s + (SUSPECTED_S if pace.suspects else EVERY_S)
            found += [slow] if slow else []
        if now_s > seconds:
            break
    return found


def steady(dice: random.Random, rank: int, now_s: float) -> float:
    """Steps of 0.2 s that vary by 5 %, with a pause now and then."""
    del rank, now_s
    return 0.2 * max(0.5, dice.gauss(1, 0.05)) + (0.3 if dice.random() < 0.003 else 0.0)


@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_a_rank_ten_percent_slower_is_named_once(ranks: int) -> None:
    """With its number, by how much, and since when."""
    culprit = ranks - 2

    def own_s(dice: random.Random, rank: int, now_s: float) -> float:
        return steady(dice, rank, now_s) * (1.1 if rank == culprit and now_s > 40 else 1.0)

    (slow,) = followed(ranks, 100, own_s)
    assert slow.rank == culprit
    assert slow.excess == pytest.approx(0.1, abs=0.04)
    assert (slow.since_ns - START_NS) / 1e9 == pytest.approx(40, abs=6)
    assert slow.for_s < 30


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_healthy_jitter_is_nobody_s_fault(ranks: int) -> None:
    """Ten minutes of it."""
    assert followed(ranks, 600, steady) == []


@pytest.mark.parametrize("ranks", [4, 5])
def test_few_steps_that_differ_much_prove_nothing(ranks: int) -> None:
    """Steps of 0.8 s that vary by 10 %: chance makes 8 % in fifteen blocks, and nobody is slow."""

    def own_s(dice: random.Random, rank: int, now_s: float) -> float:
        del rank, now_s
        return 0.8 * max(0.3, dice.gauss(1, 0.1))

    assert followed(ranks, 1800, own_s) == []


def test_warm_up_and_evaluation_are_no_habit() -> None:
    """The first steps of one rank, and its evaluation of eight seconds each minute."""

    def own_s(dice: random.Random, rank: int, now_s: float) -> float:
        extra = 3.0 if rank == 1 and now_s < 9 else 8.0 if rank == 0 and now_s % 60 > 59.5 else 0.0
        return steady(dice, rank, now_s) + extra

    assert followed(4, 600, own_s) == []


@pytest.mark.parametrize(("factor", "suspects"), [(1.1, True), (1.0, False)])
def test_a_few_blocks_are_enough_to_look_again_soon(
    factor: float,
    suspects: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """They name nobody; of a rank that was told there is no suspicion any more."""
    pace, dice = Pace(), random.Random(3)  # noqa: S311 - a simulation
    calls: dict[int, list[Arrival]] = {rank: [] for rank in range(4)}
    now_s = 0.0
    for seq in range(60):
        arrived = [now_s + steady(dice, rank, now_s) * (factor if rank == 2 else 1.0)
                   for rank in calls]  # fmt: skip
        now_s = max(arrived)
        for rank, moment in enumerate(arrived):
            calls[rank].append(Arrival(0, seq, START_NS + int(moment * 1e9)))
    assert pace.see(calls) is None
    assert pace.suspects is suspects
    pace.told.add(2)
    pace.see({rank: [] for rank in calls})
    assert not pace.suspects


def test_one_rank_alone_is_not_compared() -> None:
    """Nor are calls that not all have made."""
    assert followed(1, 60, steady) == []
    lonely = {0: [Arrival(0, n, START_NS + n * 10**9) for n in range(60)], 1: []}
    assert Pace().see(lonely) is None


@pytest.mark.parametrize(
    "dump", [None, [], {"entries": 3}, {"entries": [None, {"pg_id": "0"}, {"is_p2p": True}]}]
)
def test_what_is_no_dump_has_no_calls(dump: object) -> None:
    """What a rank answers is not trusted."""
    assert arrivals_of(dump) == []


def test_calls_are_read_in_order() -> None:
    """As torch's worker server writes them."""
    entry = {"pg_id": 0, "collective_seq_id": 2, "time_created_ns": 30, "is_p2p": False}
    first = entry | {"collective_seq_id": 1, "time_created_ns": 20}
    assert arrivals_of({"entries": [entry, first]}) == [Arrival(0, 1, 20), Arrival(0, 2, 30)]
