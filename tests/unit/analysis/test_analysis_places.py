"""Who stands where the others stand: told by facts of the stacks, not by how they are worded."""

from __future__ import annotations

from unhang import diagnose
from unhang.analysis.lives.whereabouts import grouped
from unhang.analysis.sources.stacks import RankLook
from unhang.model import Frame
from unhang.stacks.meaning import Meaning
from unhang.testing import FakeJob, sample_of

LINE = Frame("solve", "train.py", 40)


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
