"""Dumps that were made because a rank was slow: what is in flight there is not stuck."""

from __future__ import annotations

from dataclasses import replace

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.testing import FakeJob


def made_because(case: Case, reason: str) -> Case:
    """The case, with its dumps made for a reason."""
    return replace(case, dumps=tuple(replace(dump, reason=reason) for dump in case.dumps))


def a_slow_job() -> Case:
    """Rank 2 comes 20 ms late in steps of 100 ms, and the last call is in flight."""
    job = FakeJob(4)
    for _ in range(24):
        job.tick(100)
        job.call(range(4), site="train.py:17 step", late_ms={2: 20.0})
    job.call(range(4), finished=False)
    return job.case()


def test_a_call_in_flight_is_not_stuck_where_the_job_was_seen_to_move() -> None:
    """The slow rank is the verdict."""
    report = diagnose(made_because(a_slow_job(), "slow"))
    assert (report.status, report.findings[0].code, report.findings[0].culprits) == (
        "slow", "UH501", (2,),
    )  # fmt: skip


def test_the_same_dumps_of_a_hang_are_one() -> None:
    """Nothing but the reason says that the job moved."""
    assert diagnose(made_because(a_slow_job(), "hang")).status == "problem"
