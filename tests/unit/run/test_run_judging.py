"""What the supervisor takes from a verdict: whom to spare, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.run.incident.judging import Verdict, _verdict
from unhang.run.watching.words import why_spared

LOW, HIGH = {"confidence": "low"}, {"confidence": "high"}


def verdict_of(folder: Path, *causes: dict[str, object], action: str = "") -> Verdict:
    """A verdict as it is read: of each cause its confidence, its culprits and who moves."""
    nobody: dict[str, object] = {"culprits": [], "moving": [], "pausing": []}
    findings = [{"role": "cause", **nobody, **cause} for cause in causes]
    decision = {"action": action, "confidence": "medium"} if action else None
    report = {"status": "problem", "summary": "", "findings": findings, "decision": decision}
    (folder / "report.json").write_text(json.dumps(report))
    return _verdict(folder, "", "")


@pytest.mark.parametrize(
    ("looked_at", "culprits", "spared"),
    [
        ([[0, 3]], [[4, 5]], True),  # of a node that was not looked at
        ([[0, 3]], [[3, 4]], False),
        ([[0, 3]], [[4], [2]], False),
        ([[0, 3]], [[4], []], False),
        ([], [[2, 3]], True),  # a launcher waits for another node
        ([], [[]], True),
        (None, [[4]], False),
    ],
)
def test_a_job_is_not_ended_for_ranks_that_nobody_has_looked_at(
    tmp_path: Path,
    looked_at: object,
    culprits: list[list[int]],
    spared: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """However sure a cause is: they may be healthy, and their supervisor late."""
    manifest = {} if looked_at is None else {"looked_at": looked_at}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    causes = [{**HIGH, "culprits": named} for named in culprits]
    told = why_spared(verdict_of(tmp_path, *causes), "kill", 60.0)
    assert ("nobody has looked at the nodes" in told) is bool(told) is spared


@pytest.mark.parametrize(
    ("causes", "action", "why"),
    [
        ([LOW], "", "a guess"),
        ([{**LOW, "culprits": [1]}], "", ""),
        ([{**LOW, "culprits": [1]}], "wait", "the decision is not to end"),
        ([HIGH], "look-first", ""),
        ([LOW, HIGH], "", ""),
        ([{**LOW, "culprits": [1], "moving": [1]}], "", "rank 1 moves"),
        ([{**LOW, "culprits": [2], "pausing": [2]}], "", "rank 2 may only pause"),
    ],
)
def test_a_job_is_not_ended_on_a_guess(
    tmp_path: Path, causes: list[dict[str, object]], action: str, why: str
) -> None:
    """All may sleep until a time that was set, or somebody may go on by itself."""
    spared = why_spared(verdict_of(tmp_path, *causes, action=action), "kill", 60.0)
    assert why in spared
    assert bool(spared) is bool(why)
