from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.live.truth import Truth, TruthSite, Verdict, disagreements, read_truth

TRUTH = Truth(
    fault="wrong-dtype",
    world_size=4,
    verdicts=(
        Verdict("problem", (2,), ("UH203",)),
        Verdict("problem", (1,), ("UH103",), confident=False),
    ),
    sites=(TruthSite("train.py", 7),),
    silent=(1,),
    notes=("one",),
)


def report(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a finding
    """A right report, with one finding changed."""
    finding = {
        "code": "UH203",
        "role": "cause",
        "confidence": "high",
        "culprits": [2],
        "sites": [{"file": "/home/user/job/train.py", "line": 7}],
        **changes,
    }
    observation = {**finding, "role": "observation", "code": "UH401", "culprits": [0]}
    return {"status": "problem", "findings": [finding, observation]}


def test_the_file_brings_back_what_was_written(tmp_path: Path) -> None:
    """Writing and reading is the identity."""
    TRUTH.write(tmp_path)
    assert read_truth(tmp_path) == TRUTH


@pytest.mark.parametrize(
    "changes",
    [{}, {"code": "UH103", "culprits": [1], "confidence": "medium"}],
)
def test_each_right_verdict_is_right(changes: dict[str, Any]) -> None:
    """The best verdict and the one that the evidence also allows; observations do not count."""
    assert disagreements(TRUTH, report(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"culprits": [0]}, "culprits are [0], not [2]"),
        ({"culprits": [1, 2]}, "culprits are [1, 2], not [2]"),
        ({"code": "UH202"}, "codes are ['UH202'], not among ['UH203']"),
        ({"sites": []}, "train.py:7 is not shown"),
        (
            {"code": "UH103", "culprits": [1]},
            "confidence is high where the evidence allows medium",
        ),
    ],
)
def test_each_difference_is_told(changes: dict[str, Any], sentence: str) -> None:
    """One sentence for what is wrong, against the nearest right verdict."""
    assert disagreements(TRUTH, report(**changes)) == [sentence]


def test_a_verdict_on_nothing_is_wrong() -> None:
    """A report without findings and with another status differs in everything."""
    assert len(disagreements(TRUTH, {"status": "healthy", "findings": []})) == 4
