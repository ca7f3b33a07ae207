"""Calls left out or made once too often, long before the hang."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from verdicts import only_cause

from unhang.analysis import diagnose
from unhang.model import Group
from unhang.testing import FakeJob

LINES = ("train.py:11 forward", "train.py:12 backward", "train.py:13 optimizer")


def run(  # noqa: PLR0913 - a job has this many independent facts
    job: FakeJob,
    ranks: Sequence[int],
    skips: int,
    *,
    steps: int = 20,
    at: int = 7,
    sizes: Sequence[int] = (4, 4, 4),
    group: Group | None = None,
    stalls: int = -1,
) -> None:
    """Steps of three calls; one rank leaves out the second of one step. All calls meet by number.

    The last call is never finished, since one rank never makes it; one may stall before it.
    """
    programs = {
        rank: [
            (line, size)
            for step in range(steps)
            for part, (line, size) in enumerate(zip(LINES, sizes, strict=True))
            if not (rank == skips and step == at and part == 1)
        ]
        for rank in ranks
    }
    if stalls >= 0:
        programs[stalls].pop()
    for number in range(steps * 3):
        for rank in ranks:
            if number < len(programs[rank]):
                line, size = programs[rank][number]
                last = number == steps * 3 - 1
                job.call([rank], site=line, sizes=[(size,)], finished=not last, group=group)


@pytest.mark.parametrize("skips", [0, 2, 3])
def test_a_call_left_out_far_back(skips: int) -> None:
    """The call is named with both lines, though all that is seen is a last call never made."""
    job = FakeJob(4)
    run(job, range(4), skips)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (skips,), "high")
    assert cause.victims == tuple(rank for rank in range(4) if rank != skips)
    assert (cause.seq, cause.op) == (7 * 3 + 2, "all_reduce")
    assert {(site.role, site.line) for site in cause.sites} == {("culprit", 13), ("victim", 12)}
    assert "never called" in " ".join(cause.evidence)


def test_sizes_alone_tell_it_too() -> None:
    """Without stacks, sizes that follow a pattern show the missing call."""
    job = FakeJob(4)
    programs = {r: [s for _ in range(9) for s in (4, 8, 16)] for r in range(4)}
    del programs[1][10]
    for number in range(14):
        for rank, sizes in programs.items():
            job.call([rank], sizes=[(sizes[number],)], finished=number < 10)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.seq) == ("UH102", (1,), 11)


def test_a_mismatch_that_comes_from_a_call_left_out() -> None:
    """Sizes that do not fit are the late effect of the missing call."""
    job = FakeJob(4)
    programs = {r: [(LINES[p], 4 + p) for _ in range(9) for p in range(3)] for r in range(4)}
    del programs[2][10]
    for number in range(14):
        for rank, calls in programs.items():
            line, size = calls[number]
            job.call([rank], site=line, sizes=[(size,)], finished=number < 10)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.seq) == ("UH102", (2,), 11)
    assert "disagree" in " ".join(cause.evidence)


def test_a_call_too_many() -> None:
    """A rank that makes one call more than its peers is the culprit, though it waits."""
    job = FakeJob(4)
    for _ in range(5):
        for line in LINES:
            job.call(range(4), site=line)
    job.call([1], site="debug.py:5 check")
    job.call([0, 2, 3], site=LINES[0])
    for _ in range(4):
        job.call([1], site=LINES[0])
        job.call([0, 2, 3], site=LINES[0])
    job.call([1], site=LINES[0], finished=False)
    report = diagnose(job.case())
    cause = only_cause(report)
    assert (cause.code, cause.culprits, cause.seq) == ("UH102", (1,), 16)


def test_two_ranks_cannot_be_told_apart() -> None:
    """With two members one lacks a call or the other has one too many: neither is blamed."""
    job = FakeJob(2)
    run(job, range(2), 1, at=1)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH102", (), (0, 1))
    assert {site.line for site in cause.sites} == {12, 13}


@pytest.mark.parametrize("skips", [0, 1])
def test_what_two_ranks_have_always_done_tells_them_apart(skips: int) -> None:
    """One of them made the call that had always come next; it is a habit and no proof."""
    job = FakeJob(2)
    run(job, range(2), skips)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (skips,), "medium")
    assert cause.summary.startswith(f"Rank {skips} did not make all_reduce #23")


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("early", [False, True])
def test_a_call_of_two_that_comes_rarely(odd: int, *, early: bool) -> None:
    """Each twenty-fifth step ends in a barrier: one rank skips it, or one makes it too early."""
    job = FakeJob(2)
    for step in range(89 if early else 75):
        job.call(range(2), site="train.py:1 step")
        if step % 25 == 24 and (early or step < 74):
            job.call(range(2), "barrier", site="train.py:3 step")
    barrier = odd if early else 1 - odd
    job.call([barrier], "barrier", site="train.py:3 step", finished=False)
    job.call([1 - barrier], site="train.py:1 step", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (odd,), "medium")
    what = "all_reduce" if early else "barrier"
    assert cause.summary.startswith(f"Rank {odd} did not make {what}")


def test_a_call_that_is_new_to_both_of_two() -> None:
    """Who makes it has left the order of both; that the other left it out is as well possible."""
    job = FakeJob(2)
    for _ in range(30):
        job.call(range(2), site="train.py:1 step")
    job.call([0], site="train.py:1 step", finished=False)
    job.call([1], "barrier", site="train.py:9 save", finished=False)
    report = diagnose(job.case())
    cause = only_cause(report)
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (1,), "low")
    assert report.decision is not None
    assert (report.decision.action, report.decision.confidence) == ("fix-code", "medium")
    assert report.decision.subjects == (), "that the calls do not fit is sure, and no more"
    assert any("It never made that call before" in text for text in cause.alternatives)


def test_kin_decide_for_small_groups() -> None:
    """Other groups of the same kind run the same program: they are the majority."""
    job = FakeJob(8)
    for first in range(0, 8, 2):
        pair = [first, first + 1]
        run(job, pair, 3, group=job.group(pair, "tp"))
    causes = diagnose(job.case()).causes
    assert [(cause.code, cause.culprits) for cause in causes if cause.culprits] == [("UH102", (3,))]


def test_lines_of_its_own_are_no_divergence() -> None:
    """A rank that makes all calls from other lines left nothing out."""
    job = FakeJob(4)
    for step in range(9):
        job.call([1, 2, 3], site=LINES[step % 3])
        job.call([0], site=f"main_rank.py:{step % 3} step")
    job.call([1, 2, 3], site=LINES[0], finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH101", (0,))


def test_a_difference_before_the_window() -> None:
    """Where the ring has lost the place, it says so instead of naming the wrong call."""
    job = FakeJob(4, buffer=12)
    run(job, range(4), 2)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (2,), "medium")
    assert "may be earlier" in " ".join(cause.evidence)


def test_a_stalled_rank_beside_one_that_left_out_a_call() -> None:
    """Two ranks that never make the last call may have two reasons."""
    job = FakeJob(6)
    run(job, range(6), 2, steps=10, stalls=4)
    causes = diagnose(job.case()).causes
    assert {(cause.code, cause.culprits) for cause in causes} == {("UH102", (2,)), ("UH101", (4,))}


def test_groups_of_one_kind_need_not_make_the_same_calls() -> None:
    """What one group does together and another does not is no call too many of any of its ranks.

    Experts of one group are rebalanced, and one rank announces a wrong amount. The other group has
    nothing to rebalance, goes on and waits for the first.
    """
    job = FakeJob(8)
    experts = [job.group(range(first, first + 4), "experts") for first in (0, 4)]
    copies = [job.group((rank, rank + 4), "copies") for rank in range(4)]

    def work(group: Group) -> None:
        for line in LINES:
            job.call(group.members, "all_to_all", group, site=line)

    for _ in range(4):
        for group in experts:
            work(group)
        for group in copies:
            job.call(group.members, group=group, site="train.py:20 step")
    for rank, size in enumerate((3, 4, 4, 4)):
        job.call(
            [rank], "all_to_all", experts[0], sizes=[(size,)], out=[(4,)],
            site="moe.py:9 balance", finished=False,
        )  # fmt: skip
        job.call([rank], "all_to_all", experts[0], site=LINES[0], finished=False)
    work(experts[1])
    for group in copies:
        job.call(group.members[1:], group=group, site="train.py:20 step", finished=False)
    report = diagnose(job.case())
    cause = only_cause(report)
    assert (cause.code, cause.culprits, cause.seq) == ("UH204", (0,), 13), report.summary
    assert cause.victims == (1, 2, 3, 4, 5, 6, 7)


def test_a_last_call_made_twice() -> None:
    """A rank repeats its call in one group while its peers go on in another: it made one too many.

    All wait in a circle then, of which only that rank's last call is at odds with the program.
    """
    job = FakeJob(4)
    pairs = [job.group(pair, "tp") for pair in ((0, 1), (2, 3))]
    for _ in range(3):
        for group in pairs:
            job.call(group.members, group=group, site="layers.py:7 forward")
        job.call(range(4), site="train.py:9 log")
    job.call([3], site="train.py:9 log", finished=False)
    job.call((0, 1), group=pairs[0], site="layers.py:7 forward")
    job.call([2], group=pairs[1], site="layers.py:7 forward", finished=False)
    job.call((0, 1), site="train.py:10 save", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.seq) == ("UH102", (3,), 4)
    assert cause.victims == (0, 1, 2)


def test_ranks_of_other_groups_are_not_said_to_lack_its_call() -> None:
    """Where only ranks of other groups show the program, each side is told with its own call."""
    job = FakeJob(8)
    pairs = [job.group((first, first + 1), "tp") for first in (0, 2, 4, 6)]
    for _ in range(3):
        for group in pairs:
            job.call(group.members, group=group, site="layers.py:7 forward")
        job.call(range(8), site="train.py:9 log")
    for group in pairs:
        job.call(group.members, group=group, site="layers.py:7 forward")
    job.call([3], group=pairs[1], site="layers.py:7 forward", finished=False)
    job.call([0, 1, 2, 4, 5, 6, 7], site="train.py:9 log", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH102", (3,))
    for side in cause.calls:
        members = {group.name: set(group.members) for group in job.groups}
        assert set(side.ranks) <= members[side.group.name if side.group else ""]


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("odd", [(1, 2), (0, 3)])
def test_crossed_groups_of_a_mesh_are_a_circle(odd: tuple[int, ...], *, ahead: bool) -> None:
    """Half of a 2x2 mesh enters tp and dp the other way round: the order is wrong, not a rank.

    Hosts that run ahead have enqueued both calls, so nobody lacks one.
    """
    job = FakeJob(4)
    tp = [job.group((0, 1), "tp"), job.group((2, 3), "tp")]
    dp = [job.group((0, 2), "dp"), job.group((1, 3), "dp")]
    for _ in range(20):
        for group in tp:
            job.call(group.members, "all_gather", group, site="train.py:88")
        for group in dp:
            job.call(group.members, "all_reduce", group, site="train.py:97")
    for rank in range(4):
        calls = [(tp[rank // 2], "all_gather", 88), (dp[rank % 2], "all_reduce", 97)]
        if rank in odd:
            calls.reverse()
        for group, op, line in calls if ahead else calls[:1]:
            job.call([rank], op, group, site=f"train.py:{line}", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH301", ())
    assert all(side.state for side in cause.calls)  # nobody "never called" anything


@pytest.mark.parametrize(
    ("backend", "ahead", "told"),
    [("nccl", True, True), ("nccl", False, False), ("gloo", True, False)],
)
def test_communicators_in_flight_at_once_on_a_device(
    backend: str, *, ahead: bool, told: bool
) -> None:
    """The settings of the order of launches are told where a device has calls of both in flight."""
    job = FakeJob(2, backend=backend)
    twins = [job.group((0, 1), name) for name in ("a", "b")]
    for rank, order in ((0, twins), (1, twins[::-1])):
        for group in order if ahead else order[:1]:
            job.call([rank], group=group, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH301", ())
    assert any("NCCL_LAUNCH_ORDER_IMPLICIT=1" in text for text in cause.actions) == told
    assert any("at once on one device (a (1), b (2))" in t for t in cause.alternatives) == told


def test_a_call_that_its_peers_made_too_was_not_made_twice() -> None:
    """A rank that left out a call of its pair seems to repeat the world's, which all have made.

    It is the only one that did not begin its second iteration as it began the first.
    """
    job = FakeJob(4)
    pairs = [job.group(pair, "tp") for pair in ((0, 1), (2, 3))]
    for group in pairs:
        job.call(group.members, "all_gather", group, site="train.py:1 step")
    job.call(range(4), site="train.py:2 step")
    job.call((0, 1), "all_gather", pairs[0], site="train.py:1 step")
    job.call([2], "all_gather", pairs[1], site="train.py:1 step", finished=False)
    job.call(range(4), site="train.py:2 step", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (3,), "low")
    assert "1 iteration of 2 calls each; this call was next" in " ".join(cause.evidence)


def test_the_one_rank_in_every_loop() -> None:
    """Two wait for one that waits elsewhere for them: among those who agree there is no circle.

    Where steps before show what it used to call there, that is told.
    """

    def job(steps: int) -> FakeJob:
        job = FakeJob(4)
        three = job.group((0, 1, 2), "dp")
        for _ in range(steps):
            job.call(range(4), site="train.py:1 step")
            job.call(three.members, group=three, site="train.py:2 step")
        job.call(range(4), site="train.py:1 step")
        job.call([0, 1], group=three, site="train.py:2 step", finished=False)
        job.call([2], site="train.py:90 log", finished=False)
        job.call([3], site="train.py:1 step", finished=False)
        return job

    cause = only_cause(diagnose(job(0).case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH301", (2,), "medium")
    cause = only_cause(diagnose(job(3).case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH102", (2,), "medium")
    assert "every time before (3 times)" in " ".join(cause.evidence)
