"""What other commands found, beside dumps: evidence, explanation, observation; never the cause."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.report import Confidence, Finding, Report, SavedReport, Subject, SubjectKind
from unhang.testing import FakeJob

MIN = 60 * 10**9


def check(code: str, summary: str, *subjects: Subject, **more: object) -> Finding:
    """A check of the doctor that failed."""
    given = {"role": "cause", "confidence": "high", "actions": ("Mend it.",), **more}
    return Finding(id="", code=code, summary=summary, subjects=subjects, **given)  # type: ignore[arg-type]  # the test's to get right


def host(name: str) -> Subject:
    """A node."""
    return Subject("host", name, host=name)


def link(text: str) -> Subject:
    """A way between two nodes."""
    return Subject("link", text)


def process(rank: int, where: str) -> Subject:
    """A rank of a test, on its node."""
    return Subject("process", f"rank {rank} on {where}", rank=rank, host=where)


def told(case: Case, *findings: Finding, command: str = "doctor", later_ns: int = 3 * MIN) -> Case:
    """The case with a report of another command."""
    moment = case.newest_ns or int(case.calls.created_ns.max(initial=0))
    status = "problem" if any(f.role == "cause" for f in findings) else "insufficient"
    saved = SavedReport(
        command, f"reports/{command}.json", moment + later_ns, status, "It says so.", findings
    )  # type: ignore[arg-type]  # one of the two words
    return replace(case, reports=(*case.reports, saved))


def absent(*, inferred: bool = False) -> Case:
    """Rank 3 of 16 on two nodes never called; that is less certain where groups are inferred."""
    job = FakeJob(16)
    job.call(range(16))
    job.call([rank for rank in range(16) if rank != 3], finished=False)
    case = job.case()
    if inferred:
        case = replace(case, groups=tuple(replace(g, inferred=True) for g in case.groups))
    return case


def stuck(ranks: int = 16) -> Case:
    """All ranks are in one call, which does not move."""
    job = FakeJob(ranks)
    job.call(range(ranks))
    job.call(range(ranks), finished=False)
    return job.case()


def as_verdict(report: Report) -> tuple[object, ...]:
    """What a foreign report must never change."""
    causes = [(f.code, f.culprits, f.victims, f.summary) for f in report.causes]
    ranks = [(row.rank, row.status) for row in report.ranks]
    return report.status, report.summary, report.culprits, causes, ranks


def test_a_check_of_the_culprits_node_is_evidence() -> None:
    """With its source, its age and where the rank is; it is not told a second time."""
    report = diagnose(told(absent(), check("UH842", "node00 gpu 3: 9 errors.", host("node00"))))
    (first,) = report.findings
    assert first.culprits == (3,)
    assert first.evidence[-1] == (
        "By doctor, 3 min after the last recorded call: node00 gpu 3: 9 errors. "
        "(rank 3 is on node00)"
    )
    assert first.actions[-1] == "Mend it."


def test_what_is_about_everybody_is_no_evidence() -> None:
    """Nor is another node: both are observations."""
    all_nodes = check("UH809", "torch differs.", host("node00"), host("node01"))
    report = diagnose(told(absent(), all_nodes, check("UH842", "bad.", host("node01"))))
    assert as_verdict(report) == as_verdict(diagnose(absent()))
    assert report.findings[0] == diagnose(absent()).findings[0]
    assert [(f.code, f.role, f.culprits) for f in report.findings[1:]] == [
        ("UH809", "observation", ()),
        ("UH842", "observation", ()),
    ]


@pytest.mark.parametrize(
    ("finding", "later_ns", "confidence"),
    [
        (check("UH860", "rank 3 did not arrive.", process(3, "node00")), 0, "high"),
        (check("UH860", "rank 3 did not arrive.", process(3, "node00.cluster.lan")), 0, "high"),
        (
            check("UH860", "two are missing.", process(3, "node00"), process(4, "node00")),
            0,
            "medium",
        ),
        (check("UH860", "rank 3 did not arrive.", process(3, "node00")), 90 * MIN, "medium"),
        (check("UH860", "rank 3 of others.", process(3, "node01")), 0, "medium"),
        (check("UH860", "a doubt.", process(3, "node00"), confidence="low"), 0, "medium"),
        (check("UH842", "its node.", host("node00")), 0, "medium"),
        (check("UH101", "another verdict.", process(3, "node00")), 0, "medium"),
        (check("UH604", "waits.", process(3, "node00"), role="observation"), 0, "medium"),
    ],
    ids=lambda value: value.summary if isinstance(value, Finding) else str(value),
)
def test_who_confirms(finding: Finding, later_ns: int, confidence: Confidence) -> None:
    """Only a check of this moment that names that rank on that host, and no other."""
    before = diagnose(absent(inferred=True))
    assert before.findings[0].confidence == "medium"
    report = diagnose(told(absent(inferred=True), finding, later_ns=later_ns))
    assert report.findings[0].confidence == confidence
    assert as_verdict(report) == as_verdict(before)


def test_a_trace_of_the_culprit_is_evidence() -> None:
    """By host and process id, as its dump has them; a rank's number is not needed."""
    job = FakeJob(4)
    job.call([0, 1, 3], finished=False)
    job.dump_fields = {2: {"pid": 4711}}
    thread = Subject("process", "thread 4711", "victim", pid=4711, host="node00")
    seen = check("UH604", "Thread 4711 waited in read on /data/x.", thread, role="observation")
    report = diagnose(told(job.case(), seen, command="trace"))
    assert report.findings[0].evidence[-1].endswith("Thread 4711 waited in read on /data/x.")
    elsewhere = replace(seen, subjects=(replace(thread, host="node07"),))
    report = diagnose(told(job.case(), elsewhere, command="trace"))
    assert [f.code for f in report.findings] == ["UH101", "UH604"]


@pytest.mark.parametrize(
    ("finding", "explains"),
    [
        (check("UH823", "node01 is filtered.", link("node00 -> node01:29500")), True),
        (check("UH863", "only this pair fails.", link("node01 - node00")), True),
        (check("UH820", "node01 advertises docker0.", host("node01")), True),
        (
            check("UH842", "node01 gpu 2: errors.", Subject("gpu", "node01 gpu 2", host="node01")),
            True,
        ),
        (check("UH823", "another link.", link("node01 -> node02:29500")), False),
        (check("UH808", "no cores.", host("node01")), False),
        (check("UH820", "a doubt.", host("node01"), role="observation"), False),
        (check("UH872", "other numbers.", host("node01")), False),
    ],
    ids=lambda value: value.summary if isinstance(value, Finding) else str(value),
)
def test_an_explanation_is_no_culprit(finding: Finding, explains: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """Where all wait in one call: what all ways between their nodes pass, as a possibility."""
    before = diagnose(stuck())
    report = diagnose(told(stuck(), finding))
    assert before.findings[0].code == "UH401"
    assert as_verdict(report) == as_verdict(before)
    assert report.findings[0].confidence == before.findings[0].confidence
    assert report.findings[0].alternatives[0].startswith("Possibly: By doctor") == explains
    assert [f.role for f in report.findings[1:]] == ["observation"]


def test_one_of_many_nodes_explains_nothing() -> None:
    """Between three nodes there are ways that do not pass the bad one."""
    report = diagnose(told(stuck(24), check("UH820", "node01: docker0.", host("node01"))))
    assert report.findings[0].alternatives == diagnose(stuck(24)).findings[0].alternatives


def test_a_healthy_report_is_a_note() -> None:
    """It found nothing, which is worth a line."""
    case = absent()
    saved = SavedReport("doctor", "d.json", 0, "healthy", "All 12 checks passed.")
    report = diagnose(replace(case, reports=(saved,)))
    assert report.findings == diagnose(case).findings
    assert report.notes[-1].text == "By doctor, at an unknown time: All 12 checks passed."


def test_reports_alone_name_nobody() -> None:
    """They are told, and the verdict is that there is not enough."""
    finding = check("UH860", "rank 3 did not arrive.", process(3, "node00"), culprits=(3,))
    report = diagnose(told(Case(), finding))
    assert (report.status, report.culprits, report.ranks) == ("insufficient", (), ())
    assert [(f.id, f.code, f.role) for f in report.findings] == [("f1", "UH860", "observation")]
    assert report.findings[0].subjects[0].rank is None


NAMES = st.sampled_from(("node00", "node01", "NODE00", "node00.lan", "node09", "localhost", ""))
KINDS: tuple[SubjectKind, ...] = ("rank", "host", "gpu", "link", "process", "file", "setting")
SUBJECTS = st.builds(
    Subject,
    kind=st.sampled_from(KINDS),
    id=st.sampled_from(("node00 -> node01:1", "node00 - node01", "node00 gpu 1", "rank 3", "")),
    role=st.sampled_from(("culprit", "victim")),
    rank=st.none() | st.integers(0, 20),
    host=st.none() | NAMES,
    pid=st.none() | st.integers(0, 5),
)
FINDINGS = st.builds(
    Finding,
    id=st.just(""),
    code=st.sampled_from(("UH101", "UH106", "UH401", "UH501", "UH604", "UH823", "UH860", "UH901")),
    role=st.sampled_from(("cause", "consequence", "observation")),
    confidence=st.sampled_from(("high", "medium", "low")),
    summary=st.just("It is so."),
    culprits=st.lists(st.integers(0, 20), max_size=3).map(tuple),
    victims=st.lists(st.integers(0, 20), max_size=3).map(tuple),
    subjects=st.lists(SUBJECTS, max_size=3).map(tuple),
)
CASES = (absent(), absent(inferred=True), stuck(), Case())


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(CASES), st.lists(FINDINGS, max_size=4), st.integers(-90, 90))
def test_no_report_makes_a_culprit(case: Case, findings: list[Finding], minutes: int) -> None:
    """Whatever it says: status, causes, culprits, victims and the ranks' states are the dumps'."""
    report = diagnose(told(case, *findings, later_ns=minutes * MIN))
    if case.dumps:
        assert as_verdict(report) == as_verdict(diagnose(case))
    assert report.culprits in ((), (3,))
    assert not any(f.culprits or f.victims for f in report.findings if f.role == "observation")
    assert len({f.id for f in report.findings}) == len(report.findings)
