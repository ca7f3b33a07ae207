"""What the supervisor takes from a verdict: whom to spare, and why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.run.incident.closing import closing_line
from unhang.run.incident.judging import Verdict, _verdict
from unhang.run.watching.words import why_spared

LOW, HIGH = {"confidence": "low"}, {"confidence": "high"}


def verdict_of(
    folder: Path, *causes: dict[str, object], action: str = "", **decided: object
) -> Verdict:
    """A verdict as it is read: of each cause its confidence, its culprits and who moves."""
    nobody: dict[str, object] = {"culprits": [], "moving": [], "pausing": []}
    findings = [{"role": "cause", **nobody, **cause} for cause in causes]
    told = {"action": action, "confidence": "medium", **decided}
    decision = told if action or decided else None
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
    assert ("the nodes that are waited for were not looked at" in told) is bool(told) is spared


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


@pytest.mark.parametrize(
    ("site", "place"),
    [
        ({"after": ""}, "rank 2 at src/data.py:31; "),
        ({"after": "all_reduce #3"}, "rank 2 last seen at src/data.py:31; "),
        ({"role": "victim"}, ""),
    ],
)
def test_a_run_ends_with_its_verdict(tmp_path: Path, site: dict[str, object], place: str) -> None:
    """One line: what, where, and which case; how the command ended, where it ended well."""
    where = {"ranks": [2], "role": "culprit", "file": "/home/u/src/data.py", "line": 31, **site}
    verdict = verdict_of(tmp_path, {**HIGH, "sites": [where]})
    verdict = replace(verdict, summary="Rank 2 never came.\x1b[2J")
    line = f"PROBLEM  Rank 2 never came.\\x1b[2J ({place}case: {tmp_path})"
    assert closing_line(verdict, 143) == line
    assert closing_line(verdict, 0) == f"the command ended well, after: {line}"


def test_without_a_verdict_the_case_is_named_at_the_end(tmp_path: Path) -> None:
    """Judging failed, or was not waited for; without a case there is nothing to say."""
    assert closing_line(_verdict(tmp_path, "", "broken"), 1) == (
        f"there is no verdict (case: {tmp_path})"
    )
    assert closing_line(Verdict(""), 1) == ""


@pytest.mark.parametrize(
    ("decided", "left", "why"),
    [
        ({"moving": [3]}, (), "rank 3 moves"),
        ({"pausing": [0, 3]}, (), "ranks 0,3 may only pause"),
        ({}, (0, 2), "ranks 0,2 have left the call"),
        ({"reason": "unsure", "confidence": "low"}, (), "not enough to act on"),
        ({"reason": "not-enough-evidence", "confidence": "low"}, (), "not enough to act on"),
        ({"reason": "idle", "confidence": "low"}, (), "may have nothing to do"),
        ({"reason": "away"}, (), ""),
    ],
)
@pytest.mark.parametrize("on_hang", ["kill", "keep"])
def test_ranks_that_no_cause_blames_keep_a_job_alive(
    tmp_path: Path, decided: dict[str, object], left: tuple[int, ...], why: str, on_hang: str
) -> None:
    """Any rank outside of a call may make it go on, and a call that has failed holds no rank."""
    cause = {**HIGH, "culprits": [1]}
    verdict = verdict_of(tmp_path, cause, action="look-first", **decided)
    spared = why_spared(verdict, on_hang, 60.0, left)
    assert why in spared
    assert bool(spared) is bool(why)
