from __future__ import annotations

import json
from typing import Any

import pytest

from lab.score.adapters import verdict_of
from lab.score.captures import real_cases
from lab.score.verdict import Verdict, disagreements, judge
from lab.truth import Cause, Point, Truth, from_json, to_json

LINES = (Point(file="train.py", line=7),)
TRUTH = Truth(
    ("problem",),
    (Cause(("UH203",), (2,), also=((), (3,)), points=(Point("0", "dp", 4, "a.py", 1),)),),
    world_size=4,
    observations=("UH601",),
    fault="wrong-dtype",
    lines=LINES,
    either=(Truth(("problem",), (Cause(("UH103",), (1,), ceiling="medium"),), 4, lines=LINES),),
    notes=("one",),
)
ASKED = Truth(("problem",), (Cause(("UH203",), (2,)),), 4, lines=LINES, either=TRUTH.either)


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


def test_the_file_brings_back_what_was_written() -> None:
    """Writing and reading is the identity; further keys only describe the case."""
    assert from_json(json.loads(to_json(TRUTH, layout="ddp"))) == TRUTH
    assert from_json(json.loads(to_json(Truth(("healthy",))))) == Truth(("healthy",))


def test_the_truths_about_real_dumps_are_of_this_schema() -> None:
    """Every archive has one, and every one its archive."""
    cases = dict(real_cases())
    assert len(cases) > 112
    assert all(path.exists() and truth.world_size and truth.notes for path, truth in cases.items())


@pytest.mark.parametrize(
    "changes",
    [{}, {"code": "UH103", "culprits": [1], "confidence": "medium"}],
)
def test_each_right_verdict_is_right(changes: dict[str, Any]) -> None:
    """The best verdict and the one that the evidence also allows; observations do not count."""
    assert disagreements(ASKED, verdict_of(report(**changes))) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"culprits": [0], "confidence": "low"}, "culprits are [0], not [2]"),
        ({"culprits": [1, 2], "confidence": "low"}, "culprits are [1, 2], not [2]"),
        ({"code": "UH202"}, "codes are ['UH202'], not among ['UH203']"),
        ({"sites": []}, "train.py:7 is not shown"),
        ({"code": "UH103", "culprits": [1]}, "confidence is higher than the evidence allows"),
    ],
)
def test_each_difference_is_told(changes: dict[str, Any], sentence: str) -> None:
    """One sentence for what is wrong, against the nearest right verdict."""
    assert disagreements(ASKED, verdict_of(report(**changes))) == [sentence]


def test_where_nothing_can_be_said_no_line_is_asked_for() -> None:
    """Insufficient evidence accuses nobody, so it shows no call of anybody."""
    lost = Truth(("insufficient",), (Cause(("UH901",)),), 4, lines=LINES)
    mark = judge(lost, Verdict("insufficient"))
    assert (mark.right, mark.site) == (True, None)


def test_a_verdict_on_nothing_is_wrong() -> None:
    """A report without findings and with another status differs in everything."""
    assert len(disagreements(ASKED, Verdict("healthy"))) == 4
