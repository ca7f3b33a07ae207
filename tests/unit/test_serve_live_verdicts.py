"""Which verdicts the live page and `unhang top` tell of, whenever they are opened."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from unhang.run.watching.now import JobNow
from unhang.serve.past import Verdicts

_S = 1_000_000_000


def judged(folder: Path, name: str, summary: str, *, job: str = "", time_s: int = 5_000) -> Path:
    """A case of which the report is there."""
    case = folder / name
    case.mkdir(exist_ok=True)
    incident = {"newest_ns": time_s * _S, "job_id": job}
    report = {"status": "problem", "summary": summary, "incident": incident}
    (case / "report.json").write_text(json.dumps(report))
    return case


def told(desk: Verdicts, jobs: list[JobNow], known: dict[str, int] | None = None) -> list[str]:
    """What a page is told that knows so much already."""
    return [past.summary for _, past in desk.since({} if known is None else known, jobs)]


def test_a_page_that_is_opened_late_has_all_of_them(tmp_path: Path) -> None:
    """Each time it is opened: the verdicts of since the server began, oldest first, once each."""
    judged(tmp_path, "old", "Yesterday's.")
    desk = Verdicts((tmp_path,))
    judged(tmp_path, "b", "Second.", time_s=9_000)
    judged(tmp_path, "a", "First.", time_s=8_000)
    known: dict[str, int] = {}
    assert told(desk, [], known) == ["First.", "Second."]
    assert told(desk, [], known) == []
    assert told(desk, []) == ["First.", "Second."]


def test_a_verdict_that_was_made_again_is_told_again(tmp_path: Path) -> None:
    """The page puts it in the place of the one before."""
    desk = Verdicts((tmp_path,))
    case = judged(tmp_path, "a", "First.")
    known: dict[str, int] = {}
    desk.since(known, [])
    judged(tmp_path, "a", "With all stacks.")
    os.utime(case / "report.json", ns=(1, 2**62))
    ((key, again),) = desk.since(known, [])
    assert (again.summary, key) == ("With all stacks.", next(iter(known)))


@pytest.mark.parametrize(
    ("job", "began_s", "is_told"),
    [("train", 4_000, True), ("train", 6_000, False), ("train", 0, False), ("other", 4_000, False)],
)
def test_of_cases_from_before_those_of_running_jobs(
    tmp_path: Path, job: str, began_s: int, *, is_told: bool
) -> None:
    """A server that was started after the hang; an earlier job of the same name is another one."""
    judged(tmp_path, "a", "It hangs.", job="train", time_s=5_000)
    desk = Verdicts((tmp_path,))
    running = JobNow(job, "node01", 2, (), began_ns=began_s * _S)
    assert told(desk, [running]) == (["It hangs."] if is_told else [])
