"""Verdicts about collectives: who is missing, who disagrees, who waits in a circle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from verdicts import only_cause

from unhang.analysis import diagnose
from unhang.model import DumpStatus, Frame, ProcessSample, Shape, ThreadStack
from unhang.testing import FakeJob, frames_of


def started(size: int = 4, steps: int = 5, **how: object) -> FakeJob:
    """A job in which everybody has finished a few all-reduces of different lines."""
    job = FakeJob(size, **how)  # type: ignore[arg-type]  # fields of the builder
    for step in range(steps):
        job.call(range(size), site=f"train.py:{10 + step} step")
    return job


@pytest.mark.parametrize(
    ("how", "confidence"),
    [
        ({}, "high"),
        ({"backend": "gloo"}, "high"),
        ({"buffer": 3}, "high"),
        ({"counters": False}, "high"),
        ({"active_only": True}, "medium"),
        ({"active_only": True, "counters": False}, "medium"),
    ],
)
def test_never_joined(how: dict[str, object], confidence: str) -> None:
    """A rank that never makes the call is named, however little its dump holds."""
    job = started(**how)
    job.call([0, 1, 2], site="train.py:20 step", finished=False)
    report = diagnose(job.case())
    cause = only_cause(report)
    assert (report.status, cause.code, cause.confidence) == ("problem", "UH101", confidence)
    assert (cause.culprits, cause.victims) == ((3,), (0, 1, 2))
    assert (cause.seq, cause.op) == (6, "all_reduce")
    assert [rank.status for rank in report.ranks] == ["waiting"] * 3 + ["culprit"]
    victims = [site for site in cause.sites if site.role == "victim"]
    assert [(site.ranks, site.file, site.line) for site in victims] == [((0, 1, 2), "train.py", 20)]


def test_the_site_of_a_culprit_is_its_last_call() -> None:
    """The culprit's last known line stands beside the victims'."""
    job = started()
    job.call([0, 1, 2], site="train.py:20 step", finished=False)
    cause = only_cause(diagnose(job.case()))
    culprit = next(site for site in cause.sites if site.role == "culprit")
    assert (culprit.ranks, culprit.line, culprit.function) == ((3,), 14, "step")


def test_healthy() -> None:
    """A job in which everything is finished is healthy."""
    report = diagnose(started().case())
    assert (report.status, report.causes) == ("healthy", ())
    assert {rank.status for rank in report.ranks} == {"ok"}


def test_everybody_joined() -> None:
    """Where all members are in the call, nobody is blamed."""
    job = started()
    job.call(range(4), finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH401", (), (0, 1, 2, 3))


def test_partly_finished() -> None:
    """The few who did not come out of a call that needs everybody are named."""
    job = started()
    job.call(range(4), finished=[0, 1, 2])
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH402", (3,), "medium")


@pytest.mark.parametrize(("op", "done"), [("broadcast", [0]), ("all_reduce", [0, 1])])
def test_partly_finished_without_a_majority(op: str, done: list[int]) -> None:
    """A source that is done, or half of the members, are no evidence against the rest."""
    job = started()
    job.call(range(4), op, finished=done)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH402", ())


def in_broadcast(rank: int, roots: tuple[tuple[int, int], ...], line: int = 9) -> ProcessSample:
    """A rank at line 9, whose last call through Python was made at `line` and had these roots."""
    frames = (
        Frame("broadcast", "torch/distributed/distributed_c10d.py", 9),
        Frame("load", "/home/user/train.py", 9),
    )
    thread = ThreadStack("MainThread", 100 + rank, frames, is_main=True)
    return ProcessSample(
        rank, "node01", 100 + rank, (thread,), state="S", time_ns=1_700_000_100 * 10**9,
        last_op="broadcast", last_call=max(6, roots[0][0]), roots=roots,
        last_site=f"/home/user/train.py:{line}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("done", "roots", "said"),
    [
        # Rank 2 has come out, as who had nothing to wait for, and is in the next one.
        ([2], [((6, 0),), ((6, 1),), ((7, 0), (6, 0))], ("UH201", (1,), "high")),
        ([], [((6, 2),), ((6, 0),), ((6, 2),)], ("UH201", (1,), "high")),
        ([2], [((6, 0),), ((6, 1),), ((7, 0),)], ("UH201", (), "medium")),  # whose voice is unknown
        # Rank 1 alone is still in it, and only who has come out names another one.
        ([0, 2], [((6, 0),), ((6, 1),), ((6, 1),)], ("UH201", (0,), "high")),
        ([], [((6, 0),), ((6, 0),), ((6, 0),)], ("UH401", (), "medium")),
        ([], [((6, 0),), ((4, 1),), ((6, 0),)], ("UH401", (), "medium")),  # of another call
    ],
)
def test_ranks_that_name_different_roots(
    done: list[int], roots: list[tuple[tuple[int, int], ...]], said: tuple[str, tuple[int], str]
) -> None:
    """Torch records none; our heartbeat has them, with the number of the call."""
    job = started(3)
    job.call(range(3), "broadcast", finished=done)
    job.call(done, "broadcast", finished=False)
    samples = [in_broadcast(rank, told) for rank, told in enumerate(roots)]
    cause = only_cause(diagnose(job.case(samples=samples)))
    assert (cause.code, cause.culprits, cause.confidence) == said
    if cause.code == "UH201":
        assert "rank 1: root" in cause.summary or "ranks 1-2: root 1; rank 0" in cause.summary


@pytest.mark.parametrize("line", ["\u00b2", "9" * 5000, ""])
def test_a_place_whose_line_is_no_number_is_left_out(line: str) -> None:
    """A heartbeat is another process's word."""
    job = started(5)
    job.call(range(5), "broadcast", finished=[2, 3, 4])
    job.call([2, 3, 4], "broadcast", finished=False)
    told = [((6, 0),), ((6, 1),), *(((7, 0), (6, root)) for root in (0, 0, 1))]
    samples = [in_broadcast(rank, roots) for rank, roots in enumerate(told)]
    samples[4] = replace(samples[4], last_site=f"/home/user/train.py:{line}")
    cause = only_cause(diagnose(job.case(samples=samples)))
    assert (cause.code, cause.culprits) == ("UH201", (1, 4))
    assert {site.line for site in cause.sites if 4 in site.ranks} == {9}


def test_roots_of_another_call_are_not_compared() -> None:
    """What C++ calls, such as DDP's broadcast of buffers, is in no heartbeat."""
    job = started(2)
    job.call(range(2), "broadcast", finished=False)
    samples = [in_broadcast(rank, ((6, rank),), line=7) for rank in range(2)]
    assert only_cause(diagnose(job.case(samples=samples))).code == "UH401"


def test_a_broadcast_that_others_left_long_ago() -> None:
    """Peers that finished a later call of everybody cannot have run ahead of who is still in it."""
    job = started()
    job.call(range(4), "broadcast", finished=[0, 1, 2])
    job.call(range(4), finished=[0, 1, 2])
    job.call(range(4), finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.op) == ("UH402", (3,), "broadcast")


@pytest.mark.parametrize("status", [None, DumpStatus.EMPTY, DumpStatus.UNREADABLE])
def test_silent_rank(status: DumpStatus | None) -> None:
    """A rank without a dump is the only explanation left: medium confidence."""
    job = started()
    job.call([0, 1, 2], finished=False)
    if status is None:
        job.missing = {3}
    else:
        job.broken = {3: status}
    report = diagnose(job.case())
    cause = only_cause(report)
    assert (cause.code, cause.confidence, cause.culprits) == ("UH103", "medium", (3,))


def test_a_missing_dump_is_not_blamed_while_somebody_is_missing_for_sure() -> None:
    """A lost dump beside a rank that is known to be missing is no second culprit."""
    job = started()
    job.call([0, 1], finished=False)
    job.missing = {3}
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH101", (2,), "medium")


def test_a_broadcast_source_runs_ahead() -> None:
    """The rank that is ahead is the odd one out, and not at fault."""
    job = started()
    job.call([0, 1, 2], "broadcast", finished=[0])
    job.call([0], "all_reduce", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH101", (3,), (0, 1, 2))
    assert cause.op == "broadcast"


def test_wrong_op_of_one() -> None:
    """The majority is right about the operation."""
    job = started()
    job.call([0, 1, 2], finished=False)
    job.call([3], "broadcast", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH201", (3,))
    assert {(side.role, side.ranks, side.op) for side in cause.calls} == {
        ("culprit", (3,), "broadcast"),
        ("peer", (0, 1, 2), "all_reduce"),
    }


def test_two_ranks_that_disagree() -> None:
    """Without a majority both sides are told and neither is blamed."""
    job = started(2)
    job.call([0], finished=False, sizes=[(8,)])
    job.call([1], finished=False, sizes=[(4,)])
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH202", (), (0, 1))
    assert sorted(side.sizes for side in cause.calls) == [((4,),), ((8,),)]


def test_wrong_dtype() -> None:
    """A rank in another precision is named."""
    job = started()
    job.call([0, 1, 3], finished=False)
    job.call([2], finished=False, dtype="Half")
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH203", (2,))


@pytest.mark.parametrize("received", [3, 4])
def test_uneven_exchange(received: int) -> None:
    """An uneven all-to-all is right where the sums agree, else a split mismatch."""
    job = started()
    for rank, (sent, got) in enumerate([(1, 4), (3, 2), (2, 1), (4, received)]):
        job.call([rank], "all_to_all", sizes=[(sent,)], out=[(got,)], finished=False)
    cause = only_cause(diagnose(job.case()))
    assert cause.code == ("UH401" if received == 3 else "UH204")
    assert cause.culprits == ()


@pytest.mark.parametrize(("before", "culprits"), [((4, 4, 4, 4), (2,)), ((3, 5, 4, 4), ())])
def test_who_is_odd_in_an_exchange(before: tuple[int, ...], culprits: tuple[int, ...]) -> None:
    """A majority is right only where all have always sent as much: else sizes differ, rightly."""
    job = started()
    for rank, sent in enumerate(before):
        job.call([rank], "all_to_all", sizes=[(sent,)], out=[(4,)], site="moe.py:9 dispatch")
    for rank in range(4):
        got = 5 if rank == 2 else 4
        job.call([rank], "all_to_all", sizes=[(4,)], out=[(got,)], site="moe.py:9 dispatch",
                 finished=False)  # fmt: skip
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH204", culprits)


def test_sizes_that_may_differ() -> None:
    """Gather's root has outputs and the others have none; a list and a stacked gather can meet."""
    job = started()
    job.call([0], "gather", sizes=[(4,)], out=[(4,)] * 4, finished=False)
    job.call([1, 2, 3], "gather", sizes=[(4,)], out=[], finished=False)
    assert only_cause(diagnose(job.case())).code == "UH401"
    job = started()
    job.call([0, 1], "all_gather", sizes=[(4,)], out=[(4,)] * 4, finished=False)
    job.call([2, 3], "_all_gather_base", sizes=[(4,)], out=[(16,)], finished=False)
    assert only_cause(diagnose(job.case())).code == "UH401"


def test_unknown_ops_are_opaque() -> None:
    """Sizes of an operation that nobody knows prove nothing; its name does."""
    job = started()
    job.call([0, 1, 2], "new_fancy_op", sizes=[(4,)], finished=False)
    job.call([3], "new_fancy_op", sizes=[(5,)], finished=False)
    assert only_cause(diagnose(job.case())).code == "UH401"


def test_crossed_order() -> None:
    """Two groups entered in crossed order are a loop with both call sites and no culprit."""
    job = started()
    a, b = job.group([0, 1], "a"), job.group([0, 1], "b")
    job.call([0], group=a, site="model.py:1 forward", finished=False)
    job.call([1], group=b, site="model.py:2 forward", finished=False)
    job.call([2, 3], finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH301", (), (0, 1, 2, 3))
    assert [(wait.waiter, wait.target) for wait in cause.waits] == [(0, 1), (1, 0)]
    assert {site.line for site in cause.sites} == {1, 2}


def test_two_independent_faults() -> None:
    """Two roots are two causes, each with its own victims."""
    job = started()
    a, b = job.group([0, 1], "a"), job.group([2, 3], "b")
    job.call([0], group=a, finished=False)
    job.call([2], group=b, finished=False)
    causes = diagnose(job.case()).causes
    assert [(cause.culprits, cause.victims) for cause in causes] == [((1,), (0,)), ((3,), (2,))]


def test_cascades_collapse() -> None:
    """Victims of victims belong to the one cause, with the chain that leads to it."""
    job = started(6)
    a, b = job.group([0, 1, 2], "a"), job.group([2, 3, 4], "b")
    job.call([0, 1], group=a, finished=False)
    job.call([2, 3], group=b, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.culprits, cause.victims) == ((4,), (0, 1, 2, 3))
    assert [(wait.waiter, wait.target) for wait in cause.waits] == [(0, 2), (2, 4)]


def test_inside_the_enqueue() -> None:
    """An entry without its counter is a rank stuck in the library, not an absent one."""
    job = started()
    job.call([0, 1, 2], finished=False)
    job.call([3], finished=False, enqueued=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH104", (3,), (0, 1, 2))


def test_windows_that_do_not_overlap() -> None:
    """A dump of an earlier moment proves nothing: not enough evidence, and nobody named."""
    job = started(steps=2)
    for _ in range(40):
        job.call([0, 1, 2], site="train.py:30 step")
    job.call([0, 1, 2], finished=False)
    job.buffer = 8
    report = diagnose(job.case())
    assert (report.status, report.culprits) == ("insufficient", ())
    assert report.findings[0].code == "UH901"
    assert report.ranks[3].status == "unknown"


def test_no_dump_at_all() -> None:
    """Nothing read is nothing judged."""
    job = FakeJob(4)
    job.missing = {0, 1, 2, 3}
    report = diagnose(job.case())
    assert (report.status, report.findings[0].code) == ("insufficient", "UH901")
    assert [rank.status for rank in report.ranks] == ["silent"] * 4


def test_device_that_stopped() -> None:
    """A device behind its peers in several groups, whose host went on, is the culprit."""
    job = started()
    a, b = job.group([0, 1], "a"), job.group([1, 2], "b")
    for _ in range(3):
        job.call([0, 1], group=a, finished=[0])
        job.call([1, 2], group=b, finished=[2])
    job.call([0, 2, 3], finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH105", (1,), (0, 2, 3))


def test_it_says_whose_line_is_shown() -> None:
    """Without its stack a culprit's line is that of its last call; with it, where it stands now.

    Frames of our own recorder, through which calls go, are in no stack that is shown.
    """
    job = FakeJob(3)
    recorder = "/opt/python/lib/python3.12/site-packages/unhang/record/wrap.py:9 call"
    site = f"{recorder} < train.py:17 step"
    job.call(range(3), site=site)
    job.call([0, 1], site=site, finished=False)
    case = job.case()
    report = diagnose(case)
    cause = only_cause(report)
    assert any("last finished call" in sentence for sentence in cause.evidence)
    assert {(s.role, s.line) for s in cause.sites} == {("culprit", 17), ("victim", 17)}
    assert not any("record" in f.file for stack in report.stacks.values() for f in stack)

    main = frames_of("data.py:3 next < train.py:16 step")
    dumps = tuple(replace(d, main_stack=main if d.rank == 2 else ()) for d in case.dumps)
    cause = only_cause(diagnose(replace(case, dumps=dumps)))
    assert not any("last finished call" in sentence for sentence in cause.evidence)
    assert [(s.role, s.line) for s in cause.sites] == [("culprit", 3), ("victim", 17)]


@pytest.mark.parametrize("overlapping", [True, False])
def test_communicators_in_flight_at_once_are_an_explanation(*, overlapping: bool) -> None:
    """With two groups open on one device, the order of their launches may be what holds them."""
    job = FakeJob(4)
    other = job.group(range(4), "ep")
    job.call(range(4), finished=False)
    if overlapping:
        job.call(range(4), "all_gather", other, finished=False)
    cause = diagnose(job.case()).causes[0]
    assert cause.code == "UH401"
    assert any("NCCL_LAUNCH_ORDER_IMPLICIT" in action for action in cause.actions) is overlapping
    assert any("ep (1)" in text for text in cause.alternatives) is overlapping


@pytest.mark.parametrize(
    ("how", "code"),
    [({"dtype": "Half"}, "UH203"), ({"sizes": ((5,),)}, "UH202"), ({"op": "broadcast"}, "UH201")],
)
def test_members_that_disagreed_about_a_call_that_ended(how: dict[str, Any], code: str) -> None:
    """Nothing waits: it is told all the same, and never as sure."""
    job = started()
    job.call([0, 1, 3], site="train.py:30 step")
    job.call([2], site="train.py:30 step", **how)
    job.call(range(4), site="train.py:31 step")
    report = diagnose(job.case())
    cause = only_cause(report)
    assert (cause.code, cause.culprits, cause.confidence, cause.seq) == (code, (2,), "low", 6)
    assert report.decision is not None
    assert report.decision.action == "look-first"
    job.call([0, 1, 3], finished=False)
    assert only_cause(diagnose(job.case())).code == "UH101"  # what is stuck goes first


@pytest.mark.parametrize(("through", "sure"), [(True, "low"), (False, "high")])
def test_members_made_unlike_batches_that_read_ended(*, through: bool, sure: str) -> None:
    """NCCL's recorder says so at once: it is believed as soon as a later call has ended."""
    job = started()
    both: tuple[Shape, ...] = ((4,), (8,))
    job.coalesced([0, 1, 3], ["allreduce_coalesced"], sizes=both)
    job.coalesced([2], ["allreduce_coalesced"], sizes=both[:1])
    job.call(range(4), finished=through)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence, cause.seq) == ("UH202", (2,), sure, 6)


def test_batches_of_which_some_members_are_lost_are_not_compared() -> None:
    """A ring that is full has lost the first ones of the oldest batch."""
    job = started()
    job.coalesced([0, 1, 3], ["all_reduce", "all_gather_into_tensor"])
    job.coalesced([2], ["all_gather_into_tensor"])
    job.call(range(4))
    assert diagnose(job.case()).status == "healthy"


@pytest.mark.parametrize(
    ("op", "sizes", "outs"),
    [
        ("all_to_all_single", [((4,),), ((6,),)], [((4,),), ((6,),)]),  # uneven splits
        ("gather", [((4,),), ((4,),)], [((4,), (4,)), ()]),  # the root has what others have not
        ("my_own_op", [((4,),), ((6,),)], [((4,),), ((6,),)]),
        ("all_reduce", [((4, 4),), ((16,),)], [((4, 4),), ((16,),)]),  # as many elements
    ],
)
def test_calls_that_ended_and_may_look_unlike(
    op: str, sizes: list[tuple[Shape, ...]], outs: list[tuple[Shape, ...]]
) -> None:
    """By the operation's own rules they fit."""
    job = started(2)
    for rank in (0, 1):
        job.call([rank], op, sizes=sizes[rank], out=outs[rank])
    assert diagnose(job.case()).status == "healthy"


def test_a_dump_that_agrees_in_nothing_is_of_another_job() -> None:
    """A file that was left behind has other calls under the same numbers."""
    job = FakeJob(4)
    for _ in range(3):
        job.call([0, 1, 2])
        job.call([3], sizes=((9,),))
    assert diagnose(job.case()).causes == ()


def test_two_that_disagreed_blame_nobody() -> None:
    """Without a majority both sides are told."""
    job = started(2)
    job.call([0])
    job.call([1], sizes=((5,),))
    assert (only_cause(diagnose(job.case())).culprits) == ()
