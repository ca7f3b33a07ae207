"""Stacks beside dumps whose calls have just begun: neither blame nor comfort."""

from __future__ import annotations

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.testing import FakeJob, sample_of

WAITING = "torch/distributed/distributed_c10d.py:2810 all_reduce < train.py:30 step"
LOADING = "data.py:9 load"


def collected(after_s: float, looks: tuple[int, ...]) -> Case:
    """Three of four ranks are in a call; dumps were made so long after, then stacks were taken."""
    job = FakeJob(4)
    job.call(range(3), finished=False)
    written = job.now_ns + int(after_s * 1e9)
    job.dump_fields = {rank: {"written_ns": written} for rank in range(4)}
    return job.case(
        samples=[
            sample_of(rank, WAITING if rank < 3 else LOADING, sample=n)
            for n in looks
            for rank in range(4)
        ]
    )


@pytest.mark.parametrize(
    ("after_s", "looks", "status"),
    [
        (0.6, (), "healthy"),
        (0.6, (0,), "insufficient"),
        (0.6, (0, 1), "insufficient"),
        (1.4, (0, 1), "problem"),
    ],
)
def test_stacks_name_no_rank_while_calls_have_just_begun(
    after_s: float, looks: tuple[int, ...], status: str
) -> None:
    """On a busy machine they meet a rank of a healthy job twice at one line."""
    report = diagnose(collected(after_s, looks))
    assert report.status == status, report.summary
    assert [finding.culprits for finding in report.causes] == [(3,)] * (status == "problem")
    if status == "insufficient":
        assert "data.py:9" in report.summary
        assert report.findings[0].culprits == ()
