"""A rank that left the order of calls that it always kept: exchanges, turns, calls that are new."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from verdicts import only_cause

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Group
from unhang.testing import FakeJob

LINES = ("train.py:11 forward", "train.py:12 backward", "train.py:13 optimizer")


def test_a_send_that_has_always_followed() -> None:
    """Rank 1 passes a send over and goes on; rank 2, which waits for it, keeps the usual order."""
    job = FakeJob(3)
    for step in range(4):
        last = step == 3
        job.send(0, 1, site="pipe.py:5 step")
        job.recv(1, 0, site="pipe.py:6 step")
        if not last:
            job.send(1, 2, site="pipe.py:7 step")
        job.recv(2, 1, site="pipe.py:8 step", finished=not last)
        job.call((0, 1) if last else range(3), site="pipe.py:9 step", finished=not last)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH302", (1,), "medium")
    assert "did not make send" in cause.summary
    assert cause.victims == (0, 2)


@pytest.mark.parametrize("left_out", ["send", "recv"])
@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_an_exchange_left_out_by_hosts_that_run_ahead(left_out: str, ahead: int) -> None:
    """The next iteration's is queued in its place: a side was left out, no order crossed."""
    job = FakeJob(4)
    pair = job.group((0, 1), "pp")
    for step in range(5 + ahead):
        done = step < 4
        if step != 4 or left_out == "recv":
            job.send(0, 1, pair, site="pipe.py:5 step", finished=done)
        if step != 4 or left_out == "send":
            job.recv(1, 0, pair, site="pipe.py:6 step", finished=done)
        job.call(range(4), site="pipe.py:9 step", finished=done)
    cause = only_cause(diagnose(job.case()))
    culprit = 0 if left_out == "send" else 1
    assert (cause.code, cause.culprits, cause.confidence) == ("UH302", (culprit,), "medium")
    assert f"did not make {left_out} of pp" in cause.summary
    assert ("of the next iteration is queued" in " ".join(cause.evidence)) == (ahead > 0)


def _pipeline(sent: Sequence[int], received: Sequence[int]) -> Case:
    """So many sends and receives of a pair in each step; the last step is the one that hangs."""
    job = FakeJob(3)
    for step, (sends, receives) in enumerate(zip(sent, received, strict=True)):
        done = step < len(sent) - 1
        met = min(sends, receives)
        for nth in range(sends):
            job.send(0, 1, site="pipe.py:5 step", finished=done or nth < met)
        for nth in range(receives):
            job.recv(1, 0, site="pipe.py:6 step", finished=done or nth < met)
            job.send(1, 2, site="pipe.py:7 step")
            job.recv(2, 1, site="pipe.py:8 step")
        waits = 0 if sends > receives else 1
        goes_on = [rank for rank in range(3) if done or rank != waits]
        job.call(goes_on, site="pipe.py:9 step", finished=done)
    return job.case()


def test_an_exchange_left_out_in_the_second_step() -> None:
    """Counted between two collectives: fewer than in the step before, and than its peer's."""
    cause = only_cause(diagnose(_pipeline((4, 4), (4, 3))))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH302", (1,), "medium")
    assert "it made 3 calls that meet its peer's" in " ".join(cause.evidence)


@pytest.mark.parametrize(
    ("sent", "received"),
    [((4, 5), (4, 4)), ((4, 3, 4), (4, 3, 3)), ((4,), (3,))],
    ids=["one more than ever", "a step may have as many", "nothing to compare with"],
)
def test_counts_of_steps_that_tell_nothing(
    sent: tuple[int, ...], received: tuple[int, ...]
) -> None:
    """The peer may have made one too many, the step may be a short one, or there is but one."""
    for cause in diagnose(_pipeline(sent, received)).causes:
        assert "such step" not in " ".join(cause.evidence)


def test_an_exchange_that_was_put_off() -> None:
    """Made behind a call that it has never followed: the order is what is wrong."""
    job = FakeJob(4)
    pair = job.group((0, 1), "pp")
    for step in range(5):
        done = step < 4
        job.send(0, 1, pair, site="pipe.py:5 step", finished=done)
        if done:
            job.recv(1, 0, pair, site="pipe.py:6 step")
        job.call(range(4), site="pipe.py:9 step", finished=done)
        if not done:
            job.recv(1, 0, pair, site="pipe.py:6 step", finished=False)
        job.call(range(4), "all_gather", site="pipe.py:10 step", finished=done)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH301", (1,))
    assert "later than ever" in cause.summary


def test_the_calls_before_tell_where_a_call_alone_is_followed_by_two() -> None:
    """Without lines two calls look alike: what follows the second of them is the habit."""
    job = FakeJob(2)
    for step in range(4):
        done = step < 3
        job.call(range(2))
        job.call(range(2))
        if done:
            job.send(0, 1)
        job.recv(1, 0, finished=done)
    job.call([0], "all_gather", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH302", (0,))
    assert any(
        "and the 1 call before it every time before (3 times)" in text for text in cause.evidence
    )


def test_two_that_both_left_their_order() -> None:
    """Then the order was changed rather than left by one of them: nobody is named."""
    job = FakeJob(2)
    pair = job.group((0, 1), "tp")
    for _ in range(3):
        job.call(range(2), site="train.py:1 step")
        job.call(pair.members, group=pair, site="train.py:2 step")
        job.call(pair.members, group=pair, site="train.py:3 step")
    job.call(range(2), site="train.py:1 step")
    job.call([0], group=pair, site="train.py:3 step", finished=False)
    job.call([1], site="train.py:4 save", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH301", ())


def test_a_new_call_that_one_rank_makes_alone() -> None:
    """Three absent at once from a call that is new to all: rather, that call is one too many."""
    job = FakeJob(4)
    for _ in range(3):
        job.call(range(4), site="train.py:1 step")
    job.call([0], site="train.py:90 log", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (0,), "low")


@pytest.mark.parametrize("steps", [1, 3, 40])
def test_a_new_call_that_one_rank_makes_alone_and_others_are_past(steps: int) -> None:
    """One of the three waits for that rank elsewhere: it has gone on without the call."""
    job = FakeJob(4)
    pair = job.group((0, 2), "tp")
    for _ in range(steps):
        job.call(range(4), site="train.py:1 step")
    job.call([0], site="train.py:90 log", finished=False)
    job.call([2], group=pair, site="train.py:2 step", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (0,), "low")


@pytest.mark.parametrize("done", [False, True])
def test_a_call_at_the_start_that_others_are_past(done: bool) -> None:  # noqa: FBT001
    """Whoever waits for that rank elsewhere, or has met it later, is not late for the call."""
    job = FakeJob(4)
    pair = job.group((0, 2), "tp")
    job.call(range(4), site="train.py:1 step")
    job.call([0], site="train.py:90 log", finished=False)
    job.call(pair.members, group=pair, site="train.py:2 step", finished=done)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (0,), "low")


def test_a_call_at_the_start_for_which_all_may_be_late() -> None:
    """What others have done among themselves meanwhile tells nothing."""
    job = FakeJob(4)
    pair = job.group((2, 3), "tp")
    job.call(range(4), site="train.py:1 step")
    job.call([0], site="train.py:90 log", finished=False)
    job.call(pair.members, group=pair, site="train.py:2 step")
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH101", ())


def test_a_rank_that_left_its_third_turn() -> None:
    """All calls were iterations of one loop; one of the four began the third in its own way."""
    job = FakeJob(4)
    pairs = _turns(job, with_send=True)
    job.call([1, 2, 3], site="train.py:1 step", finished=False)
    job.call([0], group=pairs[0], site="train.py:2 step", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (0,), "medium")
    assert "2 iterations of 3 calls" in " ".join(cause.evidence)


def _turns(job: FakeJob, *, with_send: bool = False) -> list[Group]:
    """Two iterations of a loop: a call of all four, one of each pair, perhaps a send in each."""
    pairs = [job.group(pair, "tp") for pair in ((0, 1), (2, 3))]
    for _ in range(2):
        job.call(range(4), site="train.py:1 step")
        for group in pairs:
            job.call(group.members, group=group, site="train.py:2 step")
            if with_send:
                job.send(*group.members, group, site="train.py:3 step")
                job.recv(*group.members[::-1], group, site="train.py:3 step")
    return pairs


def test_a_usual_call_that_few_have_made() -> None:
    """A rank that waits alone accuses no other: it may have made one call more, or be in time."""
    job = FakeJob(4)
    for _ in range(3):
        job.call(range(4), site="train.py:1 step")
    job.call([0], site="train.py:1 step", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH101", (), "low")


@pytest.mark.parametrize("wrong", [1, 3])
def test_a_call_on_the_wrong_group_of_a_mesh(wrong: int) -> None:
    """It disturbs one group and is missing in the other: of the two who disagree it is that one."""
    job = FakeJob(4)
    columns = [job.group(ranks, "dp") for ranks in ((0, 2), (1, 3))]
    rows = [job.group(ranks, "tp") for ranks in ((0, 1), (2, 3))]
    for _ in range(20):
        for group in rows:
            job.call(group.members, "all_gather", group=group, site="train.py:26 share")
        for group in columns:
            job.call(group.members, group=group, site="train.py:29 share")
    row = next(group for group in rows if wrong in group.members)
    (left,) = (rank for rank in row.members if rank != wrong)
    for group in rows:
        if group is not row:
            job.call(group.members, "all_gather", group=group, site="train.py:26 share")
    site = "train.py:26 share"
    job.call([left], "all_gather", group=row, site=site, finished=False)
    job.call([wrong], "all_gather", group=columns[1], site=site, finished=False)
    others = [rank for rank in range(4) if rank not in (left, wrong)]
    for group in columns:
        inside = [rank for rank in group.members if rank in others]
        job.call(inside, group=group, site="train.py:29 share", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH102", (wrong,))
    assert cause.summary.startswith(f"Rank {wrong} did not make all_gather of tp")


def test_the_call_that_the_one_in_every_loop_passed_over() -> None:
    """Its peers have made it, and have what it waits in queued behind: that is what it lacks."""
    job = FakeJob(8)
    pairs = [job.group(half, "tp") for half in ((0, 1, 2, 3), (4, 5, 6, 7))]
    for half in pairs:
        job.call(half.members, "all_gather", half, site="train.py:1 step")
    job.call([0], site="train.py:9 log", finished=False)
    for half in pairs:
        ranks = [rank for rank in half.members if rank]
        job.call(ranks, group=half, site="train.py:5 norm", finished=half is pairs[1])
    job.call(range(1, 8), site="train.py:9 log", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (0,), "medium")
    assert cause.summary.startswith("Rank 0 did not make all_reduce #2 of tp (1)")


def test_a_call_of_the_same_number_is_not_denied() -> None:
    """Who left a call out has its number on the next one: no side says that it never called that.

    Hosts run ahead, so the rank has enqueued what comes after, too.
    """
    job = FakeJob(4)
    pairs = _turns(job)
    for rank in range(4):
        pair = pairs[rank // 2]
        first = [(job.world, 1), (pair, 2)] if rank != 2 else [(pair, 2), (job.world, 1)]
        for group, line in [*first, *([(pair, 2)] if rank == 2 else [(job.world, 1), (pair, 2)])]:
            job.call([rank], group=group, site=f"train.py:{line} step", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.seq) == ("UH102", (2,), 3)
    assert all(side.state for side in cause.calls)
    assert "another time" in cause.summary
