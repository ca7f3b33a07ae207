"""Real jobs in which a rank works, leaves or was stopped: not every quiet is a hang."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from needs import needs_torch
from ports import free_port
from run_jobs import (
    PATIENCE_S,
    PROGRAM,
    UNHANG,
    Outcome,
    environment,
    kill,
    launch,
    lines_of,
    moved_on,
)

from unhang.record.contact.client import AskError, ask, request_dump
from unhang.record.contact.heartbeat import read_heartbeat
from unhang.record.contact.marks import Mark, read_marks

pytestmark = needs_torch

SPARED = "rank 0 moves: the job is left alone"
MAY_PAUSE = "rank 0 may only pause"


def launch_and_tell(
    folder: Path, fault: str, word: str, *options: str, spared: str = SPARED
) -> Outcome:
    """Run a job with --on-hang kill; once it was spared, tell it `word`."""
    notify = ("--notify", "tee -a notices")
    command = [
        *UNHANG,
        *kill(),
        *options,
        *notify,
        "--",
        sys.executable,
        str(PROGRAM),
        fault,
        "3",
        str(free_port()),
    ]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(folder), stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and spared not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        (folder / word).touch()
        if process.poll() is None and (asleep := folder / "asleep").exists():
            os.kill(int(asleep.read_text()), signal.SIGUSR1)
        code = process.wait(PATIENCE_S)
    finally:
        process.kill()
    return Outcome(code, log.read_text(), sorted((folder / "unhang-cases").glob("*")))


@pytest.mark.parametrize(
    "fault", ["evaluates", "saves", "trickles", "receives", "retries", "lists"]
)
def test_a_rank_that_works_is_not_stuck(tmp_path: Path, fault: str) -> None:
    """Others wait for it, which is told with low confidence; the job is left to end by itself."""
    outcome = launch_and_tell(tmp_path, fault, "go-on")
    assert outcome.code == 0, outcome.said
    assert SPARED in outcome.said
    assert moved_on(outcome.said), outcome.said
    cause = outcome.cause
    assert (cause["code"], cause["culprits"], cause["moving"]) == ("UH101", [0], [0])
    assert cause["confidence"] == "low"
    stands = {site["line"] for site in cause["sites"] if site["role"] == "culprit"}
    assert stands, outcome.said
    assert stands <= lines_of(fault), outcome.said  # either line of the loop in which it works
    told = (tmp_path / "notices").read_text().replace("}{", "}\n{").splitlines()
    verdict, moves_on = sorted(map(json.loads, told), key=lambda notice: notice["time_s"])
    assert (verdict["event"], verdict["confidence"]) == ("verdict", "low")
    assert moves_on["event"] == "moves-on"


def test_a_rank_that_will_wake_is_not_stuck(tmp_path: Path) -> None:
    """It sleeps until a moment that its memory tells, which is minutes away."""
    outcome = launch_and_tell(tmp_path, "rests", "go-on")
    assert outcome.code == 0, outcome.said
    assert SPARED in outcome.said
    cause = replace(outcome, cases=outcome.cases[:1]).cause  # looked at again as long as it sleeps
    assert (cause["code"], cause["culprits"], cause["moving"]) == ("UH101", [0], [0])
    assert cause["confidence"] == "low"
    assert re.search(r"sleeping, for another \d+ s at rests", " ".join(cause["evidence"]))
    assert {site["line"] for site in cause["sites"] if site["role"] == "culprit"} == lines_of(
        "rests"
    )


def test_a_pause_ends_no_job(tmp_path: Path) -> None:
    """Who polls, or waits for another process, may go on; when it has, the report says so."""
    outcome = launch_and_tell(tmp_path, "polls", "go-on", "--grace", "600", spared=MAY_PAUSE)
    assert outcome.code == 0, outcome.said
    assert moved_on(outcome.said), outcome.said
    told = (tmp_path / "notices").read_text().replace("}{", "}\n{").splitlines()
    first = next(notice for notice in map(json.loads, told) if notice["event"] == "verdict")
    assert (first["culprits"], first["confidence"], first["action"]) == ([0], "low", "look-first")
    assert "a pause" in first["decision"]
    cause, decision = outcome.cause, outcome.report["decision"]
    assert (cause["code"], cause["culprits"], cause["confidence"]) == ("UH101", [0], "low")
    assert cause["pausing"] == [0]
    assert "gone on since" in cause["summary"], outcome.report
    assert decision["action"] == "wait"


def test_all_but_one_that_pause_are_late_and_end_no_job(tmp_path: Path) -> None:
    """The punctual rank made no call too many: those that wait for a lock of a file may come."""
    spared = "ranks 1-2 may only pause"
    outcome = launch_and_tell(tmp_path, "shares_a_cache", "go-on", "--grace", "600", spared=spared)
    assert outcome.code == 0, outcome.said
    assert "ending the job" not in outcome.said
    assert moved_on(outcome.said), outcome.said
    cause = outcome.cause
    assert (cause["code"], cause["culprits"], cause["confidence"]) == ("UH101", [1, 2], "low")
    stands = {site["line"] for site in cause["sites"] if site["role"] == "culprit"}
    assert stands == lines_of("shares_a_cache"), outcome.said


def test_a_server_without_requests_is_idle(tmp_path: Path) -> None:
    """Its peers have always waited for rank 0 there: it is told low, and the job is not ended."""
    spared = "the awaited rank may have nothing to do"
    outcome = launch_and_tell(tmp_path, "serves", "go-on", spared=spared)
    assert outcome.code == 0, outcome.said
    assert "ending the job" not in outcome.said
    assert moved_on(outcome.said), outcome.said
    cause = outcome.cause
    assert (cause["code"], cause["culprits"], cause["confidence"]) == ("UH101", [0], "low")
    stands = {site["line"] for site in cause["sites"] if site["role"] == "culprit"}
    assert stands == lines_of("serves"), outcome.said
    assert "the others waited for rank 0" in " ".join(cause["evidence"])


def test_a_wait_for_a_lock_may_have_a_time_out(tmp_path: Path) -> None:
    """No other thread lets go of it, and still it ends."""
    outcome = launch(tmp_path, "backs_off", *kill(), "--grace", "60")
    assert outcome.code == 0, outcome.said
    cause = outcome.cause
    assert (cause["culprits"], cause["confidence"], cause["pausing"]) == ([0], "low", [0])
    assert {s["line"] for s in cause["sites"] if s["role"] == "culprit"} == lines_of("backs_off")


def test_a_pause_that_lasts_is_a_hang(tmp_path: Path) -> None:
    """After the time of grace the ranks are looked at again, and the job is ended."""
    outcome = launch(tmp_path, "polls", *kill(), "--grace", "25")
    assert outcome.code == 143, outcome.said
    # On a busy machine a look may see the poll move, which makes a case of its own.
    *before, last = [Outcome(0, outcome.said, [case]).cause for case in outcome.cases]
    assert before, outcome.said
    assert {(c["code"], *c["culprits"], c["confidence"]) for c in before} == {("UH101", 0, "low")}
    assert (last["code"], last["culprits"], last["confidence"]) == ("UH101", [0], "high")
    assert (before[-1]["pausing"], last["pausing"]) == ([0], [])
    for cause in (*before, last):
        stands = {site["line"] for site in cause["sites"] if site["role"] == "culprit"}
        assert stands == lines_of("polls")


def test_a_job_that_goes_on_while_it_is_looked_at_gets_low_confidence(
    tmp_path: Path,
) -> None:
    """Its dumps are of the pause, and the looks after them of what came then."""
    outcome = launch(tmp_path, "late", *kill())
    assert outcome.code == 0, outcome.said
    assert moved_on(outcome.said), outcome.said
    cause, decision = outcome.cause, outcome.report["decision"]
    assert (cause["code"], cause["culprits"], cause["confidence"]) == ("UH101", [0], "low")
    assert "gone on since" in cause["summary"], outcome.said
    assert (decision["action"], decision["reason"]) == ("wait", "moves")


def test_who_waits_at_a_store_is_told_with_the_keys(tmp_path: Path) -> None:
    """Not for sure: the rank that has to set the key may be the one that is wrong."""
    outcome = launch(tmp_path, "asks", *kill())
    cause = outcome.cause
    assert (cause["code"], cause["culprits"], cause["confidence"]) == ("UH101", [1], "medium")
    assert {site["line"] for site in cause["sites"] if site["role"] == "culprit"} == lines_of(
        "asks"
    )
    told = " ".join(cause["evidence"])
    assert "for '5/0, 5/1, 5/2' in a store" in told, told
    assert "rank 0: '5/0'; rank 1: '5/1'; rank 2: '4/2'" in told, told
    assert outcome.code == 143


def test_the_alarm_comes_again_when_the_work_ends(tmp_path: Path) -> None:
    """A rank that worked and then stands still is stuck: now --on-hang kill acts."""
    outcome = launch_and_tell(tmp_path, "evaluates", "stand-still")
    assert outcome.code == 143, outcome.said
    assert "and rank 0 stood still for" in outcome.said
    first, *_, last = [Outcome(0, outcome.said, [case]).cause for case in outcome.cases]
    assert (first["moving"], last["moving"]) == ([0], [])
    assert (last["code"], last["culprits"], last["confidence"]) == ("UH101", [0], "high")


@pytest.mark.parametrize(
    ("fault", "torchrun"),
    [("runs_out", False), ("drops_out", True)],
    ids=["fork-runs_out", "torchrun-drops_out"],
)
def test_a_rank_that_leaves_early_is_named(tmp_path: Path, fault: str, *, torchrun: bool) -> None:
    """Exit code 0 while its peers are in calls; its last known line is shown.

    On a busy machine torchrun may collect the exit status before the supervisor has read it.
    """
    outcome = launch(tmp_path, fault, torchrun=torchrun)
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
    if outcome.manifest["ranks"]["1"]["exit_status"] is None and torchrun:
        assert "disappeared, and no source shows how it ended" in cause["summary"]
    else:
        assert outcome.manifest["ranks"]["1"]["exit_status"] == 0
        assert "ended with exit code 0 while its peers were in calls" in cause["summary"]
    assert {site["line"] for site in cause["sites"]} == lines_of(fault)


def test_ranks_that_end_one_after_another_are_no_incident(tmp_path: Path) -> None:
    """Every healthy job ends so."""
    outcome = launch(tmp_path, "ends")
    assert (outcome.code, outcome.cases) == (0, []), outcome.said
    assert "unhang:" not in outcome.said


def test_the_time_out_of_the_job_leads_to_the_rank_it_waited_for(tmp_path: Path) -> None:
    """Before our alarm its peers give up; those who ended first are not to blame.

    On a busy machine torchrun may end it before it has been asked for a dump: its ring of last
    calls says the same.
    """
    outcome = launch(tmp_path, "outwaits", torchrun=True)
    cause = outcome.cause
    assert {"dump", "calls"} & outcome.manifest["ranks"]["1"]["came"].keys()
    assert (cause["code"], cause["culprits"]) == ("UH101", [1]), outcome.said
    assert lines_of("outwaits") <= {site["line"] for site in cause["sites"]}
    assert "zombie" not in outcome.said
    assert "out-of-memory" not in outcome.said
    assert outcome.manifest["incident"]["reason"] == "rank-ended"


def test_calls_that_are_given_up_after_the_alarm_are_no_progress(tmp_path: Path) -> None:
    """The job's own time-out ends what the verdict is about: no second case, and no good news."""
    outcome = launch(tmp_path, "gives_up", "--hang-after", "8", torchrun=True)
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == ("UH101", [1]), outcome.said
    assert lines_of("gives_up") <= {site["line"] for site in cause["sites"]}
    assert "moves on" not in outcome.said
    assert outcome.manifest["incident"]["reason"] == "hang"
    assert outcome.code == 1


def test_a_stopped_rank_is_called_stopped(tmp_path: Path) -> None:
    """It wrote no dump because it was stopped, which its state tells."""
    cause = launch(tmp_path, "stopped", *kill()).cause
    assert (cause["culprits"], cause["confidence"]) == ([1], "high")
    assert cause["summary"].startswith("Rank 1 is stopped by a signal (SIGSTOP, SIGTSTP) at ")
    assert "dead" not in cause["summary"]
    assert any("kill -CONT" in action for action in cause["actions"])


def sleeps(mark: Mark) -> bool:
    """Whether its recorder has seen it at the line, which it does after it has read the counters.

    A recorder that is kept busy before that tells of ended calls late, as if they were news.
    """
    beat = read_heartbeat(mark.heartbeat)
    return beat is not None and beat.seen_line in lines_of("sleeps")


def keep_asking(runtime: Path, rank: int, over: threading.Event) -> None:
    """Have the recorder of a rank that sleeps write its dump, with stacks, again and again."""
    while not over.wait(0.05):
        marks = [m for m in read_marks(None, runtime) if m.rank == rank and m.socket and sleeps(m)]
        for mark in marks:
            with suppress(AskError):
                list(request_dump(mark.socket, reason="asked", timeout_s=PATIENCE_S))
        while marks and not over.is_set():
            with suppress(AskError):
                list(ask(marks[0].socket, {"do": "stacks"}, PATIENCE_S))


def test_dumps_on_demand_are_no_work_of_the_rank(tmp_path: Path) -> None:
    """Writing them takes CPU time in a thread of ours: the rank sleeps all the same."""
    over, runtime = threading.Event(), tmp_path / "runtime"
    asker = threading.Thread(target=keep_asking, args=(runtime, 1, over), daemon=True)
    asker.start()
    try:
        outcome = launch(tmp_path, "sleeps", *kill())
    finally:
        over.set()
    cause = outcome.cause
    assert (cause["code"], cause["culprits"], cause["moving"]) == ("UH101", [1], []), outcome.said
    assert cause["confidence"] == "high"
    assert outcome.report["decision"]["action"] == "look-first"
    assert outcome.code == 143
