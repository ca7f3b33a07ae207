"""The headline names the first call that a culprit lacks, by ranks of its role in their groups."""

from __future__ import annotations

from pathlib import Path

from unhang.analysis import diagnose
from unhang.ingest import load
from unhang.report import Finding
from unhang.testing import FakeJob

CULPRIT = 1


def named(pairs: int) -> Finding:
    """Rank 1 of 8 lacks two calls: rank 0 waits in their pair's, 3, 5 and 7 in the odd ranks'.

    Args:
        pairs: How many of the four pairs have a group, in whose call they were before.
    """
    job = FakeJob(8)
    tensor = [job.group([low, low + 1], "tp") for low in range(0, 2 * pairs, 2)]
    data = [job.group(range(low, 8, 2), "dp") for low in (0, 1)]
    job.call(range(8))
    for pair in tensor:
        there = [rank for rank in pair.members if rank != CULPRIT]
        job.call(there, group=pair, finished=len(there) > 1)
    for group in data:
        job.call([rank for rank in group.members if rank != CULPRIT], group=group, finished=False)
    (finding,) = diagnose(job.case()).causes
    assert finding.culprits == (CULPRIT,)
    return finding


def test_the_first_call_that_is_lacked_is_named_though_more_wait_in_another() -> None:
    """The odd ranks have finished the call of their pairs; rank 0 has not that of the even ones."""
    group = named(pairs=4).group
    assert group is not None
    assert group.description == "tp"


def test_where_none_of_its_role_shows_the_order_it_is_the_call_of_most() -> None:
    """The odd ranks are in no group of that kind."""
    group = named(pairs=1).group
    assert group is not None
    assert group.description == "dp"


def test_a_real_job_that_stands_still_before_a_call_of_its_pair_is_told_so() -> None:
    """Rank 3 of a mesh of two by two: rank 2 waits in the pair, rank 1 later for both."""
    report = diagnose(load([Path("tests/data/nccl/2.4.1/mesh_stall-pipe.tar.gz")]))
    assert report.summary.startswith(
        "Rank 3 never called all_reduce #11 of tp (2), in which rank 2"
    )
