"""Ranks outside of any call, blamed or not, and calls that failed and were left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Frame, LogEvent, ProcessSample, ThreadStack
from unhang.testing import FakeJob, sample_of, worked

MODULE = Frame("<module>", "/home/user/train.py", 120)
WAITING = (
    Frame("monitored_barrier", "/usr/lib/torch/distributed/distributed_c10d.py", 100),
    Frame("main", "/home/user/train.py", 88),
    MODULE,
)
OWN = (Frame("clean_up", "/home/user/train.py", 90), MODULE)
DESTROYING = (
    Frame("destroy_process_group", "/usr/lib/torch/distributed/distributed_c10d.py", 10),
    MODULE,
)
WORKS = {"looks": worked(cpu_s=0.9)}


def samples(rank: int, frames: tuple[Frame, ...], **more: object) -> list[ProcessSample]:
    """Two looks at a rank that stands still."""
    main = ThreadStack("MainThread", 100 + rank, frames, is_main=True)
    sample = ProcessSample(
        rank=rank, host="node01", pid=100 + rank, state="S", threads=(main,), phase="ready"
    )
    return [replace(sample, sample=number, **more) for number in (0, 1)]  # type: ignore[arg-type]


def stuck_pair(**third: object) -> Case:
    """Ranks 0 and 1 wait for each other in crossed groups; what rank 2 does is given."""
    job = FakeJob(3)
    groups = [job.group((0, 1), name) for name in ("tp", "pp")]
    for _ in range(3):
        for group in groups:
            job.call(group.members, group=group, site="train.py:5 step")
    job.call([0], group=groups[0], site="train.py:5 step", finished=False)
    job.call([1], group=groups[1], site="train.py:6 step", finished=False)
    looks = [*samples(0, WAITING), *samples(1, WAITING), *samples(2, OWN, **third)]
    return job.case(samples=looks)


@pytest.mark.parametrize(
    ("third", "moving", "pausing"),
    [
        ({"paused_s": 12.0}, (), (2,)),
        ({"paused_s": 12.0, **WORKS}, (2,), ()),
        ({"paused_s": -1.0}, (), ()),
        ({"paused_s": 12.0, "wakes_s": 9000.0}, (), ()),
        ({"paused_s": 12.0, "state": "T"}, (), (2,)),
        ({"paused_s": -1.0, "state": "T"}, (), ()),
    ],
)
def test_the_decision_names_all_that_may_make_the_job_go_on(
    third: dict[str, object], moving: tuple[int, ...], pausing: tuple[int, ...]
) -> None:
    """No cause blames rank 2: while it pauses or works, nothing is certain to be stuck."""
    report = diagnose(stuck_pair(**third))
    assert report.decision is not None
    assert {rank for cause in report.causes for rank in cause.culprits} <= {0, 1}
    assert (report.decision.moving, report.decision.pausing) == (moving, pausing)


def failed_barrier(
    frames: tuple[Frame, ...] = OWN, absent: tuple[Frame, ...] = OWN, **more: object
) -> Case:
    """The second of two barriers timed out in ranks 0 and 2, for which rank 1 came too late."""
    job = FakeJob(3)
    job.call(range(3), "monitored_barrier", site="train.py:11 main")
    job.call((0, 2), "monitored_barrier", site="train.py:13 main", finished=False)
    failure = ("monitored_barrier (default_pg): timeout",)
    job.dump_fields = {rank: {"failures": failure} for rank in (0, 2)}
    looks = [look for rank in (0, 2) for look in samples(rank, frames, **more)]
    line = LogEvent(
        "UH718", "cause", 0, "Ranks 1 failed to pass monitoredBarrier in 15000 ms", "out.log:1",
        fields={"ranks": "1", "ms": "15000"},
    )  # fmt: skip
    case = job.case(samples=[*looks, *samples(1, absent, **more)])
    return replace(case, log_events=(line,))


def test_a_time_out_that_the_program_has_handled_is_over() -> None:
    """Captured of a program that catches the error and cleans up: no rank waits in that call."""
    report = diagnose(failed_barrier())
    (first, *_) = report.causes
    assert (first.culprits, first.confidence) == ((1,), "low")
    assert "left that call after it failed" in first.summary
    assert {cause.confidence for cause in report.causes} == {"low"}


@pytest.mark.parametrize("frames", [WAITING, DESTROYING])
def test_who_still_waits_in_the_call_or_ends_by_it_has_not_handled_it(
    frames: tuple[Frame, ...],
) -> None:
    """Before it raises, and on the way out, the failure is of now."""
    first = diagnose(failed_barrier(frames)).causes[0]
    assert first.culprits == (1,)
    assert first.confidence != "low"
    assert "left that call" not in first.summary


@pytest.mark.parametrize(
    ("more", "moving", "pausing"),
    [(WORKS, (1,), ()), ({"paused_s": 12.0}, (), (1,)), ({}, (), ())],
)
def test_whom_a_log_calls_missing_may_be_late_like_anybody(
    more: dict[str, object], moving: tuple[int, ...], pausing: tuple[int, ...]
) -> None:
    """The line is surer than nothing of what its ranks saw, and knows nothing of the other."""
    first = diagnose(failed_barrier(WAITING, **more)).causes[0]
    assert (first.code, first.culprits) == ("UH718", (1,))
    assert (first.moving, first.pausing) == (moving, pausing)
    assert (first.confidence == "low") == bool(moving or pausing)


@pytest.mark.parametrize(("paused_s", "pausing"), [(12.0, (0, 1, 2)), (-1.0, ())])
def test_a_call_that_lacks_no_rank_may_go_on(paused_s: float, pausing: tuple[int, ...]) -> None:
    """A link that was down for seconds lets it: for so long no rank is settled."""
    job = FakeJob(3)
    job.call(range(3), site="train.py:9 step", finished=False)
    looks = [
        replace(sample_of(rank, "train.py:9 step", sample=n), paused_s=paused_s)
        for n in (0, 1)
        for rank in range(3)
    ]
    report = diagnose(job.case(samples=looks))
    assert report.findings[0].code == "UH401"
    assert report.decision is not None
    assert report.decision.pausing == pausing
