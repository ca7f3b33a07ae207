"""Decisions about simulated incidents: a sample of what `python -m lab.score.decisions` replays."""

from __future__ import annotations

import pytest

from lab.score.decisions import replay
from lab.simulate.corpus import CaseSpec, cases

SAMPLE = {
    "never-joined": "look-first",
    "wrong-shape": "fix-code",
    "crossed-groups": "fix-code",
    "skipped-call": "fix-code",
    "fabric-stuck": "look-first",
    "healthy": "wait",
    "late-rank": "look-first",
    "most-dumps-lost": "look-first",
}


def spec_of(fault: str) -> CaseSpec:
    """The smallest plain case of a class."""
    specs = [spec for spec in cases("tuned") if spec.fault == fault]
    return min(specs, key=lambda spec: (spec.condition != "plain", spec.ranks, spec.name))


@pytest.mark.parametrize("fault", SAMPLE)
def test_what_is_advised_fits_the_fault(fault: str) -> None:
    """The action is the one that the truth asks for, and no innocent rank is named."""
    found = replay(spec_of(fault))
    assert found is not None
    assert (found.decision.action, found.right) == (SAMPLE[fault], True)
