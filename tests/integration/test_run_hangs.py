"""Real jobs that hang or crash under `unhang run`: verdict, source line, exit code, case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from needs import needs_torch
from patience import longer_if_busy
from ports import free_port
from run_jobs import (
    PATIENCE_S,
    PROGRAM,
    TORCHRUN,
    UNHANG,
    Outcome,
    environment,
    kill,
    launch,
    lines_of,
    run_job,
    state_of,
    who,
)

from lab.advice.trying import try_folder

pytestmark = needs_torch


@pytest.mark.parametrize(
    ("fault", "codes", "culprits"),
    [
        ("loader", {"UH101"}, [1]),
        ("skip", {"UH101", "UH102"}, [1]),
        ("stopped", {"UH103"}, [1]),
        ("gil", {"UH101"}, [1]),
        ("fsdp", {"UH101"}, [1]),
        ("pipeline", {"UH302"}, [1]),
        ("crossed", {"UH301"}, []),
        ("rarely", {"UH102"}, [1]),
        ("ring", {"UH303"}, []),
        ("roots", {"UH201"}, [1]),
        ("groups", {"UH205"}, [1]),
        ("ahead", {"UH101"}, [1]),
        ("forgets", {"UH101"}, [1]),
    ],
)
def test_a_hang_is_found_and_explained(
    tmp_path: Path, fault: str, codes: set[str], culprits: list[int]
) -> None:
    """The right ranks are blamed, at their own line, and the case has everything in it."""
    ranks = 2 if fault in ("crossed", "rarely") else 3
    outcome = launch(tmp_path, fault, *kill(), ranks=ranks)
    cause = outcome.cause
    assert cause["code"] in codes, outcome.said
    assert cause["culprits"] == culprits
    role = "culprit" if culprits else "victim"
    shown = {
        site["line"]
        for site in cause["sites"]
        if site["role"] == role and site["file"].endswith(PROGRAM.name)
    }
    assert lines_of(fault) <= shown, outcome.said
    assert outcome.code == 143, "the command was ended by SIGTERM, as --on-hang kill asks"
    assert cause["summary"].split(":")[0][:40] in " ".join(outcome.said.split())
    check_closing(outcome)
    tried = list(try_folder(fault, outcome.only_case))
    assert [(each.command, each.failure) for each in tried if each.failure] == []
    assert any("--no-verdict" in each.command for each in tried), "stacks lie in the case"
    check_complete(outcome, ranks, without_dump=[1] if fault == "stopped" else [])


def test_both_tags_of_an_exchange_that_does_not_meet_are_told(tmp_path: Path) -> None:
    """On Gloo what is posted is in flight: no circle, though each send stands before a receive."""
    outcome = launch(tmp_path, "tags", *kill(), ranks=2)
    cause = outcome.cause
    assert (cause["code"], cause["culprits"], cause["confidence"]) == ("UH304", [], "medium")
    assert cause["summary"].endswith("ranks 0 and 1 disagree about the tag: 15 and 16.")
    (sent,) = lines_of("tags")
    assert {site["line"] for site in cause["sites"]} == {sent, sent + 1}, outcome.said
    check_complete(outcome, 2, without_dump=[])


def test_a_rank_that_does_not_end_is_named(tmp_path: Path) -> None:
    """Its peers have ended well, no call is open, and its launcher waits for it for ever."""
    outcome = launch(tmp_path, "lingers", *kill())
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == ("UH602", [1]), outcome.said
    assert {site["line"] for site in cause["sites"]} == lines_of("lingers")
    assert "while ranks 0,2 have ended without an error" in cause["summary"]
    assert outcome.code == 143


def test_a_rank_that_raises_is_named_at_its_line(tmp_path: Path) -> None:
    """Its error and line come from its last dump; what its peers print is a consequence."""
    outcome = launch(tmp_path, "raises")
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
    assert [site["line"] for site in cause["sites"]] == sorted(lines_of("raises"))
    assert "ValueError: loss is not finite" in cause["summary"]
    assert outcome.code == 1
    assert "[rank1]: ValueError: loss is not finite" in outcome.said, "its own output is there"
    assert outcome.manifest["incident"]["reason"] == "rank-ended"


def test_each_attempt_has_its_own_case_and_dumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restarted by torchrun it fails again; nothing of the first attempt is in the second."""
    # Else both attempts share a store, in which Gloo finds the addresses of the first.
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    command = [str(TORCHRUN), "--standalone", "--max-restarts", "1", "--nproc-per-node", "2",
               str(PROGRAM), "raises"]  # fmt: skip
    outcome = run_job(tmp_path, (), command)
    assert len(outcome.cases) == 2, outcome.said
    for attempt, case in enumerate(outcome.cases):
        assert json.loads((case / "manifest.json").read_text())["job"]["attempt"] == attempt
        (cause, *_) = json.loads((case / "report.json").read_text())["findings"]
        assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
        found = [path for path in case.rglob("rank_*") if path.is_file()]
        dumps = [path for path in found if path.parent.name != "calls"]
        assert {who(path)["attempt"] for path in dumps} == {attempt}


@pytest.mark.parametrize("torchrun", [False, True], ids=["fork", "torchrun"])
def test_a_killed_rank_is_named_with_its_last_known_line(tmp_path: Path, *, torchrun: bool) -> None:
    """Its heartbeat outlives it: the line of its last call, and how old that is.

    On a busy machine torchrun may collect the exit status before anybody else has read it: then it
    is unknown, and said to be. A launcher that waits for another rank first leaves it to be read.
    """
    outcome = launch(tmp_path, "killed", torchrun=torchrun)
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
    (site,) = cause["sites"]
    assert site["line"] in lines_of("killed")
    assert site["age_s"] > 0
    status = outcome.manifest["ranks"]["1"]["exit_status"]
    assert status in ((137, None) if torchrun else (137,))
    assert ("SIGKILL" if status else "no source shows how it ended") in cause["summary"]
    assert outcome.manifest["ranks"]["1"]["missing"]["stacks"] == "the process has ended"
    assert outcome.code == (1 if torchrun else 9)
    logs = {path.parent.name for path in outcome.only_case.glob("logs/*/*/attempt_0/*/*.log")}
    assert logs <= ({"0", "2"} if torchrun else set())  # rank 1 had nothing to say
    if torchrun:  # Its peers fail, and say so, unless it ends them first.
        ended = {rank: outcome.manifest["ranks"][rank]["exit_status"] for rank in ("0", "2")}
        assert {rank for rank, status in ended.items() if status == 1} <= logs, ended
    assert ("[default0]:" in outcome.said) == ("0" in logs)
    check_closing(outcome)


def check_closing(outcome: Outcome) -> None:
    """The last line that is printed repeats the verdict of the report, its place and its case."""
    last = outcome.said.strip().splitlines()[-1]
    assert last.startswith(f"unhang: PROBLEM  {outcome.report['summary'][:100]}"), outcome.said
    assert last.endswith(f"case: unhang-cases/{outcome.only_case.name})")
    sites = [site for site in outcome.cause["sites"] if site["role"] == "culprit"]
    assert not sites or f"{Path(sites[0]['file']).name}:{sites[0]['line']}" in last


def check_complete(outcome: Outcome, ranks: int, without_dump: list[int]) -> None:
    """Every rank has stacks and a dump, or a reason; logs, environment and report are there."""
    case, manifest = outcome.only_case, outcome.manifest
    assert manifest["world_size"] == ranks
    for number in range(ranks):
        rank = manifest["ranks"][str(number)]
        assert (case / rank["came"]["stacks"]).is_file()
        if number in without_dump:
            assert "dump" in rank["missing"]
        else:
            assert (case / rank["came"]["dump"]).is_file()
    (node,) = manifest["nodes"]
    for stream in node["streams"]:
        assert "why_not" in stream or (case / stream["path"]).is_file()
    assert node["ending"]["exit_code"] == outcome.code
    assert {path.name for path in case.iterdir()} >= {
        "dumps", "env", "logs", "manifest.json", "report.json", "report.txt", "stacks",
    }  # fmt: skip


def test_ranks_without_a_recorder_are_watched_and_sampled_from_outside(tmp_path: Path) -> None:
    """`python -I` skips the hook: that is said, and stacks alone lead to the culprit.

    With low confidence, which ends no job: that is left to the test.
    """
    job = [str(TORCHRUN), "--nproc-per-node", "2", "--master-port", str(free_port()), "--no-python"]
    isolated = [sys.executable, "-I", str(PROGRAM), "loader"]
    command = ["timeout", longer_if_busy(60, 150), *job, *isolated]
    outcome = run_job(tmp_path, kill(), command)
    assert "low confidence: the job is left alone" in outcome.said
    assert "ending the job" not in outcome.said
    # Imports of 4 s ago may still count as work, on a busy machine: that makes a case of its own.
    told = [replace(outcome, cases=[case]) for case in outcome.cases]
    outcome = next(each for each in told if each.report["status"] == "problem")
    assert "no recorder in ranks 0-1: python -I skips the startup hook" in outcome.said
    assert "whose calls are not seen, make no progress" in outcome.said
    assert outcome.cause["culprits"] == [1], outcome.said
    assert outcome.cause["confidence"] == "low", "stacks show no calls"
    assert {site["line"] for site in outcome.cause["sites"]} >= lines_of("loader")
    ranks = outcome.manifest["ranks"]
    assert {number: rank["phase"] for number, rank in ranks.items()} == {
        "0": "unarmed", "1": "unarmed",
    }  # fmt: skip
    assert ranks["1"]["missing"]["dump"] == "python -I skips the startup hook"


def test_nodes_that_share_a_case_collect_together(tmp_path: Path) -> None:
    """One node sees the hang, the other has the culprit, and never would have looked by itself."""
    port, case = free_port(), tmp_path / "shared"
    nodes = []
    for node, hang_after in enumerate(("4", "10000")):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        env = environment(folder)
        command = [
            *UNHANG, "--hang-after", hang_after, "--grace", "0", "--on-hang", "kill",
            "--case", str(case), "--job", "two-nodes", "--", str(TORCHRUN),
            "--nnodes", "2", "--node-rank", str(node),
            "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port),
            str(PROGRAM), "skip",
        ]  # fmt: skip
        with (folder / "log").open("wb") as log:
            nodes.append(subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log))
    try:
        codes = [node.wait(PATIENCE_S) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    logs = [(tmp_path / f"node{node}" / "log").read_text() for node in range(2)]
    assert all(codes), "--on-hang kill holds on both"
    assert "collecting evidence" in logs[1]
    assert "(seen by " in logs[1]
    manifest = json.loads((case / "manifest.json").read_text())
    assert [len(node["ranks"]) for node in manifest["nodes"]] == [1, 1]
    assert all((case / manifest["ranks"][rank]["came"]["dump"]).is_file() for rank in "01")
    report = json.loads((case / "report.json").read_text())
    cause = report["findings"][0]
    assert (cause["role"], cause["culprits"]) == ("cause", [1]), logs
    assert lines_of("skip") & {site["line"] for site in cause["sites"]}
    assert not list(tmp_path.glob("shared-*")), "one incident, one case"


def test_the_node_that_has_the_one_who_pauses_looks_again_for_all(tmp_path: Path) -> None:
    """Its first look is too early for a verdict; the other node waits for its second one."""
    port, case = free_port(), tmp_path / "shared"
    nodes = []
    for node in (0, 1):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        command = [
            *UNHANG, "--hang-after", "6", "--grace", "20", "--on-hang", "kill", "--case", str(case),
            "--job", "two-nodes", "--", str(TORCHRUN), "--nnodes", "2", "--node-rank", str(node),
            "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port),
            str(PROGRAM), "polls",
        ]  # fmt: skip
        with (folder / "log").open("wb") as log:
            nodes.append(
                subprocess.Popen(
                    command, cwd=folder, env=environment(folder), stdout=log, stderr=log
                )
            )
    try:
        codes = [node.wait(PATIENCE_S) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    logs = [(tmp_path / f"node{node}" / "log").read_text() for node in (0, 1)]
    assert all(codes), logs
    assert all("rank 0 may only pause" in log for log in logs), logs
    assert "rank 0 stood still for 2" in logs[0], logs
    assert "(seen by " in logs[1], logs
    found = [
        json.loads((place / "report.json").read_text())["findings"][0]
        for place in (case, tmp_path / "shared-2")
    ]
    assert [cause["culprits"] for cause in found] == [[0], [0]]
    assert [cause["confidence"] for cause in found] == ["low", "high"]


@pytest.mark.debian("mpirun")
def test_ranks_of_mpirun_are_watched_like_others(tmp_path: Path) -> None:
    """It names ranks in its own words; the process that joined a group says which it is."""
    command = ["mpirun", "-np", "2", "--allow-run-as-root", "--oversubscribe", sys.executable,
               str(PROGRAM), "skip", "2", str(free_port())]  # fmt: skip
    outcome = run_job(tmp_path, kill(), command)
    assert outcome.cause["culprits"] == [1], outcome.said
    assert lines_of("skip") <= {site["line"] for site in outcome.cause["sites"]}
    check_complete(outcome, 2, without_dump=[])


def test_pauses_of_a_healthy_job_are_no_hang(tmp_path: Path) -> None:
    """A slow first step and checkpoints that grow longer than --hang-after raise no alarm."""
    outcome = launch(tmp_path, "healthy", "--hang-after", "4")
    assert (outcome.code, outcome.cases) == (0, []), outcome.said
    assert "unhang:" not in outcome.said
    assert list((tmp_path / "runtime").iterdir()) == [], "marks and sockets are gone"


def test_a_kept_job_is_frozen_until_told_to_go_on(tmp_path: Path) -> None:
    """--on-hang keep stops the ranks after the verdict; the end comes soon, and with its code."""
    command = [sys.executable, str(PROGRAM), "skip", "2", str(free_port())]
    env = environment(tmp_path)
    options = (
        "--hang-after",
        "4",
        "--grace",
        "0",
        "--on-hang",
        "keep",
        "--exit-verdict",
        "--case",
        "mine",
    )
    log, pids = tmp_path / "log", list[int]()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*UNHANG, *options, "--", *command], cwd=tmp_path, env=env, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "the job is frozen" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        manifest = json.loads((tmp_path / "mine" / "manifest.json").read_text())
        pids += [rank["pid"] for rank in manifest["ranks"].values()]
        assert {state_of(pid) for pid in pids} == {"T"}
        process.send_signal(signal.SIGCONT)
        while "T" in {state_of(pid) for pid in pids} and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1, "the verdict's code: a problem"
    finally:
        process.kill()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
