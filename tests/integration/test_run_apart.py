"""Two jobs on two nodes without a shared disk: no healthy one is ended, each hang is one verdict.

The jobs are started once, and live through what nodes live through: one node comes late, a rank
evaluates, a supervisor freezes, a rank gets stuck, a node dies. One job's supervisors meet over the
network and may end it; those of the other one do not know of each other. One node has no py-spy.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apart import Node, from_outside, nodes_apart
from clusters import why_not
from patience import PATIENCE_S, wait_for
from run_jobs import PROGRAM, TORCHRUN, UNHANG

from unhang.run.meeting.invitation import TOKEN

pytest.importorskip("torch.distributed", reason="needs torch")

PY_SPY = Path(sys.executable).parent / "py-spy"
SECRET = "0123456789abcdef"  # noqa: S105 - of tests
LATE_S, FROZEN_S = 3.0, 8.0
WATCH = ("--hang-after", "6", "--grace", "0")


class Job:
    """A job of two nodes with two ranks each, under `unhang run` on both."""

    def __init__(self, name: str, port: int, options: tuple[str, ...], token: str = "") -> None:
        self.name, self.port, self.options = name, port, options
        self.env = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "TMPDIR": "/tmp"}  # noqa: S108 - the node's own
        self.env |= {TOKEN: token} if token else {}
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}

    def start(self, node: Node, number: int, first: Node) -> None:
        """Start its part on a node, in a folder of its own."""
        (node.folder / self.name).mkdir()
        self.logs[node.name] = node.folder / f"{self.name}.log"
        words = [
            *UNHANG, *WATCH, *self.options, "--job", self.name, "--", str(TORCHRUN), "--nnodes",
            "2", "--node-rank", str(number), "--nproc-per-node", "2", "--master-addr",
            first.address, "--master-port", str(self.port), str(PROGRAM), "evaluates",
        ]  # fmt: skip
        inside = f'cd /tmp/{self.name}; echo $$ > pid; exec "$@"'
        with self.logs[node.name].open("wb") as log:
            self.started[node.name] = node.start(["sh", "-c", inside, "sh", *words], self.env, log)

    def signal(self, node: Node, name: str) -> None:
        """Send a signal to its supervisor on a node."""
        pid = (node.folder / self.name / "pid").read_text().strip()
        node.run("kill", f"-{name}", pid)
        self.started[node.name].send_signal(signal.SIGCONT)  # nsenter stops with what it started

    def said(self, text: str) -> list[str]:
        """Nodes on which it has said something."""
        return [
            name for name, log in self.logs.items() if text in log.read_text("utf-8", "replace")
        ]

    def cases(self, node: Node) -> list[Path]:
        """What it has left on a node."""
        return sorted((node.folder / self.name / "unhang-cases").glob("*"))

    def reports(self, nodes: dict[str, Node]) -> list[dict[str, Any]]:
        """Verdicts of problems, on all nodes; those on a slow start are of ranks without calls."""
        files = [
            f for node in nodes.values() for c in self.cases(node) for f in [c / "report.json"]
        ]
        told = [json.loads(file.read_text()) for file in files if file.is_file()]
        return [each for each in told if each["status"] == "problem" and each["job"]["calls"]]


def told_by(logs: Job) -> str:
    """What all its supervisors said."""
    return "\n".join(log.read_text("utf-8", "replace") for log in logs.logs.values())


def judged(*words: str) -> dict[str, Any]:
    """The report of a command on no node."""
    done = from_outside(sys.executable, "-m", "unhang", *words, "--format", "json")
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def soon(condition: Callable[[], bool], job: Job, what: str) -> None:
    """Wait for something; what the job said is shown where it never is so, or the job ends."""

    def is_so() -> bool:
        found = condition()
        assert found or None in [each.poll() for each in job.started.values()], "it has ended"
        return found

    try:
        wait_for(is_so, what)
    except AssertionError:
        raise AssertionError(f"never seen: {what}\n{told_by(job)}") from None


@pytest.mark.debian("ip", "nsenter", "sshd", "ssh")
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_two_jobs_on_nodes_apart(tmp_path: Path) -> None:
    """What becomes of them, from a late start to the death of a node."""
    without = {"n2": [PY_SPY] if PY_SPY.exists() else []}
    meets = Job("meets", 29500, ("--on-hang", "kill"), SECRET)
    alone = Job("alone", 29600, ("--on-hang", "report"))
    with nodes_apart(tmp_path, ("n1", "n2"), without) as (nodes, ssh):
        n1, n2 = nodes.values()
        for job in (meets, alone):
            job.start(n1, 0, n1)
        time.sleep(LATE_S)
        for job in (meets, alone):
            job.start(n2, 1, n1)

        # Rank 0 evaluates on n1; n2 sees only ranks that wait.
        waits = "ranks here wait in a call"
        soon(lambda: alone.said(waits) == ["n1", "n2"], alone, "a look on each node")
        soon(lambda: bool(meets.said("the job is left alone")), meets, "that it is spared")
        meets.signal(n2, "STOP")
        time.sleep(FROZEN_S)
        meets.signal(n2, "CONT")
        _collect_one_of_two(ssh, tmp_path / "collected")
        for job in (meets, alone):
            assert [each.poll() for each in job.started.values()] == [None, None], told_by(job)
            assert job.said("ending the job") == [], told_by(job)

        # It gets stuck: those that meet judge once, for all ranks, and end the job.
        for job in (meets, alone):
            (n1.folder / job.name / "stand-still").touch()
        codes = [each.wait(PATIENCE_S) for each in meets.started.values()]
        assert all(codes), told_by(meets)
        *looks, report = meets.reports(nodes)
        causes = [each["findings"][0]["culprits"] for each in (*looks, report)]
        assert causes == [[0]] * len(causes), told_by(meets)
        assert {rank["rank"] for rank in report["ranks"]} == {0, 1, 2, 3}, told_by(meets)
        assert meets.said("ending the job") == ["n1", "n2"], told_by(meets)
        assert meets.said(report["summary"][:40]) == ["n1", "n2"], told_by(meets)

        # The others judge alone; what they leave is one verdict in one place.
        soon(lambda: bool(alone.reports({"n1": n1})), alone, "a verdict of n1")
        soon(lambda: bool(alone.cases(n2)), alone, "a case of n2")
        newest = [str(alone.cases(node)[-1]) for node in (n1, n2)]
        joined = judged("diagnose", *newest)
        assert joined["findings"][0]["culprits"] == [0], joined["summary"]
        assert {rank["rank"] for rank in joined["ranks"]} == {0, 1, 2, 3}
        assert [each.poll() for each in alone.started.values()] == [None, None], told_by(alone)

        # A node dies: it stands in the verdict with its name.
        n2.die()
        after = str(tmp_path / "after")
        _collect(ssh, "--job", "alone", "--case", after, "--node-timeout", "10")
        report = judged("diagnose", after)
        assert "n2" in json.dumps([report["summary"], report["notes"], report["next"]]), report


def _collect(ssh: Path, *words: str) -> subprocess.CompletedProcess[str]:
    reached = ("--hosts", "n1,n2", "--launcher-options", f"-F {ssh}", "--python", sys.executable)
    return from_outside(sys.executable, "-m", "unhang", "collect", *reached, *words)


def _collect_one_of_two(ssh: Path, case: Path) -> None:
    """Two jobs run on both nodes: all of one are collected, and none of the other."""
    done = _collect(ssh, "--case", str(case))
    assert "--job" in done.stdout + done.stderr, "it lets the user choose"
    done = _collect(ssh, "--job", "alone", "--case", f"{case}-alone")
    assert done.returncode in (0, 1, 3), done.stderr
    manifest = json.loads((Path(f"{case}-alone") / "manifest.json").read_text())
    assert manifest["job"]["job"] == "alone", manifest
    report = judged("diagnose", f"{case}-alone")
    assert {rank["rank"] for rank in report["ranks"]} == {0, 1, 2, 3}, done.stderr
