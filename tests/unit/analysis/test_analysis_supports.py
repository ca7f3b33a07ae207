"""What raises the confidence of a finding is told, as what lowers it is."""

from __future__ import annotations

from dataclasses import dataclass

from unhang.analysis import diagnose
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Observation, confidence_of
from unhang.analysis.words.doubts import reasons_of, supports_of
from unhang.testing import FakeJob, sample_of


@dataclass(frozen=True)
class Facts:
    """What a claim is about."""


def test_other_sources_that_say_the_same_are_named() -> None:
    """Each source once, the heaviest first, with its ranks; without weight it raises nothing."""
    log = Observation(source="logs", ranks=(3,))
    claim = (
        Claim(kind=NEVER_JOINED, about=Facts(), culprits=(3,), doubts=(Doubt.MEMBER_UNSEEN,))
        .seen(log, Bearing.FITS_MESSAGE)
        .seen(log, Bearing.COUNTERS_AGREE)
        .seen(Observation(source="ras", ranks=(3,)), Bearing.TELLS_THE_END)
        .seen(Observation(source="cores"), Bearing.ABOUT_CULPRIT)
        .seen(Observation(source="stacks"), Bearing.STANDS)
    )
    assert confidence_of(claim) == "high"
    assert reasons_of(claim) == ()
    assert supports_of(claim) == (
        "NCCL's RAS says the same (rank 3)",
        "the log says the same (rank 3)",
    )


def test_a_contradiction_is_no_support() -> None:
    """Nor does one hide what another source says for the claim."""
    claim = (
        Claim(kind=NEVER_JOINED, about=Facts(), culprits=(3,))
        .seen(Observation(source="ras"), Bearing.RAS_DENIES)
        .seen(Observation(source="logs"), Bearing.FITS_MESSAGE)
    )
    assert reasons_of(claim) == ("NCCL's RAS says otherwise",)
    assert supports_of(claim) == ("the log says the same",)


def test_a_finding_without_another_source_has_none() -> None:
    """Stacks that only place a rank say nothing for or against."""
    job = FakeJob(3)
    job.call(range(3))
    job.call([0, 2], finished=False)
    cause = diagnose(job.case(samples=[sample_of(1, "data.py:12 load")])).causes[0]
    assert (cause.code, cause.confidence_supports) == ("UH101", ())
