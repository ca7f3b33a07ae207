"""Which cause is told first, and what a consequence says of its cause then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replaced

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.analysis import diagnose
from unhang.analysis.judgement import Backdrop, judge, most_telling_first
from unhang.analysis.rules.failed_alike import FailedAlike
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.not_progressing import JOINED_NOT_PROGRESSING
from unhang.analysis.rules.rank_ended import RANK_ENDED
from unhang.analysis.rules.wait_cycle import WAIT_CYCLE
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.ingest import load
from unhang.kinds import Kind
from unhang.testing import FakeJob, sample_of


def claim(kind: Kind, *doubts: Doubt, culprits: tuple[int, ...] = (), victims: int = 1) -> Claim:
    """A cause; what it is about does not matter."""
    about = FailedAlike((0,))
    waiting = tuple(range(100, 100 + victims))
    return Claim(kind=kind, about=about, doubts=doubts, culprits=culprits, victims=waiting)


VAGUE = claim(JOINED_NOT_PROGRESSING, Doubt.NOBODY_ABSENT, victims=60)
SURE = claim(NEVER_JOINED, culprits=(16,))
HALF = claim(NEVER_JOINED, Doubt.COUNT_UNSURE, culprits=(3,))
GUESS = claim(NEVER_JOINED, Doubt.PAUSES, culprits=(9,))
CIRCLE = claim(WAIT_CYCLE)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([VAGUE, SURE], [SURE, VAGUE]),
        ([VAGUE, HALF, SURE], [SURE, HALF, VAGUE]),
        ([HALF, CIRCLE], [CIRCLE, HALF]),  # proven, and there is no one to name
        ([GUESS, VAGUE], [VAGUE, GUESS]),  # a name that may be wrong leads nobody
        ([VAGUE, GUESS, HALF], [HALF, VAGUE, GUESS]),
        ([replaced(SURE, role="observation"), GUESS], [GUESS, replaced(SURE, role="observation")]),
    ],
)
def test_who_is_named_and_sure_comes_first(given: list[Claim], told: list[Claim]) -> None:
    """However many wait elsewhere; equals keep their order."""
    assert most_telling_first(given) == told
    assert most_telling_first([SURE, replaced(SURE, culprits=(2,))])[0] is SURE


def test_a_consequence_names_its_cause_wherever_that_stands() -> None:
    """It was weighed again since, so that it is another object now."""
    lead = claim(RANK_ENDED, Doubt.END_UNCLEAR, culprits=(1,))
    waits = replaced(HALF, role="consequence", caused_by=(lead,))
    weighed = lead.doubted([Doubt.ONE_MOMENT])
    claims = most_telling_first([weighed, SURE, waits])
    assert [each.kind for each in claims] == [NEVER_JOINED, RANK_ENDED, NEVER_JOINED]
    found = judge(claims, Backdrop(summary="x")).findings
    assert [f.caused_by for f in found] == [(), (), ("f2",)]


def test_a_sure_culprit_does_not_hide_behind_a_call_that_all_are_in() -> None:
    """Six wait in a call that does not move, two for a rank that never came to another one."""
    job = FakeJob(9)
    large, small = job.group(range(6), "dp"), job.group(range(6, 9), "tp")
    job.call(range(6), group=large)
    job.call(range(6, 9), group=small)
    job.call(range(6), group=large, finished=False)
    job.call([6, 7], group=small, finished=False)
    report = diagnose(job.case())
    assert [(f.code, f.culprits) for f in report.causes] == [("UH101", (8,)), ("UH401", ())]
    assert report.summary.startswith("Rank 8 never called")


# ------------------------------------------------------------------ why no surer


def test_a_pause_is_told_in_its_own_numbers() -> None:
    """What --grace says stands beside how long the rank has stood still."""
    job = FakeJob(3)
    job.call(range(3))
    job.call([0, 2], finished=False)
    samples = [
        sample_of(1, "data.py:12 load < train.py:8 main", sample=n, paused_s=22.4, grace_s=60.0)
        for n in range(2)
    ]
    cause = diagnose(job.case(samples=samples)).causes[0]
    assert (cause.culprits, cause.confidence) == ((1,), "low")
    assert cause.confidence_reasons[0] == "blocked for 22 s, less than --grace 60 s"
    unknown = [replace(sample, grace_s=0.0) for sample in samples]
    cause = diagnose(job.case(samples=unknown)).causes[0]
    assert cause.confidence_reasons[0] == "blocked for no longer than a pause may take"


@pytest.mark.parametrize("folder", sorted(Path("examples").glob("*/")), ids=lambda path: path.name)
def test_what_is_not_sure_says_why(folder: Path) -> None:
    """Nothing below high without a reason, nothing high with one, and no name is left open."""
    for finding in diagnose(load([folder])).findings:
        assert (finding.confidence == "high") is (not finding.confidence_reasons), finding
        assert not any("{" in reason for reason in finding.confidence_reasons)


@pytest.mark.parametrize(
    ("fault", "condition"),
    [("never-joined", "culprit-missing"), ("wrong-op", "few"), ("network", "hosts"),
     ("most-dumps-lost", "few"), ("device-stuck", "nccl-status")],
)  # fmt: skip
def test_simulated_faults_say_why_as_well(fault: str, condition: str, tmp_path: Path) -> None:
    """Dumps that are lost, hosts, counters: other doubts."""
    kind = {"network": "fabric-stuck"}.get(fault, fault)
    simulate(CaseSpec(fault, kind, "ddp", 8, condition, 0), tmp_path / "job")
    findings = diagnose(load([tmp_path / "job" / "dumps"])).findings
    assert findings
    for finding in findings:
        assert (finding.confidence == "high") is (not finding.confidence_reasons), finding


@pytest.mark.parametrize("doubt", list(Doubt))
def test_every_doubt_can_be_said(doubt: Doubt) -> None:
    """With ranks, call and group, and without any."""
    for known in (claim(NEVER_JOINED, doubt, culprits=(4,)), claim(JOINED_NOT_PROGRESSING, doubt)):
        said = judge([known], Backdrop(summary="x")).findings[0].confidence_reasons
        assert len(said) == 1
        assert "{" not in said[0]
        assert "nobody" not in said[0]
        assert "whoever" not in said[0]
