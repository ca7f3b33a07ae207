"""Dumps that were made because a rank was slow: what is in flight there is not stuck."""

from __future__ import annotations

from dataclasses import replace

import pytest

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


def one_that_has_not_come(calls: int, written_s: float) -> Case:
    """Three of four ranks are in a call; their files were written so long after it was made."""
    job = FakeJob(4)
    for _ in range(calls):
        job.tick(1)
        job.call(range(4))
    job.call([0, 1, 3], finished=False)
    case = job.case()
    newest = int(case.calls.created_ns.max())
    written = newest + int(written_s * 10**9)
    return replace(case, dumps=tuple(replace(dump, written_ns=written) for dump in case.dumps))


def test_a_large_dump_may_have_been_written_slowly() -> None:
    """Two seconds are what the file of a moving job with a thousand calls took under load."""
    assert diagnose(one_that_has_not_come(calls=1000, written_s=2.0)).causes == ()


@pytest.mark.parametrize(("calls", "written_s"), [(1000, 9.0), (20, 2.0)])
def test_a_file_that_is_older_than_writing_takes_shows_a_hang(calls: int, written_s: float) -> None:
    """Neither many seconds nor few calls are explained by it."""
    report = diagnose(one_that_has_not_come(calls, written_s))
    assert [(f.code, f.culprits) for f in report.causes] == [("UH101", (2,))]
