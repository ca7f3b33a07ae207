"""A few ranks of a large job that stand for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rehearse.talk import Ranks
from tests.unit.rehearse.test_endstate import verdict
from unhang.errors import InputError
from unhang.rehearse.commandline import RehearsedJob
from unhang.rehearse.largejobs import folded, with_needed


def large(ranks: int = 1024, nodes: int = 128) -> RehearsedJob:
    """A job."""
    return folded(RehearsedJob("python", "train.py", ranks=ranks, nodes=nodes))


def test_few_ranks_of_a_large_job_run() -> None:
    """The first, the second, the first of another node, one of the middle, the last."""
    assert large().running == (0, 1, 8, 513, 1023)
    assert large(64, 8).running == ()


def test_what_exchanges_need_runs_too() -> None:
    """With the other stages of its pipeline; a root alone."""
    grown = with_needed(large(), {256: 0, 1020: 1020})
    assert set(grown.running) - set(large().running) == {256, 512, 768, 1020}


def test_a_ring_of_all_ranks_is_not_taken_further() -> None:
    """Rank 2 is added; at the end they are too many, which is said."""
    job = with_needed(large(), {2: 1})
    assert set(job.running) - set(large().running) == {2}
    with pytest.raises(InputError, match="exchanges link more than 64 ranks"):
        with_needed(job, {rank: rank - 1 for rank in range(100, 200)})


def of_eight(*running: int) -> Ranks:
    """Some ranks of eight."""
    return Ranks(8, running=running)


def test_members_that_do_not_run_are_not_waited_for(tmp_path: Path) -> None:
    """The verdict says how far it goes."""
    ranks = of_eight(0, 1, 7)
    for rank in (0, 1, 7):
        ranks.call(rank, 5)
    assert ranks.waiting() == []
    assert ranks.referee.answers[0][1]["stands_in"]
    met = [sender[0] for sender in ranks.referee.answers[0][1]["met"]]
    assert met[:2] == [0, 1]
    assert met[7] == 7
    assert set(met) == {0, 1, 7}
    for rank in (0, 1, 7):
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert report.status == "healthy"
    assert report.summary.endswith("as far as the 5 other ranks call what these do.")
    assert {status.rank for status in report.ranks} == {0, 1, 7}
    assert report.decision is not None
    assert report.decision.confidence == "medium"


def test_a_disagreement_of_ranks_that_run_is_a_fault(tmp_path: Path) -> None:
    """Rank 7 calls something else."""
    ranks = of_eight(0, 1, 7)
    for rank in (0, 1, 7):
        ranks.call(rank, 9 if rank == 7 else 5, op="broadcast" if rank == 7 else "all_reduce")
    report = verdict(ranks, tmp_path / "case")
    assert (report.status, report.causes[0].culprits) == ("problem", (7,))


def test_an_error_may_come_of_ranks_that_did_not_run(tmp_path: Path) -> None:
    """A rank that asserts a sum of all ranks is no fault."""
    ranks = of_eight(0, 7)
    for rank in (0, 7):
        ranks.call(rank, 5)
        ranks.end(rank, code=1, error="AssertionError: 6", line=6)
    report = verdict(ranks, tmp_path / "case")
    assert report.status == "insufficient"
    assert "which may come of ranks that did not run" in report.summary


def test_a_root_that_does_not_run_is_asked_for() -> None:
    """And the other side of a send."""
    ranks = of_eight(0, 7)
    ranks.call(0, 5, op="broadcast", kind="broadcast", root=3)
    ranks.call(7, 6, op="send", kind="send", peer=6)
    assert ranks.referee.encounters.lacking == {3: 3, 6: 7}
