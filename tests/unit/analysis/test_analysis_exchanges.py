"""Verdicts about sends and receives: pairs, circles, stalls, mismatches, and what is healthy."""

from __future__ import annotations

import pytest
from verdicts import only_cause

from unhang.analysis import diagnose
from unhang.analysis.steps import situation_of
from unhang.testing import FakeJob


def pipeline(stages: int = 4, **how: object) -> FakeJob:
    """Two microbatches through a pipeline, finished."""
    job = FakeJob(stages, **how)  # type: ignore[arg-type]  # fields of the builder
    for _ in range(2):
        for stage in range(stages - 1):
            job.send(stage, stage + 1, site="pp.py:10 forward")
            job.recv(stage + 1, stage, site="pp.py:11 forward")
    return job


@pytest.mark.parametrize("how", [{}, {"buffer": 2}, {"active_only": True}])
def test_a_stalled_stage_has_victims_downstream(how: dict[str, object]) -> None:
    """Later stages wait for the one that no longer sends, through each other."""
    job = pipeline(**how)
    job.recv(2, 1, site="pp.py:11 forward", finished=False)
    job.recv(3, 2, site="pp.py:11 forward", finished=False)
    job.recv(1, 0, site="pp.py:11 forward", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH302", (0,), (1, 2, 3))
    assert [(wait.waiter, wait.target) for wait in cause.waits] == [(3, 2), (2, 1), (1, 0)]
    assert cause.confidence == ("high" if not how else "medium")


def test_all_receive_first() -> None:
    """Receives in a ring are a circle: told as a loop, nobody blamed."""
    job = pipeline()
    for rank in range(4):
        job.recv(rank, (rank - 1) % 4, site=f"ring.py:{rank} go", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH303", (), (0, 1, 2, 3))
    assert [(w.waiter, w.target) for w in cause.waits] == [(0, 3), (3, 2), (2, 1), (1, 0)]
    assert {site.line for site in cause.sites} == {0, 1, 2, 3}


def test_a_send_against_a_call_of_all_is_cured_by_its_receive() -> None:
    """Captured: one group, in which no order of groups can be crossed, and that was advised."""
    job = FakeJob(3)
    for _ in range(3):
        job.call(range(3), site="train.py:8 step")
    job.send(0, 1, site="train.py:9 step", finished=False)
    job.call((1, 2), site="train.py:11 step", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH301", ())
    assert "Check that each send has one receive" in cause.actions[0]
    assert not any("groups" in action for action in cause.actions)


def test_two_way_batches_are_healthy() -> None:
    """Both directions in one batch pair up in any order, finished or in flight."""
    job = FakeJob(3)
    job.call(range(3))
    for rank, peer in ((0, 1), (1, 0)):
        job.point_to_point(rank, [("send", peer), ("recv", peer)], batch=True)
    job.call(range(3))
    report = diagnose(job.case())
    assert (report.status, report.causes) == ("healthy", ())


def test_two_way_batches_in_flight_wait_for_nobody() -> None:
    """Where both sides are in, nobody is missing and nobody is blamed."""
    job = FakeJob(2)
    job.point_to_point(0, [("send", 1), ("recv", 1)], batch=True, finished=False)
    job.point_to_point(1, [("recv", 0), ("send", 0)], batch=True, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH401", ())


def test_members_of_a_batch_follow_the_closing_entry() -> None:
    """Members stay "scheduled"; the closing entry says that they are finished."""
    job = FakeJob(2)
    job.point_to_point(0, [("send", 1)], batch=True)
    job.point_to_point(1, [("recv", 0)], batch=True)
    situation, _ = situation_of(job.case())
    assert situation.evidence.finished.all()


def test_one_member_of_a_batch_keeps_it_waiting() -> None:
    """A batch waits for the one peer that does not answer."""
    job = FakeJob(3)
    job.point_to_point(0, [("send", 1), ("send", 2)], batch=True, finished=False)
    job.recv(1, 0, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH302", (2,), (0, 1))


@pytest.mark.parametrize(
    ("sizes", "dtype", "what"), [([(8,)], "Float", "size"), ([(4,)], "Half", "dtype")]
)
def test_a_pair_that_disagrees(sizes: list[tuple[int, ...]], dtype: str, what: str) -> None:
    """Both sides of a mismatch are told, and neither is blamed."""
    job = pipeline()
    job.send(0, 1, sizes=sizes, dtype=dtype, finished=False)
    job.recv(1, 0, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH304", (), (0, 1))
    assert what in cause.summary
    assert sorted(side.peer for side in cause.calls if side.peer is not None) == [0, 1]


def test_group_ranks_are_made_global() -> None:
    """Names hold group ranks; findings name global ones."""
    job = FakeJob(8)
    group = job.group([3, 5, 7], "pp")
    job.recv(7, 5, group, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH302", (5,), (7,))


def test_point_to_point_inside_a_larger_group_is_no_missing_collective() -> None:
    """Two ranks of four exchange: the others miss nothing."""
    job = FakeJob(4)
    job.call(range(4))
    job.call(range(4))
    job.send(0, 1)
    job.recv(1, 0)
    assert diagnose(job.case()).status == "healthy"


def test_any_source_blames_no_single_rank() -> None:
    """A receive from any source waits for whichever comes: an OR-wait."""
    job = FakeJob(4)
    job.call(range(4))
    job.recv(0, -1, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH302", (), (0,))


def test_a_stage_that_waits_in_a_collective_is_a_victim() -> None:
    """Pipeline victims lead through the stage to the rank that its collective waits for."""
    job = pipeline()
    tp = job.group([2, 3], "tp")
    job.call([2], group=tp, finished=False)
    job.recv(1, 2, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH101", (3,), (1, 2))


def test_a_silent_stage() -> None:
    """The peer of a receive that left no dump is the only explanation."""
    job = pipeline()
    job.recv(1, 0, finished=False)
    job.missing = {0}
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH103", (0,), "medium")


def test_several_silent_ranks_are_one_finding() -> None:
    """A host of several that vanished is one cause, whatever its ranks were waited for in."""
    job = FakeJob(9)
    for members in ([0, 6], [1, 7], [2, 8]):
        job.call(members[:1], group=job.group(members, "dp"), finished=False)
    job.missing = {6, 7, 8}
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH103", (6, 7, 8), (0, 1, 2))


def test_stuck_communicators_are_one_finding() -> None:
    """Several calls with everybody in them are one trouble."""
    job = FakeJob(4)
    for members in ([0, 1], [2, 3]):
        job.call(members, group=job.group(members, "tp"), finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH401", (), (0, 1, 2, 3))


def ring(job: FakeJob, wrong: int, named: int, *, finished: bool = True) -> None:
    """Everybody sends to the next and receives from the one before; one sends to another."""
    size = job.world_size
    for rank in range(size):
        to = named if rank == wrong else (rank + 1) % size
        calls = [("send", to), ("recv", (rank - 1) % size)]
        job.point_to_point(rank, calls, batch=True, finished=finished, site="ring.py:7 rotate")


def test_a_wrong_peer_that_was_never_addressed_before() -> None:
    """A ring knows its neighbours: who sends elsewhere for the first time is named, in no circle.

    What the rank has queued for its neighbour meets the receive by number, and comes too late.
    """
    job = FakeJob(4)
    for _ in range(3):
        ring(job, wrong=-1, named=-1)
    ring(job, wrong=2, named=0, finished=False)
    ring(job, wrong=-1, named=-1, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH304", (2,), (0, 1, 3))
    assert any("never rank 0" in sentence for sentence in cause.evidence)


def test_a_first_exchange_has_no_habit() -> None:
    """Without exchanges before, a send that comes out of turn names nobody as sending wrongly."""
    job = FakeJob(4)
    ring(job, wrong=2, named=0, finished=False)
    ring(job, wrong=-1, named=-1, finished=False)
    assert all(cause.code != "UH304" for cause in diagnose(job.case()).causes)


@pytest.mark.parametrize("closed", [False, True])
def test_a_lone_call_beside_batches_is_open_where_nothing_can_have_closed_it(
    *, closed: bool
) -> None:
    """Dumps of unfinished calls keep members of finished batches, whose closing entry is gone.

    Records that follow each other at once leave no room for such an entry.
    """
    job = FakeJob(2, active_only=True)
    ring = job.group((0, 1), "cp")
    for rank in (0, 1):
        job.point_to_point(rank, [("send", 1 - rank), ("recv", 1 - rank)], batch=True)
        for member in job.entries[rank][:2]:
            member.is_open = True
    job.send(0, 1, ring, sizes=((8,),), finished=False)
    job.recv(1, 0, ring, finished=False)
    for rank in (0, 1):
        if closed:
            job.point_to_point(rank, [], ring, batch=True)
        job.call([rank], "all_gather", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert cause.code == ("UH401" if closed else "UH304")
