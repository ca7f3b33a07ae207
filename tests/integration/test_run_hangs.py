"""Real jobs that hang or crash under `unhang run`: verdict, source line, exit code, case."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.distributed", reason="needs torch")

UNHANG = [sys.executable, "-m", "unhang", "run"]
PROGRAM = Path(__file__).parent / "programs" / "hanging_jobs.py"
TORCHRUN = Path(sys.executable).parent / "torchrun"
PATIENCE_S = 240


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lines_of(fault: str) -> set[int]:
    """Numbers of the lines at which the culprits of a fault stand."""
    mark = f"# {fault}: here"
    lines = PROGRAM.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(mark)}


@dataclass(frozen=True)
class Outcome:
    """What a run left."""

    code: int
    said: str
    cases: list[Path]

    @property
    def report(self) -> dict[str, Any]:
        """The verdict of the only case."""
        return dict(json.loads((self.only_case / "report.json").read_text()))

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the only case."""
        return dict(json.loads((self.only_case / "manifest.json").read_text()))

    @property
    def only_case(self) -> Path:
        """The case, of which there must be one."""
        assert len(self.cases) == 1, self.said
        return self.cases[0]

    @property
    def cause(self) -> dict[str, Any]:
        """The first finding, which must be a cause."""
        first = self.report["findings"][0]
        assert first["role"] == "cause", self.said
        return dict(first)


def launch(
    folder: Path,
    fault: str,
    *options: str,
    ranks: int = 3,
    torchrun: bool = False,
    python: tuple[str, ...] = (),
) -> Outcome:
    """Run a job under `unhang run` in its own folder, to its end."""
    port = free_port()
    command = [sys.executable, str(PROGRAM), fault, str(ranks), str(port)]
    if torchrun:
        command = [str(TORCHRUN), "--nproc-per-node", str(ranks), "--master-port", str(port),
                   *(["--no-python", *python] if python else []), str(PROGRAM), fault]  # fmt: skip
    return run_job(folder, options, command)


def run_job(folder: Path, options: Sequence[str], command: Sequence[str]) -> Outcome:
    """Run a command under `unhang run` in its own folder, to its end."""
    env = {
        **os.environ,
        "UNHANG_RUNTIME_DIR": str(folder / "runtime"),
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.run(
        [*UNHANG, *options, "--", *command],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    cases = sorted((folder / "unhang-cases").glob("*"))
    return Outcome(process.returncode, process.stdout, cases)


KILL = ("--hang-after", "4", "--on-hang", "kill")


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
        ("ring", {"UH303"}, []),
    ],
)
def test_a_hang_is_found_and_explained(
    tmp_path: Path, fault: str, codes: set[str], culprits: list[int]
) -> None:
    """The right ranks are blamed, at their own line, and the case has everything in it."""
    ranks = 2 if fault == "crossed" else 3
    outcome = launch(tmp_path, fault, *KILL, ranks=ranks)
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
    check_complete(outcome, ranks, without_dump=[1] if fault == "stopped" else [])


@pytest.mark.parametrize("torchrun", [False, True], ids=["fork", "torchrun"])
def test_a_rank_that_raises_is_named_at_its_line(tmp_path: Path, *, torchrun: bool) -> None:
    """Its error and line come from its last dump; what its peers print is a consequence."""
    outcome = launch(tmp_path, "raises", torchrun=torchrun)
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
    assert [site["line"] for site in cause["sites"]] == sorted(lines_of("raises"))
    assert "ValueError: loss is not finite" in cause["summary"]
    assert outcome.code == 1
    assert "[rank1]: ValueError: loss is not finite" in outcome.said, "its own output is there"
    assert outcome.manifest["incident"]["reason"] == "rank-ended"


def test_each_attempt_has_its_own_case_and_dumps(tmp_path: Path) -> None:
    """Restarted by torchrun it fails again; nothing of the first attempt is in the second."""
    port = free_port()
    command = [str(TORCHRUN), "--max-restarts", "1", "--nproc-per-node", "2", "--master-port",
               str(port), str(PROGRAM), "raises"]  # fmt: skip
    outcome = run_job(tmp_path, (), command)
    assert len(outcome.cases) == 2, outcome.said
    for attempt, case in enumerate(outcome.cases):
        assert json.loads((case / "manifest.json").read_text())["job"]["attempt"] == attempt
        (cause, *_) = json.loads((case / "report.json").read_text())["findings"]
        assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
        dumps = [path for path in case.rglob("rank_*") if path.is_file()]
        assert {who(path)["attempt"] for path in dumps} == {attempt}


def who(path: Path) -> dict[str, Any]:
    """What the recorder says of itself in a dump of ours."""
    extra: dict[str, Any] = pickle.loads(path.read_bytes())["unhang"]  # noqa: S301 - our own
    return extra


@pytest.mark.parametrize("torchrun", [False, True], ids=["fork", "torchrun"])
def test_a_killed_rank_is_named_with_its_last_known_line(tmp_path: Path, *, torchrun: bool) -> None:
    """Its heartbeat outlives it: the line of its last call, and how old that is."""
    outcome = launch(tmp_path, "killed", torchrun=torchrun)
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == ("UH106", [1]), outcome.said
    (site,) = cause["sites"]
    assert site["line"] in lines_of("killed")
    assert site["age_s"] > 0
    assert "SIGKILL" in cause["summary"]
    assert outcome.manifest["ranks"]["1"]["exit_status"] == 137
    assert outcome.manifest["ranks"]["1"]["missing"]["stacks"] == "the process has ended"
    assert outcome.code == (1 if torchrun else 9)


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
    """`python -I` skips the hook: that is said, and stacks alone lead to the culprit."""
    isolated = (sys.executable, "-I")
    outcome = launch(tmp_path, "loader", *KILL, ranks=2, torchrun=True, python=isolated)
    assert "no recorder in ranks 0-1: python -I skips the start-up hook" in outcome.said
    assert "whose calls are not seen, have stood still" in outcome.said
    assert outcome.cause["culprits"] == [1], outcome.said
    assert outcome.cause["confidence"] == "low", "stacks show no calls"
    assert {site["line"] for site in outcome.cause["sites"]} >= lines_of("loader")
    ranks = outcome.manifest["ranks"]
    assert {number: rank["phase"] for number, rank in ranks.items()} == {
        "0": "unarmed", "1": "unarmed",
    }  # fmt: skip
    assert ranks["1"]["missing"]["dump"] == "python -I skips the start-up hook"


def test_nodes_that_share_a_case_collect_together(tmp_path: Path) -> None:
    """One node sees the hang, the other has the culprit, and never would have looked by itself."""
    port, case = free_port(), tmp_path / "shared"
    nodes = []
    for node, hang_after in enumerate(("4", "10000")):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        env = {
            **os.environ,
            "UNHANG_RUNTIME_DIR": str(folder / "runtime"),
            "OMP_NUM_THREADS": "1",
        }
        command = [
            *UNHANG, "--hang-after", hang_after, "--on-hang", "kill", "--case", str(case),
            "--job", "two-nodes", "--", str(TORCHRUN), "--nnodes", "2", "--node-rank", str(node),
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


def test_pauses_of_a_healthy_job_are_no_hang(tmp_path: Path) -> None:
    """A slow first step and checkpoints that grow longer than --hang-after raise no alarm."""
    outcome = launch(tmp_path, "healthy", "--hang-after", "3")
    assert (outcome.code, outcome.cases) == (0, []), outcome.said
    assert "unhang:" not in outcome.said
    assert list((tmp_path / "runtime").iterdir()) == [], "marks and sockets are gone"


def test_a_kept_job_is_frozen_until_told_to_go_on(tmp_path: Path) -> None:
    """--on-hang keep stops the ranks after the verdict; the end comes soon, and with its code."""
    command = [sys.executable, str(PROGRAM), "skip", "2", str(free_port())]
    env = {**os.environ, "UNHANG_RUNTIME_DIR": str(tmp_path / "runtime"), "OMP_NUM_THREADS": "1"}
    options = ("--hang-after", "4", "--on-hang", "keep", "--exit-verdict", "--case", "mine")
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


def state_of(pid: int) -> str:
    """The kernel's letter for a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
