"""Real jobs on two nodes: what a supervisor does about ranks that it cannot look at."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from needs import needs_torch
from patience import wait_for
from ports import free_port
from run_jobs import PATIENCE_S, PROGRAM, TORCHRUN, UNHANG, environment, moved_on

from unhang.run.meeting.invitation import TOKEN

pytestmark = needs_torch

KILL = ("--hang-after", "6", "--grace", "0", "--on-hang", "kill")
NEVER = ("--hang-after", "10000")
SECRET = "0123456789abcdef"  # noqa: S105 - of tests


class Node:
    """One node's `unhang run` of a job of two nodes with two ranks each."""

    def __init__(
        self, folder: Path, number: int, options: Sequence[str], port: int, fault: str, token: str
    ) -> None:
        self.log = folder / f"log-{number}"
        env = environment(folder) | ({TOKEN: token} if token else {})
        command = [
            *UNHANG, *options, "--job", "two-nodes", "--", str(TORCHRUN), "--nnodes", "2",
            "--node-rank", str(number), "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
            "--master-port", str(port), str(PROGRAM), fault,
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)

    def said(self, text: str) -> bool:
        """Whether it has said something."""
        return text in self.log.read_text()


@contextmanager
def nodes(
    folder: Path, *options: Sequence[str], fault: str = "polls", token: str = ""
) -> Iterator[list[Node]]:
    """Start nodes with their options; what still runs in the end is ended.

    With a token their supervisors meet over the network.
    """
    port = free_port()
    with ExitStack() as stack:
        started = []
        for number, own in enumerate(options):
            started.append(Node(folder, number, own, port, fault, token))
            stack.callback(started[-1].process.wait, PATIENCE_S)
            stack.callback(started[-1].process.send_signal, signal.SIGCONT)
            stack.callback(started[-1].process.terminate)
        yield started


def test_a_node_without_the_one_who_pauses_leaves_the_job_alone(tmp_path: Path) -> None:
    """Rank 0 is busy on the other node, at which this one cannot look: that is no reason."""
    with nodes(tmp_path, NEVER, KILL) as (_, waiting):
        wait_for(lambda: waiting.said("the job is left alone"), "that it is spared")
        (case,) = (tmp_path / "unhang-cases").iterdir()
        manifest = json.loads((case / "manifest.json").read_text())
        assert (manifest["world_size"], manifest["looked_at"]) == (4, [[2, 3]])
        report = json.loads((case / "report.json").read_text())
        assert report["status"] == "insufficient", report["summary"]
        assert "ranks 0-1 of other nodes were not inspected" in report["summary"]
        (tmp_path / "go-on").touch()
        assert waiting.process.wait(PATIENCE_S) == 0, waiting.log.read_text()


def test_a_supervisor_that_is_late_is_no_reason_to_end_the_job(tmp_path: Path) -> None:
    """Two nodes share a case; the one with the rank that pauses does not answer in time."""
    shared = ("--case", str(tmp_path / "shared"))
    with nodes(tmp_path, (*NEVER, *shared), (*KILL, *shared)) as (late, waiting):
        wait_for(lambda: any((tmp_path / "runtime").glob("*/marks/*")), "ranks")
        late.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: waiting.said("judging without it"), "that the other was not waited for")
        wait_for(lambda: waiting.said("the job is left alone"), "that it is spared")
        (tmp_path / "go-on").touch()
        wait_for(lambda: moved_on(waiting.log.read_text()), "that it moves on")
        late.process.send_signal(signal.SIGCONT)
        assert [node.process.wait(PATIENCE_S) for node in (late, waiting)] == [0, 0]
        assert not late.said("ending the job")
        assert not late.said("collecting evidence"), "it is over, and there is nothing to add"


def test_a_node_that_never_starts_is_told(tmp_path: Path) -> None:
    """The launcher of the other node waits, and no rank has started: it may yet come."""
    with nodes(tmp_path, KILL) as (waiting,):
        wait_for(lambda: waiting.said("the job is left alone"), "that it is spared")
        (case,) = (tmp_path / "unhang-cases").iterdir()
        report = json.loads((case / "report.json").read_text())
        cause = report["findings"][0]
        assert (cause["code"], cause["culprits"]) == ("UH101", [2, 3]), waiting.log.read_text()
        assert report["decision"]["action"] == "look-first"


def test_nodes_that_meet_give_one_verdict_and_end_together(tmp_path: Path) -> None:
    """No directory is shared: one case holds all ranks, and both say what it shows."""
    with nodes(tmp_path, KILL, KILL, fault="sleeps", token=SECRET) as both:
        codes = [node.process.wait(PATIENCE_S) for node in both]
    logs = "\n".join(node.log.read_text() for node in both)
    assert all(codes), logs
    (judged,) = (tmp_path / "unhang-cases").glob("*/report.json")
    report = json.loads(judged.read_text())
    cause = report["findings"][0]
    assert (cause["code"], cause["culprits"], cause["confidence"]) == ("UH101", [1], "high"), logs
    assert {rank["rank"] for rank in report["ranks"]} == {0, 1, 2, 3}
    assert json.loads((judged.parent / "manifest.json").read_text())["looked_at"] == [[0, 3]]
    assert all(node.said("ending the job") and node.said(report["summary"][:40]) for node in both)


def test_nodes_that_meet_leave_a_job_alone_that_evaluates(tmp_path: Path) -> None:
    """The one that judges sees that the rank works, whatever node it is on."""
    with nodes(tmp_path, KILL, KILL, fault="evaluates", token=SECRET) as both:
        wait_for(lambda: any(node.said("the job is left alone") for node in both), "that it is")
        (tmp_path / "go-on").touch()
        assert [node.process.wait(PATIENCE_S) for node in both] == [0, 0], both[0].log.read_text()
    assert not any(node.said("ending the job") for node in both)
