"""Restarts that end the same way: when the decision says that it is enough."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unhang.context.recalled import Past
from unhang.context.storms import BUDGET_VARIABLE, stopped
from unhang.report import Action, Confidence, Decision
from unhang.run.incident.acting import why_spared
from unhang.run.incident.verdict import Verdict

THIS = Past(Path("c"), 3e9, "train7", "problem", "", command="torchrun train.py", attempt="2")
LOOK = Decision("look-first", "away", "high", text="Inspect rank 2 first.")


def earlier(*jobs: str) -> list[Past]:
    """Incidents of these jobs, before this one."""
    return [replace(THIS, job_id=job, command="", attempt=str(at)) for at, job in enumerate(jobs)]


def decided(decision: Decision, *jobs: str) -> Action:
    """What is advised after so many incidents of these jobs."""
    found = stopped(decision, THIS, earlier(*jobs), "train.py:26")
    assert found is not None
    return found.action


def test_the_third_time_ends_restarts() -> None:
    """The line is named, and how often it was there; the subjects stay."""
    assert decided(LOOK, "train7") == "look-first"
    found = stopped(LOOK, THIS, earlier("train7", "train7"), "train.py:26")
    text = "Stop restarting the job: it ended 3 times at train.py:26 for one reason."
    assert found == replace(LOOK, action="stop", reason="comes-again", text=text)


def test_a_command_that_is_started_again_by_hand_counts() -> None:
    """Its job has another number each time."""
    again = [replace(THIS, job_id=str(number)) for number in range(2)]
    found = stopped(LOOK, THIS, again, "train.py:26")
    assert found is not None
    assert found.action == "stop"


@pytest.mark.parametrize("jobs", [("other", "other"), ("train7", "other"), ("", "")])
def test_other_jobs_do_not_count(jobs: tuple[str, str]) -> None:
    """Also where neither has a name."""
    assert decided(LOOK, *jobs) == "look-first"


@pytest.mark.parametrize("action", ["restart", "restart-without"])
def test_what_hopes_for_a_restart_is_changed(action: Action) -> None:
    """It was tried."""
    assert decided(replace(LOOK, action=action), "train7", "train7") == "stop"


@pytest.mark.parametrize(
    "decision",
    [
        replace(LOOK, confidence="low"),
        replace(LOOK, moving=(1,)),
        replace(LOOK, pausing=(1,)),
        replace(LOOK, action="wait"),
        replace(LOOK, action="fix-code"),
    ],
)
def test_a_guess_or_a_job_that_may_go_on_is_not_stopped(decision: Decision) -> None:
    """Nor does it take the place of better advice."""
    assert decided(decision, *["train7"] * 9) == decision.action


def test_the_budget_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no number changes nothing."""
    monkeypatch.setenv(BUDGET_VARIABLE, "2")
    assert decided(LOOK, "train7") == "stop"
    for odd in ("0", "-1", "x", "1e9", "²", ""):
        monkeypatch.setenv(BUDGET_VARIABLE, odd)
        assert decided(LOOK, "train7") == "look-first"


@pytest.mark.parametrize("confidence", ["high", "medium"])
def test_a_job_that_decides_is_ended_by_it(confidence: Confidence) -> None:
    """As by any decision after which it is of no more use."""
    verdict = Verdict("", "problem", action="stop", confidence=confidence)
    assert why_spared(verdict, "decide", 60.0) == ""
