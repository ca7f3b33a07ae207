"""Inferred groups that are several of one name, against dumps that are merely old."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unhang.analysis import diagnose
from unhang.model import Group
from unhang.testing import FakeJob


def merged(job: FakeJob, description: str = "tp", *, inferred: bool = True) -> Group:
    """A group of everybody, as inferred where groups of one name are not told apart."""
    group = Group("1", description, tuple(range(job.world_size)), inferred, job.backend)
    job.groups.append(group)
    return group


def stuck(job: FakeJob, group: Group, first: range, second: range, absent: int) -> None:
    """Two groups of one name; in the second, one rank never makes the second call."""
    for ranks in (first, second):
        job.call(ranks, group=group, site="train.py:7 forward")
    job.call(first, group=group, site="train.py:7 forward")
    job.call([r for r in second if r != absent], group=group, site="train.py:7 forward",
             finished=False)  # fmt: skip


def test_groups_of_one_name_are_told_apart() -> None:
    """Who finished what others never made is in another group; the one that is absent is named."""
    job = FakeJob(8, backend="gloo")
    stuck(job, merged(job), range(4), range(4, 8), absent=5)
    report = diagnose(job.case())
    (cause,) = report.causes
    assert (cause.code, cause.culprits, cause.victims) == ("UH101", (5,), (4, 6, 7))
    assert (cause.group.size if cause.group else 0, cause.confidence) == (4, "medium")
    assert report.job.groups == 3
    assert any("cannot be one" in note.text for note in report.notes)


@pytest.mark.parametrize(
    ("description", "inferred", "second"),
    [("tp", False, range(4, 8)), ("default_pg", True, range(4, 8)), ("tp", True, range(5, 8))],
    ids=["declared", "the default group", "parts of no common size"],
)
def test_old_dumps_are_no_groups_of_their_own(
    description: str, second: range, *, inferred: bool
) -> None:
    """Where the group is surely one, or the parts cannot be groups, nobody is named."""
    job = FakeJob(8, backend="gloo")
    stuck(job, merged(job, description, inferred=inferred), range(second.start), second, absent=5)
    report = diagnose(job.case())
    assert not report.causes
    assert not any("cannot be one" in note.text for note in report.notes)


def test_failed_calls_are_no_groups_of_their_own() -> None:
    """Gloo marks failed calls as retired: then the rank that never made it is to blame."""
    job = FakeJob(8, backend="gloo")
    stuck(job, merged(job), range(4), range(4, 8), absent=5)
    case = job.case()
    case = replace(case, dumps=tuple(replace(d, failures=("all_reduce",)) for d in case.dumps))
    assert not any("cannot be one" in note.text for note in diagnose(case).notes)


@pytest.mark.parametrize(("name", "inferred"), [("1", True), ("1", False), ("0", True)])
def test_no_majority_is_of_what_may_be_several_groups(name: str, *, inferred: bool) -> None:
    """Where every rank counts its groups by itself, two who did not come out may be one of them."""
    job = FakeJob(8)
    group = Group(name, "", tuple(range(8)), inferred, job.backend)
    job.groups.append(group)
    job.call(range(8), group=group, finished=[0, 1, 3, 4, 5, 7])
    (cause,) = diagnose(job.case()).causes
    assert cause.code == "UH402"
    assert cause.culprits == (() if inferred and name == "1" else (2, 6))


def test_an_older_dump_with_a_call_in_flight_is_no_health() -> None:
    """It may be of a group of its own, whose other members left no dump."""
    job = FakeJob(3)
    group = merged(job, "")
    job.call(range(3), group=group, finished=[0, 2])
    job.call([0, 2], group=group)
    report = diagnose(job.case())
    assert report.status == "insufficient"
    assert "they finished a call that rank 1 never made" in report.summary
