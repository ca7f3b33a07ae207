"""Real jobs that go wrong before or beside their groups: who has not come, whose size differs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from needs import needs_torch
from ports import free_port
from run_jobs import PROGRAM, kill, launch, lines_of, run_job

pytestmark = needs_torch


def test_a_rank_that_does_not_come_is_named_at_its_line(tmp_path: Path) -> None:
    """It reads data before it joins; nothing in it speaks for it, and its peers wait for it."""
    outcome = launch(tmp_path, "comes_late", *kill())
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == ("UH101", [1]), outcome.said
    stands = {site["line"] for site in cause["sites"] if site["role"] == "culprit"}
    assert stands == lines_of("comes_late"), outcome.said
    assert outcome.code == 143


def test_sizes_that_do_not_fit_are_a_mismatch(tmp_path: Path) -> None:
    """Gloo aborts a process that need not be the odd one: the last calls of all ranks decide.

    On a busy machine it may stand for so long before that it is a hang first: a case of its own.
    """
    outcome = launch(tmp_path, "uneven", "--hang-after", "20")
    assert outcome.cases, outcome.said
    for case in outcome.cases:
        cause = replace(outcome, cases=[case]).cause
        assert (cause["code"], cause["culprits"]) == ("UH202", [1]), outcome.said
        assert "160 elements" in cause["summary"]


def test_a_hang_after_an_end_that_was_not_the_ranks_is_told(tmp_path: Path) -> None:
    """A wrapper's probe has a rank's environment and fails; the rank comes, and skips a call."""
    probe = (
        "import glob, os, sys, time\n"
        "while len(glob.glob(os.environ['UNHANG_RUNTIME_DIR'] + '/*/marks/*.json')) < 3:\n"
        "    time.sleep(0.1)\n"
        "time.sleep(4)\n"
        "sys.exit(3)"
    )
    script = f'[ "$RANK" != 1 ] || "$0" -c "{probe}"; exec "$0" "$@"'
    python = ("sh", "-c", script, sys.executable)
    patience = ("--hang-after", "12")  # the probe ends before anybody is waited for as long
    outcome = launch(tmp_path, "skip", *kill(), *patience, torchrun=True, python=python)
    assert len(outcome.cases) == 2, outcome.said
    reports = [json.loads((case / "report.json").read_text()) for case in outcome.cases]
    assert "UH106" not in [f["code"] for f in reports[-1]["findings"]], outcome.said
    assert reports[-1]["findings"][0]["culprits"] == [1], outcome.said


def test_what_a_rank_prints_into_a_file_of_its_own_is_read(tmp_path: Path) -> None:
    """As with launchers written in a shell: nobody else keeps the traceback of who never came."""
    script = 'for r in 0 1 2; do RANK=$r LOCAL_RANK=$r "$0" "$@" >"$r.txt" 2>&1 & done; wait'
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "3"}
    variables = [f"{name}={value}" for name, value in place.items()]
    command = ["env", *variables, "sh", "-c", script, sys.executable, str(PROGRAM), "unready"]
    outcome = run_job(tmp_path, kill(), command)
    assert outcome.cases, outcome.said
    for case in outcome.cases:
        report = json.loads((case / "report.json").read_text())
        (cause,) = (found for found in report["findings"] if found["role"] == "cause")
        assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
        assert {site["line"] for site in cause["sites"]} == lines_of("unready"), outcome.said
        assert "KeyError: 'unready'" in " ".join(cause["evidence"]), outcome.said


def test_ranks_that_nobody_ends_after_one_has_failed_are_ended(tmp_path: Path) -> None:
    """Their launcher waits for the first; whose traceback it was, the one failed rank tells."""
    outcome = launch(tmp_path, "unready", *kill())
    assert len(outcome.cases) == 2, outcome.said
    for case in outcome.cases:
        report = json.loads((case / "report.json").read_text())
        (cause,) = (found for found in report["findings"] if found["role"] == "cause")
        assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
        assert {site["line"] for site in cause["sites"]} == lines_of("unready"), outcome.said
    assert "still exist and make no progress" in outcome.said
    assert outcome.code == 143
