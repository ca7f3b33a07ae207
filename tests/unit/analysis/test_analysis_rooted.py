"""Verdicts on gathers and scatters: what members record depends on their role, not on a mistake."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unhang.analysis import diagnose
from unhang.report import Report
from unhang.testing import FakeJob, sample_of

PART, LIST = ((64,),), ((64,),) * 4
ABSENT = ((0,),)  # what NCCL writes for a tensor that is not there, of dtype UNKNOWN_SCALAR


class RootedJob(FakeJob):
    """A job that gathers or scatters as NCCL or Gloo record it."""

    def rooted(
        self,
        op: str,
        roots: tuple[int, ...] = (0,),
        *,
        without: tuple[int, ...] = (),
        finished: bool = True,
        dtypes: dict[int, str] | None = None,
        sizes: dict[int, int] | None = None,
        lines: tuple[int, int] = (7, 7),
    ) -> None:
        """Let all ranks but some make the call, each with the tensors of its role."""
        for rank in range(self.world_size):
            if rank in without:
                continue
            root, size = rank in roots, (sizes or {}).get(rank, 64)
            dtype, place = (dtypes or {}).get(rank, "Float"), f"t.py:{lines[not root]} step"
            part, whole = ((size,),), ((size,),) * self.world_size if root else ABSENT
            swapped = self.backend == "gloo" and op == "scatter"
            if self.backend == "gloo" and not root:
                whole = ()
            both = (whole, part) if swapped else (part, whole)
            self.call(
                [rank], op, sizes=both[0], out=both[1], dtype=dtype, site=place, finished=finished
            )
            pending = self.entries[rank][-1]
            if whole == ABSENT:
                signature = replace(pending.row.signature, output_dtypes=("UNKNOWN_SCALAR",))
                pending.row = replace(pending.row, signature=signature)


def job_of(how: str, op: str, steps: int = 3, **more: object) -> RootedJob:
    """A job of some healthy steps."""
    job = RootedJob(4, backend=how)
    for _ in range(steps):
        job.rooted(op, **more)  # type: ignore[arg-type]  # passed through
        job.call(range(4), site="t.py:9 step")
    return job


def said(report: Report) -> list[tuple[str, tuple[int, ...]]]:
    """Codes and culprits of the causes."""
    return [(cause.code, cause.culprits) for cause in report.causes]


EACH = pytest.mark.parametrize(
    ("how", "op"),
    [("nccl", "gather"), ("nccl", "scatter"), ("gloo", "gather"), ("gloo", "scatter")],
)


@EACH
@pytest.mark.parametrize("lines", [(7, 7), (6, 7)])
@pytest.mark.parametrize("absent", [0, 2])
def test_a_rank_that_does_not_come_is_all_that_is_wrong(
    how: str, op: str, absent: int, lines: tuple[int, int]
) -> None:
    """The root is not told to disagree with the rest, whichever side it alone has."""
    job = job_of(how, op, lines=lines)
    job.rooted(op, without=(absent,), finished=False, lines=lines)
    report = diagnose(job.case())
    assert said(report) == [("UH101", (absent,))]
    assert report.causes[0].confidence == "high"


@EACH
def test_what_fits_in_every_role_is_no_mismatch(how: str, op: str) -> None:
    """Everybody is in the call: it does not move, and nobody is blamed."""
    job = job_of(how, op)
    job.rooted(op, finished=False)
    assert said(diagnose(job.case())) == [("UH401", ())]


@EACH
@pytest.mark.parametrize("odd", [0, 2])
def test_a_part_of_another_size_or_dtype(how: str, op: str, odd: int) -> None:
    """Parts are compared, the root's among them."""
    job = job_of(how, op)
    job.rooted(op, finished=False, sizes={odd: 128})
    assert said(diagnose(job.case())) == [("UH202", (odd,))]
    job = job_of(how, op)
    job.rooted(op, finished=False, dtypes={odd: "Half"})
    assert said(diagnose(job.case())) == [("UH203", (odd,))]


@EACH
def test_another_operation_has_the_root_against_it_too(how: str, op: str) -> None:
    """The root and the other ranks are one side."""
    job = job_of(how, op)
    job.rooted(op, without=(1,), finished=False)
    job.call([1], "all_reduce", sizes=PART, site="t.py:7 step", finished=False)
    assert said(diagnose(job.case())) == [("UH201", (1,))]


@EACH
@pytest.mark.parametrize(("roots", "odd"), [((0, 1), 1), ((), 0), ((0, 1, 2, 3), None)])
def test_two_roots_or_none(how: str, op: str, roots: tuple[int, ...], odd: int | None) -> None:
    """Who has another role than ever before is wrong; three at once are no habit of one."""
    job = job_of(how, op)
    job.rooted(op, roots, finished=False)
    report = diagnose(job.case())
    assert said(report) == [("UH204", (1, 2, 3) if odd is None else (odd,))]
    assert report.causes[0].confidence == "medium"


@EACH
def test_without_a_habit_two_roots_blame_nobody(how: str, op: str) -> None:
    """The first call of its line: two roots are two too many, and either may be the right one."""
    job = job_of(how, op, steps=0)
    job.call(range(4), site="t.py:3 main")
    job.rooted(op, (0, 1), finished=False)
    assert said(diagnose(job.case())) == [("UH204", ())]


@EACH
@pytest.mark.parametrize(("named", "odd"), [((0, 1, 0, 0), (1,)), ((0, 1, 0, 1), ())])
def test_heartbeats_tell_which_of_two_roots_is_wrong(
    how: str, op: str, named: tuple[int, ...], odd: tuple[int, ...]
) -> None:
    """Dumps show the two that have a tensor for each member, heartbeats whom the rest names."""
    job = job_of(how, op, steps=0)
    job.call(range(4), site="t.py:3 main")
    job.rooted(op, (0, 1), finished=False)
    c10d = "/opt/site-packages/torch/distributed/distributed_c10d.py:4000"
    samples = [
        sample_of(rank, f"{c10d} {op} < t.py:7 step", sample=at, state="S", phase="ready",
                  last_op=op, last_call=2, roots=((2, root),), last_site="t.py:7")
        for rank, root in enumerate(named)
        for at in (0, 1)
    ]  # fmt: skip
    report = diagnose(job.case(samples=samples))
    assert said(report) == [("UH201", odd)]


@EACH
@pytest.mark.parametrize("roots", [(), (0, 1, 2, 3)])
def test_recorders_that_show_no_roles_accuse_nobody(
    how: str, op: str, roots: tuple[int, ...]
) -> None:
    """Where all look alike from the start, no role is known."""
    job = job_of(how, op, steps=3, roots=roots)
    job.rooted(op, roots, finished=False)
    assert said(diagnose(job.case())) == [("UH401", ())]


def test_a_root_that_goes_round_is_no_mistake() -> None:
    """Another root in each step: nobody has a role of its own."""
    job = job_of("nccl", "gather", steps=0)
    for step in range(3):
        job.rooted("gather", (step,))
    job.rooted("gather", (3, 0), finished=False)
    assert said(diagnose(job.case())) == [("UH204", ())]
