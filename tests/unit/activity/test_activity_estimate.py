"""What a series of looks amounts to, by the smallest series that tell one thing from another."""

from __future__ import annotations

import pytest

from unhang.activity.estimate import Activity, Doing, Sign, estimate
from unhang.activity.looks import ProcessLook
from unhang.activity.series import Series
from unhang.testing import worked


def doing(looks: tuple[ProcessLook, ...], kind: str | None = None) -> Activity:
    """The estimate of some looks."""
    return estimate(Series.of(looks), kind=kind)


def followed(*looks: ProcessLook) -> list[Activity]:
    """The estimates after each of some looks."""
    return [doing(looks[: at + 1]) for at in range(len(looks))]


@pytest.mark.parametrize(
    ("woken", "ran_s", "sign"),
    [
        (10, 0.009, Sign.TURNS),  # a small batch ten times a second
        (10, 0.0013, None),  # a poll of a file as often
        (17, 0.0039, None),  # of an HTTP server
        (1000, 0.03, None),  # a thousand polls a second
        (1, 0.001, None),  # next to nothing
        (1, 0.003, Sign.TURNS),  # a batch of an evaluation once a second
        (0, 1.0, None),  # it spins
        (0, 0.03, Sign.STARVED),  # it computes, beside so many others that it gets 3 % of a core
        (0, 0.001, None),  # it stands still
    ],
)
def test_work_between_short_sleeps_is_told_from_polls(
    woken: int, ran_s: float, sign: Sign | None
) -> None:
    """By its CPU time each time that it goes on, as measured of real polls; a second a look."""
    looks = worked(3, woken=woken, ran_s=ran_s)
    told = [each.signs for each in followed(*looks)]
    assert told == [(), (), *([(sign,) if sign else ()] * 2)]


@pytest.mark.parametrize(("ran_s", "works"), [(0.003, True), (0.0012, False)])
def test_work_between_long_sleeps_is_told_from_polls(ran_s: float, *, works: bool) -> None:
    """An evaluation with a pause of four seconds in each batch, and a poll of many files."""
    looks = [ProcessLook(float(at), woken=at // 4, ran_s=at // 4 * ran_s) for at in range(12)]
    told = [Sign.TURNS in each.signs for each in followed(*looks)]
    assert told == [False] * 8 + [works] * 4


@pytest.mark.parametrize(("rest", "works"), [(4, True), (20, False)])
def test_a_burst_before_a_long_rest_is_no_work(rest: int, *, works: bool) -> None:
    """A rank that imported torch and stands still since; one that rests as it did before works."""
    woken = (0, 6, 9, 9, 9, 12, *[13] * rest)
    looks = [ProcessLook(float(at), woken=n, ran_s=n / 10) for at, n in enumerate(woken)]
    assert (Sign.TURNS in doing(tuple(looks)).signs) is works


IMPORTED = (
    (0.0, "R", 0.0, 0, 0, 0), (0.708, "R", 0.219, 0, 2488885, 765),
    (7.599, "R", 0.894, 0, 16957081, 765), (10.647, "R", 1.204, 1, 17307719, 765),
    (11.92, "R", 1.394, 3, 17666123, 772), (13.617, "S", 1.394, 3, 17666123, 772),
    (16.409, "S", 1.394, 3, 17666123, 772), (18.928, "S", 1.394, 3, 17666123, 772),
    (20.104, "S", 1.394, 3, 17666123, 772), (20.736, "S", 1.394, 3, 17666123, 772),
)  # fmt: skip
"""Looks that were recorded on a busy machine: a rank imports torch, prints, and sleeps 600 s."""


def test_a_rank_that_sleeps_since_its_imports_does_not_work() -> None:
    """It did: what it printed and computed is still in the window."""
    looks = tuple(
        ProcessLook(time_s, state, ran_s=ran_s, woken=woken, moved=moved, said=said)
        for time_s, state, ran_s, woken, moved, said in IMPORTED
    )
    assert doing(looks[:6], "sleep").doing is Doing.WORKING
    assert doing(looks, "sleep").signs == ()


def test_one_line_is_said_and_two_are_a_loop() -> None:
    """Many programs say what they begin, and are stuck in it; one that tries again says so."""
    looks = (ProcessLook(float(at), said=said) for at, said in enumerate((0, 20, 20, 45, 45)))
    told = [Sign.PRINTS in each.signs for each in followed(*looks)]
    assert told == [False, False, False, True, True]


def test_a_reader_that_goes_on_again_and_again_is_fed() -> None:
    """By a pipe that it reads from, for one, which brings a line now and then."""
    channels = {"anon_pipe_read": True, "futex_wait_queue": False}
    for channel, is_fed in channels.items():
        looks = [
            ProcessLook(float(at), wait_channel=channel, woken=woken)
            for at, woken in enumerate((7, 7, 9, 9, 9, 11, 11))
        ]
        told = [Sign.FED in each.signs for each in followed(*looks)]
        assert told == [False] * 5 + [is_fed] * 2


@pytest.mark.parametrize(
    ("cores", "kind", "helps"),
    [
        (0.04, "process", True),
        (0.04, "sleep", True),
        (0.04, "data-loader", False),
        (0.01, "process", False),
    ],
)
def test_processes_that_work_help_who_waits_for_them(
    cores: float, kind: str, *, helps: bool
) -> None:
    """Four hundredths of a core are enough on a crowded machine; a monitor needs less."""
    found = doing(worked(8, helped_s=cores), kind)
    assert (Sign.CHILDREN in found.signs) is helps


def test_a_sleeper_does_not_go_on_as_polls_do() -> None:
    """Three looks tell, if it has not gone on in any, and eight after it has."""
    woken = (5, 5, 5, 5, 6, 7)
    looks = [ProcessLook(float(at), woken=count) for at, count in enumerate(woken)]
    assert [each.for_s for each in followed(*looks)] == [0, 0, 2, 3, 0, 0]
    found = followed(*looks)
    assert [each.doing for each in found[-2:]] == [Doing.UNKNOWN, Doing.POLLING]


@pytest.mark.parametrize("speaks", [True, False])
def test_one_that_says_that_it_tries_again_is_asleep_sooner(*, speaks: bool) -> None:
    """Three looks after it has printed and gone to sleep; one that says nothing, after eight."""
    looks = [
        ProcessLook(float(at), woken=int(at >= 4), said=60 * (speaks and at >= 4))
        for at in range(14)
    ]
    slept = [each.for_s > 0 for each in followed(*looks)]
    first = 6 if speaks else 11
    assert slept == [False, False, True, True] + [False] * (first - 4) + [True] * (14 - first)


def test_being_looked_into_is_no_movement() -> None:
    """A sampler stops a process for a moment, and that wakes it."""
    looks = worked(9)
    touched = looks[-1]._replace(woken=7, ran_s=0.5, time_s=10.0, disturbed=True)
    found = doing((*looks, touched))
    assert (found.doing, found.for_s) == (Doing.BLOCKED, 9.0)
    assert doing(looks[:5]).doing is Doing.UNKNOWN  # a retry sleeps for as long
    assert doing((*looks, touched._replace(disturbed=False))).doing is not Doing.BLOCKED


def test_what_comes_over_tcp_counts_where_it_was_asked_for() -> None:
    """Looks of the watch do not ask; those of the verdict do."""
    before, after = ProcessLook(9.2, traffic=1000), ProcessLook(10.4, traffic=25_000)
    looks = (*worked(9), before, after)
    assert doing(looks, "network").signs == (Sign.RECEIVES,)
    assert doing(looks, "lock").signs == ()


@pytest.mark.parametrize(
    ("state", "expected"), [("T", Doing.STOPPED), ("Z", Doing.EXITED), ("S", Doing.COMPUTING)]
)
def test_a_stopped_process_does_nothing(state: str, expected: Doing) -> None:
    """Whatever it did before."""
    assert doing(worked(9, state=state, cpu_s=0.9)).doing is expected


def test_nothing_is_said_of_nothing() -> None:
    """Neither without a look nor of one."""
    assert [doing(()).doing, doing(worked(0)).doing] == [Doing.UNKNOWN] * 2


def test_a_burst_of_a_monitor_is_no_steady_work() -> None:
    """It counts between two looks, and not over half a minute."""
    looks = [ProcessLook(float(at), moved=400_000 * (at // 10)) for at in range(21)]
    assert (doing(tuple(looks)).busy, doing(tuple(looks)).steady) == (True, ())
    assert doing(worked(20, moved=400_000)).steady == (Sign.FLOWS,)
