"""Who stands where the others stand: told by facts of the stacks, not by how they are worded."""

from __future__ import annotations

from unhang import diagnose
from unhang.analysis.lives.whereabouts import grouped
from unhang.analysis.sources.stacks import RankLook
from unhang.model import Frame, ThreadStack
from unhang.stacks.meaning import Meaning
from unhang.testing import FakeJob, sample_of

LINE = Frame("solve", "train.py", 40)
C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def look(rank: int, says: str, site: Frame | None = LINE, kind: str = "user-code") -> RankLook:
    """A rank at a place, in some words."""
    meaning = Meaning(kind, says, site=site)
    return RankLook(sample_of(rank, ""), meaning, moved=False, frames=())


def test_other_words_are_no_other_place() -> None:
    """What a rank is said to do may change with a release: where it stands does not."""
    assert len(grouped([look(0, "in user code"), look(1, "running"), look(2, "at work")])) == 1


def test_another_line_or_kind_is_another_place() -> None:
    """The largest group first."""
    ranks = [look(0, "x"), look(1, "x", Frame("solve", "train.py", 41)), look(2, "x", kind="lock")]
    assert [len(same) for same in grouped([*ranks, look(3, "x")])] == [2, 1, 1]


def test_the_one_that_ran_at_that_moment_is_not_blamed() -> None:
    """All stand at one line for good; the scheduler had one of them on a core when it was seen."""
    states = ("S", "S", "S", "R")
    samples = [
        sample_of(rank, "train.py:40 solve", sample=n, state=state)
        for n in (0, 1)
        for rank, state in enumerate(states)
    ]
    report = diagnose(FakeJob(4).case(samples=samples))
    assert all(not finding.culprits for finding in report.findings)


def test_the_thread_that_made_the_call_shows_the_line() -> None:
    """A thread of rank 1 makes an all_reduce between two broadcasts of the main ones."""
    job = FakeJob(3, backend="gloo")
    for _ in range(3):
        job.call(range(3), "broadcast")
    job.call([0, 2], "broadcast", finished=False)
    job.call([1], "all_reduce", sizes=((3,),), finished=False)
    job.call([1], "broadcast", finished=False)
    main = ThreadStack("MainThread", 1, (Frame("broadcast", C10D, 3100), LINE), is_main=True)
    report = (Frame("all_reduce", C10D, 3245), Frame("report", "train.py", 10))
    other = ThreadStack("Report", 9, report)
    samples = [
        sample_of(rank, "", sample=n, threads=(main, other) if rank == 1 else (main,))
        for n in (0, 1)
        for rank in range(3)
    ]
    first = diagnose(job.case(samples=samples)).findings[0]
    assert (first.code, first.culprits) == ("UH102", (1,))
    assert [(s.ranks, s.line) for s in first.sites if s.role == "culprit"] == [((1,), 10)]
