"""What the supervisor takes from a verdict: whom to spare, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.run.incident.judging import Verdict, _verdict
from unhang.run.watching.words import why_spared


def verdict_of(folder: Path, *causes: tuple[list[int], str, list[int]]) -> Verdict:
    """A verdict as it is read: of each cause its culprits, its confidence and who moves."""
    findings = [
        {"role": "cause", "culprits": culprits, "confidence": confidence, "moving": moving}
        for culprits, confidence, moving in causes
    ]
    report = {"status": "problem", "summary": "", "findings": findings, "decision": None}
    (folder / "report.json").write_text(json.dumps(report))
    return _verdict(folder, "", "")


@pytest.mark.parametrize(
    ("causes", "why"),
    [
        ([([], "low", [])], "a guess"),
        ([([1], "low", [])], ""),
        ([([], "high", [])], ""),
        ([([], "low", []), ([], "medium", [])], ""),
        ([([1], "low", [1])], "rank 1 moves"),
    ],
)
def test_a_job_is_not_ended_on_a_guess(
    tmp_path: Path, causes: list[tuple[list[int], str, list[int]]], why: str
) -> None:
    """All ranks may sleep until a time that was set: then nobody is named, and nobody is sure."""
    spared = why_spared(verdict_of(tmp_path, *causes), "kill")
    assert why in spared
    assert bool(spared) is bool(why)
