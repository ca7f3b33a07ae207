"""`unhang doctor` on a real cluster by SLURM and ssh, and as a job of mpirun and torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, cluster, why_not
from patience import PATIENCE_S, wait_for
from ports import free_ports

SOURCE = Path(__file__).parents[2] / "src"
DOCTOR = (sys.executable, "-m", "unhang", "doctor")
PYTHON = ("--python", sys.executable)
ENVIRON = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


def judged(
    words: tuple[object, ...], environ: Mapping[str, str] = ENVIRON
) -> tuple[int, dict[str, Any]]:
    """Run a command line that ends in a report as JSON."""
    command = [*map(str, words), "--format", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environ
    )
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def causes(report: dict[str, Any]) -> list[tuple[str, list[int], list[str]]]:
    """Code, ranks and hosts of every cause."""
    return [
        (f["code"], f["culprits"], sorted({s["host"] for s in f["subjects"] if s.get("host")}))
        for f in report["findings"]
        if f["role"] == "cause"
    ]


def noted(report: dict[str, Any]) -> str:
    """All notes."""
    return "\n".join(note["text"] for note in report["notes"])


ON_NODES = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with SLURM and ssh."""
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def job(nodes: Cluster) -> str:
    """A job that waits on both nodes."""
    words = ("--parsable", "--nodes=2", "--ntasks-per-node=1", "--output=/dev/null")
    told = nodes.run("sbatch", *words, "--wrap", "sleep 1000").strip()
    wait_for(lambda: nodes.run("squeue", "-h", "-j", told, "-o", "%T").strip() == "RUNNING", told)
    return told


@ON_NODES
@pytest.mark.debian("slurmctld", "slurmd", "munged")
class TestSlurm:
    """Both ways: steps that the doctor starts, and steps that start the doctor."""

    def test_all_nodes_of_a_job(self, nodes: Cluster, job: str) -> None:
        """Facts of both nodes by one step, and a rank on each of them by another."""
        ports = f"{free_ports(1)[0]}"
        words = (*DOCTOR, "env", "net", "comm", "--slurm", job, *PYTHON, "--ports", ports)
        environ = {**nodes.environ, "NCCL_SOKET_IFNAME": "eth0"}
        code, report = judged(words, environ)
        assert (code, report["status"]) == (3, "insufficient"), report  # two names, one machine
        assert "a verdict on net: " in report["summary"]
        misspelt = next(f for f in report["findings"] if f["code"] == "UH802")
        assert {s["host"] for s in misspelt["subjects"]} == {"n1", "n2"}
        assert "n2 is the same machine as n1" in noted(report)
        assert "steps with 2 ranks on 2 nodes on gloo passed" in noted(report)

    def test_a_step_of_ranks(self, nodes: Cluster, job: str) -> None:
        """Srun starts the doctor: its tasks are the ranks, on the nodes that SLURM gave them."""
        step = ("srun", f"--jobid={job}", "--overlap", "--nodes=2", "--ntasks=2", "--mpi=none")
        environ = {**nodes.environ, "PYTHONPATH": str(SOURCE), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(free_ports(1)[0])}  # fmt: skip
        code, report = judged((*step, *DOCTOR, "comm"), environ)
        assert code == 0, report
        assert "steps with 2 ranks on 2 nodes on gloo passed" in noted(report)

    def test_a_job_that_is_none(self, nodes: Cluster, job: str) -> None:
        """SLURM's own words."""
        del job
        done = subprocess.run(
            [*DOCTOR, "--slurm", "999999"], capture_output=True, text=True, check=False,
            env=nodes.environ, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 3
        assert "Invalid job id" in done.stderr
        assert "hint: " in done.stderr


def loads_torch(pid: int) -> bool:
    """Whether a rank has begun its first step, which is to load torch: others heard of it then."""
    try:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def environ_of(path: Path) -> set[bytes]:
    """Variables of a process; none of one that is gone."""
    try:
        return set(path.read_bytes().split(b"\0"))
    except OSError:
        return set()


def find_rank(rank: int, port: int) -> int:
    """A rank of the test that meets at this port, as soon as it has begun; from /proc."""
    wanted = {f"RANK={rank}".encode(), f"MASTER_PORT={port}".encode()}
    found: list[int] = []

    def seen() -> bool:
        found.extend(int(p.parent.name) for p in Path("/proc").glob("[0-9]*/environ")
                     if wanted <= environ_of(p))  # fmt: skip
        return bool(found)

    wait_for(seen, f"rank {rank}")
    return found[0]


@ON_NODES
@pytest.mark.debian("sshd", "ssh", "unshare")
class TestSsh:
    """Hosts with a name and processes of their own."""

    def test_a_host_that_is_not_there_and_one_without_python(self, nodes: Cluster) -> None:
        """Each is named with the reason, and the others are checked all the same."""
        via = ("--launcher-options", f"-F {nodes.ssh_config}")
        code, report = judged((*DOCTOR, "env", "--hosts", "n1,n2,gamma.invalid", *via))
        assert code == 1
        assert causes(report) == [("UH827", [], ["gamma.invalid"])]
        assert "Could not resolve hostname" in report["summary"]
        assert "n1, n2: it is on" in noted(report)
        code, report = judged((*DOCTOR, "env", "--hosts", "n2", *via, "--python", "/no/python"))
        assert causes(report) == [("UH827", [], ["n2"])]
        assert "no Python 3.10 or newer was found on this node" in report["summary"]

    def test_a_rank_whose_process_sleeps_is_named_with_its_host(self, nodes: Cluster) -> None:
        """It is stopped as it starts, so it never comes; nothing else is wrong."""
        (port,) = free_ports(1)
        words = (*DOCTOR, "comm", "--hosts", "n1,n2", *PYTHON, "--ports", str(port),
                 "--launcher-options", f"-F {nodes.ssh_config}", "--timeout", "5",
                 "--start-timeout", "30", "--isolate", "0", "--format", "json")  # fmt: skip
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRON) as process:
            victim = find_rank(1, port)
            wait_for(lambda: loads_torch(victim), "its first step")
            os.kill(victim, signal.SIGSTOP)
            said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
        report = json.loads(said)
        assert causes(report) == [("UH860", [1], ["n2"])]
        assert "its process is stopped" in " ".join(report["findings"][0]["evidence"])


@pytest.mark.debian("mpirun")
def test_a_rank_that_never_comes_to_mpiruns_job() -> None:
    """One of three ranks runs something else: it is named, the others are looked at."""
    mpirun = ("mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []))
    own = ("-n", "2", *DOCTOR, "env", "--start-timeout", "30", "--format", "json")
    environ = {**ENVIRON, "MASTER_PORT": str(free_ports(1)[0])}
    done = subprocess.run(
        [*mpirun, *own, ":", "-n", "1", "sleep", "1000"], capture_output=True, text=True,
        check=False, timeout=PATIENCE_S, env=environ,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{") :])[0]
    assert causes(report) == [("UH860", [2], [])]
    assert "2 other ranks arrived" in str(report["findings"])


def test_torchrun_starts_it_as_a_job() -> None:
    """Ranks of torchrun meet in its own store; all parts are run by one of them."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                f"--master-port={free_ports(1)[0]}", "--no-python")  # fmt: skip
    code, report = judged((*torchrun, *DOCTOR, "env", "comm"))
    assert code == 0, report
    assert "steps with 2 ranks on gloo passed" in noted(report)
