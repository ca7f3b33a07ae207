"""Call traces beside dumps: what a culprit did last, and who fell silent where nobody is blamed."""

from __future__ import annotations

from dataclasses import replace

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Frame, LastCall
from unhang.testing import FakeJob

S = 10**9
READ = Frame("read", "/home/user/data.py", 31)


def last(rank: int, second: int) -> LastCall:
    """A rank that entered `read` and has not come out."""
    return LastCall(rank, 100 + rank, second * S, READ, entered=True, open_calls=(READ,))


def test_a_culprit_with_a_trace_has_a_place() -> None:
    """Its trace says what it did and for how long it has been silent; the verdict stays."""
    job = FakeJob(4)
    job.call([0, 1, 3], site="train.py:30 step", finished=False)
    case = replace(job.case(), last_calls=(last(2, 3), last(0, 90), last(1, 90), last(3, 90)))
    first = diagnose(case).findings[0]
    assert (first.code, first.culprits) == ("UH101", (2,))
    assert first.evidence[0].startswith("Trace: rank 2 entered read at /home/user/data.py:31, 87.0")
    assert any(site.function == "read" and site.role == "culprit" for site in first.sites)


def test_nobody_is_blamed_by_a_trace() -> None:
    """Where dumps show nothing, the silent rank is an observation, and nobody is called healthy."""
    job = FakeJob(2)
    job.call(range(2), site="train.py:30 step")
    report = diagnose(replace(job.case(), last_calls=(last(1, 3), last(0, 90))))
    assert (report.status, report.culprits) == ("insufficient", ())
    assert [f.code for f in report.findings] == ["UH603", "UH601"]


def test_a_case_of_traces_alone() -> None:
    """It is what `unhang trace --show` says."""
    report = diagnose(Case(last_calls=(last(1, 3), last(0, 90))))
    assert (report.status, report.findings[0].victims) == ("insufficient", (1,))
