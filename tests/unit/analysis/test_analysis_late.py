"""Late ranks in jobs that are not stuck."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import SlowRank
from unhang.testing import FakeJob


def steps(job: FakeJob, number: int, late: dict[int, float] | None = None) -> None:
    """Steps of 100 ms with one call each."""
    for _ in range(number):
        job.tick(100)
        job.call(range(job.world_size), site="train.py:17 step", late_ms=late)


def shifted(case: Case, rank: int, by_ms: int) -> Case:
    """The same case with the clock of one rank ahead, on a host of its own."""
    ahead = np.where(case.calls.rank == rank, by_ms * 1_000_000, 0)
    calls = replace(
        case.calls,
        created_ns=case.calls.created_ns + ahead,
        completed_ns=case.calls.completed_ns + np.where(case.calls.completed_ns > 0, ahead, 0),
    )
    dumps = tuple(replace(d, host=f"node{d.rank}") for d in case.dumps)
    return replace(case, calls=calls, dumps=dumps)


def test_a_rank_that_comes_last() -> None:
    """It says who, since when, by how much and at which line; nothing is a cause."""
    job = FakeJob(4)
    steps(job, 12)
    steps(job, 12, {2: 40.0})
    report = diagnose(job.case())
    assert (report.status, report.causes) == ("slow", ())
    (found,) = report.findings
    assert (found.code, found.culprits, found.victims) == ("UH501", (2,), (0, 1, 3))
    assert found.seq == 13
    assert "40 ms" in found.summary
    assert [(site.role, site.line) for site in found.sites] == [("culprit", 17)]
    assert report.ranks[2].status == "behind"


def test_small_jitter_is_healthy() -> None:
    """Whoever comes last by a little, now this one and now that one, is not late."""
    job = FakeJob(4)
    for step in range(24):
        steps(job, 1, {step % 4: 3.0})
    assert diagnose(job.case()).status == "healthy"


def test_last_in_eight_of_twelve_calls_of_a_pair_is_chance() -> None:
    """One of two comes last to each call: in two pairs of five, one does so eight times."""
    job = FakeJob(2)
    for late in 2 * (1, 0, 1, 1, 0, 1):
        steps(job, 1, {late: 150.0})
    assert diagnose(job.case()).status == "healthy"


@pytest.mark.parametrize(("n_pairs", "status"), [(1, "slow"), (16, "healthy")])
def test_ranks_are_held_against_all_groups_that_were_looked_at(n_pairs: int, status: str) -> None:
    """Last of two to each of seven calls: in one pair of sixteen that is chance."""
    job = FakeJob(2 * n_pairs)
    pairs = [job.group((2 * at, 2 * at + 1), f"pair{at}") for at in range(n_pairs)]
    for _ in range(7):
        job.tick(10)
        for pair in pairs:
            late = {1: 200.0} if pair is pairs[0] else None
            job.call(pair.members, group=pair, site="train.py:17 step", late_ms=late)
    assert diagnose(job.case()).status == status


def test_what_has_cost_nearly_nothing_is_not_slow() -> None:
    """Last of four to each of six calls, by the order in which ranks began: 0.23 s in all."""
    job = FakeJob(4)
    for _ in range(6):
        job.tick(20)
        job.call(range(4), site="train.py:17 step", late_ms={3: 38.0})
    assert diagnose(job.case()).status == "healthy"


def test_a_clock_ahead_is_no_lateness() -> None:
    """Clocks are set by the moments at which calls finish."""
    job = FakeJob(4)
    steps(job, 24)
    assert diagnose(shifted(job.case(), 1, 500)).status == "healthy"


def test_lateness_shows_through_a_clock_behind() -> None:
    """A late rank whose clock is behind looks early, and is found all the same."""
    job = FakeJob(4)
    steps(job, 24, {1: 90.0})
    report = diagnose(shifted(job.case(), 1, -500))
    assert (report.status, report.findings[0].culprits) == ("slow", (1,))


def test_a_constant_lag_without_completion_times_is_left_alone() -> None:
    """Over hosts, without moments of completion, a constant lag may be a clock."""
    job = FakeJob(4, backend="gloo")
    steps(job, 24, {1: 40.0})
    report = diagnose(shifted(job.case(), 1, 0))
    assert report.status == "insufficient"  # on Gloo torch does not record all calls
    assert [finding.code for finding in report.findings] == ["UH901"]


def test_stages_of_a_pipeline_are_not_compared() -> None:
    """The first stage comes last to the call of everybody: that is the program's order."""
    job = FakeJob(2)
    for _ in range(12):
        job.send(0, 1)
        job.recv(1, 0)
        steps(job, 1, {0: 40.0})
    assert diagnose(job.case()).status == "healthy"


def test_a_stuck_job_is_not_called_slow() -> None:
    """Lateness is reported on request only, where something is stuck."""
    job = FakeJob(4)
    steps(job, 24, {2: 40.0})
    job.call([0, 1, 3], finished=False)
    assert {f.code for f in diagnose(job.case()).findings} == {"UH101"}
    asked = diagnose(job.case(), slow=True)
    assert (asked.status, {f.code for f in asked.findings}) == ("problem", {"UH101", "UH501"})


def timed(case: Case, created_ms: np.ndarray) -> Case:
    """The same case with calls made at these moments (calls, ranks), over when all have come."""
    begin = int(case.calls.created_ns.min())
    over = np.maximum.accumulate(created_ms.max(axis=1)) + 1
    at = case.calls.seq - 1
    created = begin + (created_ms[at, case.calls.rank] * 1e6).astype(np.int64)
    completed = begin + (over[at] * 1e6).astype(np.int64)
    return replace(case, calls=replace(case.calls, created_ns=created, completed_ns=completed))


def test_calls_made_ahead_are_one_lateness() -> None:
    """Peers made sixty calls ahead; who comes to the first of them 2 s late makes them at once."""
    job = FakeJob(4)
    steps(job, 72)
    created = np.repeat(np.arange(72.0)[:, None] * 100, 4, axis=1)
    created[12:] = 1200 + np.arange(60)[:, None] * [5.0, 5.0, 0.2, 5.0] + [0, 0, 2000, 0]
    asked = diagnose(timed(job.case(), created), slow=True)
    assert (asked.status, asked.culprits) == ("healthy", ())


def test_late_once_a_step_for_ten_calls_ahead() -> None:
    """A rank 60 ms late in each step is late once a step, not to each of its ten calls."""
    job = FakeJob(4)
    steps(job, 120)
    step, call = np.divmod(np.arange(120.0), 10)
    created = (step * 200 + call * 2)[:, None] + np.asarray([0, 0, 60.0, 0])
    report = diagnose(timed(job.case(), created))
    assert (report.status, report.findings[0].culprits) == ("slow", (2,))
    assert "60 ms" in report.summary
    assert "32%" in report.summary
    assert report.findings[0].evidence[:2] == (
        "Last in 12 of 12 calls of default_pg (0).",
        "The others had made 108 more calls ahead: each counts with the call that held them up.",
    )


def test_few_rounds_of_watchdogs_set_no_clock() -> None:
    """Calls seen in one round tell of one moment: when that falls is chance, and no clock's."""
    job = FakeJob(4)
    for _ in range(5):
        job.tick(30)
        job.call(range(4), site="train.py:17 step")
    case = shifted(job.case(), 0, 0)
    rounds = (
        (27, 129, 129, 129, 231), (87, 87, 189, 189, 189),
        (62, 62, 162, 162, 162), (60, 60, 161, 161, 161),
    )  # fmt: skip
    moments = np.asarray(rounds)[case.calls.rank, case.calls.seq - 1] * 1_000_000
    seen = case.calls.created_ns.min() + moments
    case = replace(case, calls=replace(case.calls, completed_ns=seen))
    assert diagnose(case).status == "healthy"


def test_what_the_watch_saw_counts_where_calls_do_not_show_it() -> None:
    """A pause once in many steps makes nobody last, and holds the others up all the same."""
    job = FakeJob(4)
    steps(job, 24)
    seen = SlowRank(rank=2, excess=0.57, late_ms=28.6, since_ns=1_700_000_000 * 10**9, for_s=17.0)
    case = job.case()
    dumps = tuple(replace(dump, reason="slow") for dump in case.dumps)
    told = replace(case, dumps=dumps, slow=seen)
    assert diagnose(replace(told, slow=None)).status == "healthy"
    report = diagnose(told)
    (found,) = report.findings
    assert (report.status, found.code, found.culprits) == ("slow", "UH501", (2,))
    assert (found.confidence, found.victims) == ("medium", (0, 1, 3))
    assert "57%" in found.summary
    assert "28.6 ms" in found.summary
    assert diagnose(replace(told, slow=replace(seen, rank=9))).status == "healthy"
    assert diagnose(replace(told, slow=replace(seen, since_ns=10**30))).status == "slow"
