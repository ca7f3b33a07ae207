"""The recipe of docs/recipes.md for Ray, as printed: Ray Train on two nodes, healthy and stuck."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apart import Node, nodes_apart
from clusters import why_not
from patience import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "ray_train.py"
BIN = Path(sys.executable).parent
STUCK = PROGRAM.read_text().splitlines().index("    time.sleep(100_000)  # stuck: here") + 1
PORT = 6379
RANKS = 4
ENV = {
    "RAY_memory_monitor_refresh_ms": "0", "RAY_AUTH_MODE": "disabled",
    "RAY_health_check_failure_threshold": "100", "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0",
    "TMPDIR": "/tmp",  # noqa: S108 - the node's own
    "PATH": f"{BIN}:{os.environ['PATH']}",
}  # fmt: skip

pytestmark = [
    pytest.mark.debian("ip", "nsenter", "sshd", "ssh"),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]


def recipe() -> list[str]:
    """The commands that docs/recipes.md prints for Ray."""
    text = (ROOT / "docs" / "recipes.md").read_text().partition("\n## Ray\n")[2]
    (block,) = re.findall(r"```sh\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    return [str(line) for line in block.strip().splitlines()]


def typed(node: Node, line: str, name: str) -> tuple[int, str]:
    """Type a line into a shell on a node; its exit code and what it said."""
    log = node.folder / f"{name}.log"
    with log.open("wb") as output:
        code = node.start(["sh", "-c", line], ENV, output).wait(PATIENCE_S)
    return code, log.read_text("utf-8", "replace")


@dataclass
class _Ray:
    """Ray on a node; where it gave up, as it does on a busy machine, it is started once more."""

    node: Node
    words: list[str]
    asked: Node
    address: str
    process: subprocess.Popen[bytes] | None = None

    def is_there(self) -> bool:
        """Whether the cluster has it."""
        if self.process is None or self.process.poll() is not None:
            with (self.node.folder / "ray.log").open("ab") as log:
                self.process = self.node.start(self.words, ENV, log)
        listing = f"{sys.executable} -m unhang.collect.launchers.ray {self.address}"
        code, said = typed(self.asked, listing, "listed")
        return code == 0 and f"{self.node.address}-" in said


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Two nodes of a Ray cluster, with two workers each and a /tmp of their own."""
    small = ["--num-cpus=2", "--object-store-memory=80000000", "--block"]
    with nodes_apart(tmp_path_factory.mktemp("ray"), ("n1", "n2"), {}) as (made, _):
        first = f"{made['n1'].address}:{PORT}"
        for node in made.values():
            role = ["--head", f"--port={PORT}", "--include-dashboard=false"]
            role = role if node.name == "n1" else [f"--address={first}"]
            words = ["ray", "start", *role, f"--node-ip-address={node.address}", *small]
            up = _Ray(node, words, made["n1"], first)
            wait_for(up.is_there, f"Ray on {node.name}")
        yield list(made.values())


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all nodes see."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.mark.parametrize("fault", ["healthy", "stuck"])
def test_a_job_is_collected_and_judged(nodes: list[Node], shared: Path, fault: str) -> None:
    """`collect --ray auto` on a node of the cluster, then `diagnose`."""
    first, _ = nodes
    collect = recipe()[0]
    with (first.folder / f"{fault}.log").open("wb") as log:
        words = [sys.executable, str(PROGRAM), str(shared), fault]
        job: subprocess.Popen[bytes] = first.start(words, ENV, log)
    try:
        wait_for(
            lambda: job.poll() is not None or len([*shared.glob("ready-*")]) == RANKS, "all ranks"
        )
        said = (first.folder / f"{fault}.log").read_text("utf-8", "replace")
        assert job.poll() is None, said
        code, said = typed(first, f"mkdir {fault}; cd {fault}; {collect}", "collect")
        assert code == 0, said
        assert "ranks 0-3 from 2 nodes" in said
        _, told = typed(first, f"cd {fault}; {recipe()[1]} --format json 2>/dev/null", "diagnose")
        report: dict[str, Any] = json.loads(told)
        assert {rank["rank"] for rank in report["ranks"]} == {0, 1, 2, 3}
        assert len({rank["host"] for rank in report["ranks"]}) == len(nodes), told
        if fault == "healthy":  # nodes are not looked at in one moment: more is a guess
            causes = [each for each in report["findings"] if each["role"] == "cause"]
            assert {each["confidence"] for each in causes} <= {"low"}, told
            return
        cause = report["findings"][0]
        assert (cause["code"], cause["culprits"]) == ("UH101", [3]), told
        lines = {site["line"] for site in cause["sites"] if site["role"] == "culprit"}
        assert STUCK in lines, told
    finally:
        (shared / "end").touch()
        job.terminate()
        job.wait(PATIENCE_S)


def test_dumps_that_lie_on_the_nodes_are_read_there(nodes: list[Node]) -> None:
    """Half of a captured job's dumps on each node, as NCCL's recorder wrote them."""
    capture = ROOT / "tests" / "data" / "nccl" / "2.9.1" / "skipped_call-timeout.tar.gz"
    with tarfile.open(capture) as archive:
        files = sorted((each for each in archive if each.isfile()), key=lambda each: each.name)
        for number, member in enumerate(files):
            folder = nodes[number % len(nodes)].folder / "nccl_trace"
            folder.mkdir(exist_ok=True)
            file = archive.extractfile(member)
            assert file is not None
            (folder / Path(member.name).name).write_bytes(file.read())
    line = recipe()[2].partition("#")[0]
    _, told = typed(nodes[0], f"{line} --format json 2>/dev/null", "engine")
    report = json.loads(told)
    plain = [sys.executable, "-m", "unhang", "diagnose", str(capture), "--format", "json"]
    whole = json.loads(subprocess.run(plain, capture_output=True, text=True, check=False).stdout)
    assert (report["status"], report["summary"]) == (whole["status"], whole["summary"]), told
