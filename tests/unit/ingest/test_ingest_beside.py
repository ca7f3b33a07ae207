"""Logs, traces and cores beside the dumps: what is read, what is left out, what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.errors import InputError, NoEvidenceError
from unhang.ingest import Beside, load

MESSAGE = "ValueError: batch {} has no labels\n"


def log(folder: Path, attempt: int) -> None:
    """The log that torchrun keeps of rank 1 in one attempt."""
    path = folder / f"job_x/attempt_{attempt}/1/stderr.log"
    path.parent.mkdir(parents=True)
    path.write_text(MESSAGE.format("ab"[attempt]))


def test_logs_of_the_newest_attempt(tmp_path: Path) -> None:
    """Nothing tells which attempt it is about: the newest is taken, and that is said."""
    log(tmp_path, 0)
    log(tmp_path, 1)
    case = load([], beside=Beside(logs=(str(tmp_path),)))
    assert [event.text for event in case.log_events] == [MESSAGE.format("b").strip()]
    assert [note.text for note in case.notes] == [
        "read 2 logs (0.0 MB): 2 known messages",
        "1 message of other attempts than attempt 1 skipped",
    ]


def test_logs_of_a_case_are_read_once(tmp_path: Path) -> None:
    """Also where the user names one of them again; and not at all where they are unwanted."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "rank_1.log"
    path.write_text(MESSAGE.format("a"))
    assert load(tmp_path, beside=Beside(logs=(str(path),))).log_events[0].count == 1
    assert len(load(tmp_path).log_events) == 1
    with pytest.raises(NoEvidenceError):
        load(tmp_path, beside=Beside(case_logs=False))


def test_what_a_case_kept_of_the_job_s_output_may_say_nothing(tmp_path: Path) -> None:
    """Nothing is missing then; of a log that somebody names as one, that is worth a warning."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank_1.log").write_text(MESSAGE.format("a"))
    path = tmp_path / "logs" / "run.stderr.log"
    path.write_text("ready\n\n")
    told = "does not look like the log of a job"
    levels = [note.level for note in load(tmp_path).notes if note.text == told]
    assert levels == ["info"]
    named = load(tmp_path, beside=Beside(logs=(str(path),)))
    assert [note.level for note in named.notes if note.text == told] == ["warning"]


def test_what_is_named_must_be_there(tmp_path: Path) -> None:
    """A log, a trace, a core: an error, not a note, since the user means it."""
    for beside in (
        Beside(logs=(str(tmp_path / "none"),)),
        Beside(traces=(str(tmp_path),)),
        Beside(cores=(str(tmp_path),)),
    ):
        with pytest.raises(InputError):
            load([], beside=beside)


def test_logs_that_say_nothing_are_no_evidence(tmp_path: Path) -> None:
    """Without dumps there is nothing to judge."""
    (tmp_path / "a.log").write_text("step 1\n")
    with pytest.raises(NoEvidenceError, match="no rule knows a message"):
        load([], beside=Beside(logs=(str(tmp_path),)))
