"""`unhang collect` and `unhang stacks` on real clusters: SLURM over two nodes, ssh to two hosts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from clusters import Hosts, Slurm, free_ports, hosts, slurm, wait_for

PROGRAM = Path(__file__).parent / "programs" / "four_ranks.py"
SOURCE = Path(__file__).parents[2] / "src"
RANKS = 4

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="daemons of a cluster need root"),
    pytest.mark.debian("slurmctld", "slurmd", "munged", "sshd", "ssh", "unshare"),
]


def unhang(
    *words: object, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "unhang", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env=environ,
        cwd=cwd,
    )


def line_of(text: str) -> int:
    """The number of the line of the program that holds a text."""
    lines = PROGRAM.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def settings(folder: Path, port: int) -> dict[str, str]:
    """What every rank of a job needs."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(RANKS),
        "READY": str(folder),
        "PYTHONPATH": str(SOURCE),
        "UNHANG_DIR": str(folder / "cases"),
        "OMP_NUM_THREADS": "1",
    }


def wait_until_stuck(folder: Path) -> None:
    """Wait until all ranks say that they go on no further."""
    wait_for(lambda: {p.name for p in folder.iterdir()} >= set("0123"), "all ranks ready")


def culprits(text: str) -> list[tuple[str, list[int], int]]:
    """Code, culprits and line of the causes of a report."""
    causes = [f for f in json.loads(text)["findings"] if f["role"] == "cause"]
    return [(f["code"], f["culprits"], f["sites"][0]["line"]) for f in causes]


def manifest_of(case: Path) -> dict[str, Any]:
    """The manifest of a case."""
    loaded: dict[str, Any] = json.loads((case / "manifest.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """SLURM with two nodes."""
    with slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def job(cluster: Slurm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A job of four ranks on two nodes that hangs."""
    folder = tmp_path_factory.mktemp("job")
    assign = " ".join(f"{k}={shlex.quote(v)}" for k, v in settings(folder, *free_ports(1)).items())
    script = folder / "batch.sh"
    run = f"{assign} exec {sys.executable} {PROGRAM}"
    step = shlex.join(["srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "sh", "-c", run])
    script.write_text(f"#!/bin/sh\nexec {step}\n")
    told = cluster.run(
        "sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=2", "--overcommit", "--no-kill",
        "--no-requeue", f"--output={folder}/out.log", str(script),
    )  # fmt: skip
    wait_until_stuck(folder)
    return told.strip()


def test_one_command_brings_a_slurm_job_home(cluster: Slurm, job: str, tmp_path: Path) -> None:
    """Dumps, stacks and surroundings of both nodes, and the culprit with its line."""
    done = unhang("collect", "--slurm", job, "--case", tmp_path / "case", environ=cluster.environ)
    assert done.returncode == 0, done.stderr
    assert "ranks 0-3 from 2 nodes" in done.stdout
    manifest = manifest_of(tmp_path / "case")
    assert [sorted(manifest["ranks"][str(r)]["came"]) for r in range(RANKS)] == [
        ["dump", "env", "stacks"]
    ] * RANKS
    assert {tuple(node["ranks"]) for node in manifest["nodes"]} == {(0, 1), (2, 3)}
    verdict = unhang("diagnose", tmp_path / "case", "--format", "json")
    assert verdict.returncode == 1, verdict.stderr
    assert culprits(verdict.stdout) == [("UH101", [3], line_of("time.sleep(1_000)"))]


def test_the_stacks_of_both_nodes_are_one_tree(cluster: Slurm, job: str) -> None:
    """All ranks, folded over the nodes, without leaving a case behind."""
    done = unhang("stacks", "--slurm", job, "--interval", "0.3", environ=cluster.environ)
    assert done.returncode == 1, done.stderr
    tree = done.stdout[done.stdout.index("\nranks 0-3 (4)") :]
    assert f"├─ 3: load_batch (four_ranks.py:{line_of('time.sleep(1_000)')})" in tree or (
        "├─ 3: train" in tree
    )
    assert "└─ 0-2: " in tree
    assert "= waiting in all_reduce; unchanged" in tree


def test_a_wrong_job_id_has_slurms_words(cluster: Slurm, job: str, tmp_path: Path) -> None:
    """A clear sentence and nothing made."""
    del job
    done = unhang("collect", "--slurm", "999999", environ=cluster.environ, cwd=tmp_path)
    assert done.returncode == 3
    assert "Invalid job id" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_is_away_costs_only_itself(cluster: Slurm, job: str, tmp_path: Path) -> None:
    """The rest is there, the manifest says what is not; --resume brings it once it is back."""
    case = tmp_path / "case"
    cluster.stop_node("n2")
    try:
        done = unhang(
            "collect", "--slurm", job, "--case", case, "--node-timeout", "30",
            environ=cluster.environ,
        )  # fmt: skip
    finally:
        cluster.start_node("n2")
    assert done.returncode == 1, done.stderr
    assert "nothing came of n2" in done.stderr
    ranks = manifest_of(case)["ranks"]
    assert "dump" in ranks["0"]["came"]
    assert ranks["3"]["missing"] == {"all": "no node reported this rank"}
    verdict = unhang("diagnose", case, "--format", "json")
    assert not {0, 1} & set(json.loads(verdict.stdout)["findings"][0]["culprits"])
    wait_for(lambda: _resumed(case, cluster) == 0, "the node is back")
    assert "dump" in manifest_of(case)["ranks"]["3"]["came"]
    again = unhang("diagnose", case, "--format", "json")
    assert culprits(again.stdout)[0][:2] == ("UH101", [3])


def _resumed(case: Path, cluster: Slurm) -> int:
    done = unhang("collect", "--resume", case, "--node-timeout", "30", environ=cluster.environ)
    return done.returncode


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts behind sshds, on which the ranks of a job hang."""
    folder, ready = tmp_path_factory.mktemp("ssh"), tmp_path_factory.mktemp("ready")
    with hosts(folder, ["alpha", "beta"]) as running:
        common = settings(ready, *free_ports(1))
        ranks = []
        for rank in range(RANKS):
            environ = {**common, "RANK": str(rank), "UNHANG_JOB": "ssh-job",
                       "UNHANG_RUNTIME_DIR": str(ready / "runtime")}  # fmt: skip
            assign = " ".join(f"{key}={shlex.quote(value)}" for key, value in environ.items())
            host = "alpha" if rank < 2 else "beta"
            ranks.append(running.start(host, f"{assign} exec {sys.executable} {PROGRAM}"))
        wait_until_stuck(ready)
        yield running
        for each in ranks:
            each.kill()
            each.wait()


def by_ssh(two_hosts: Hosts, names: str) -> list[object]:
    """The options that name the hosts."""
    return ["--hosts", names, "--launcher-options", f"-F {two_hosts.config}", "--job", "ssh-job"]


def test_hosts_are_collected_by_ssh(two_hosts: Hosts, tmp_path: Path) -> None:
    """Two hosts with their own processes; one that does not exist stops nobody."""
    done = unhang("collect", *by_ssh(two_hosts, "alpha,beta,gamma.invalid"), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "nothing came of gamma.invalid: ssh: Could not resolve hostname" in done.stderr
    (case,) = (tmp_path / "unhang-cases").iterdir()
    manifest = manifest_of(case)
    assert {node["host"]: node["ranks"] for node in manifest["nodes"]} == {
        "alpha": [0, 1],
        "beta": [2, 3],
        "gamma.invalid": [],
    }
    verdict = unhang("diagnose", case, "--format", "json")
    assert culprits(verdict.stdout)[0][1] == [3]


def test_stacks_by_ssh_name_the_same(two_hosts: Hosts) -> None:
    """The same tree and the same culprit through another launcher."""
    done = unhang("stacks", *by_ssh(two_hosts, "alpha,beta"), "--format", "json")
    assert done.returncode == 1, done.stderr
    assert culprits(done.stdout)[0] == ("UH101", [3], line_of("time.sleep(1_000)"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--hosts=-oProxyCommand=reboot"], 2, "is no host"),
        (["--hostfile", "/no/such/file"], 3, "cannot be read"),
        (["--resume", "/no/such/case"], 3, "is no case of unhang collect"),
        (["--only", "dumps,music"], 2, "--only knows no 'music'"),
        (["--slurm", "x"], 2, "no job id"),
        (["--node-timeout", "0"], 2, "is no time"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    words: list[str], code: int, message: str, tmp_path: Path
) -> None:
    """A clear sentence, the right exit code, and nothing left behind."""
    done = unhang("collect", *words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.debian("mpirun")
def test_mpirun_reaches_the_hosts_of_its_file(tmp_path: Path) -> None:
    """Open MPI itself starts the collector, which travels as an argument."""
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    words = ("--mpi", tmp_path / "hosts", "--only", "env", "--case", tmp_path / "case")
    done = unhang("collect", *words, "--job", "none-such")
    assert "from 1 node" in done.stdout, done.stderr
    assert list((tmp_path / "case" / "env").rglob("node.json"))


KUBECTL = """
case "$*" in
  *"get pods"*) echo '{"items":[{"metadata":{"name":"pod-a"},"status":{"phase":"Running"}}]}';;
  *"exec -i pod-a -- "*) while [ "$1" != -- ]; do shift; done; shift; exec "$@";;
esac"""
PDSH = 'shift 4; echo "alpha: login banner"; sh -c "$1" | sed "s/^/alpha: /"'


@pytest.mark.parametrize(
    ("tool", "script", "words"),
    [
        ("kubectl", KUBECTL, ["--kubectl", "job-name=train"]),
        ("pdsh", PDSH, ["--hosts", "alpha", "--via", "pdsh"]),
    ],
)
def test_tools_that_are_not_here_are_stood_in_for(
    tool: str, script: str, words: list[str], tmp_path: Path
) -> None:
    """A stand-in runs what kubectl or pdsh would run on the node: the whole way but the network."""
    stand_in = tmp_path / "bin" / tool
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    stand_in.chmod(0o755)
    environ = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"}
    case = tmp_path / "case"
    done = unhang("collect", *words, "--only", "env", "--case", case, "--job", "x", environ=environ)
    assert "from 1 node" in done.stdout, done.stderr
    assert len(list((case / "env").rglob("node.json"))) == 1


@pytest.fixture(scope="module")
def ray_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Ray cluster of two nodes on this machine."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    small = ["--block", "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]
    folder = f"/tmp/ray-{port}"  # noqa: S108 - Ray's sockets need a short path
    head = ["--head", f"--port={port}", "--include-dashboard=false",
            f"--temp-dir={folder}"]  # fmt: skip
    log = (tmp_path_factory.mktemp("ray") / "log").open("w")
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", *small]
    nodes = [subprocess.Popen([*start, *head], stdout=log, stderr=log, start_new_session=True)]
    try:
        wait_for(lambda: _listens(port), "Ray's head")
        nodes.append(
            subprocess.Popen(
                [*start, f"--address={address}"], stdout=log, stderr=log, start_new_session=True
            )
        )
        wait_for(lambda: _ray_nodes(address) == 2, "Ray's second node")
        yield address
    finally:
        for node in reversed(nodes):
            node.terminate()
        for node in reversed(nodes):
            node.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _ray_nodes(address: str) -> int:
    words = [sys.executable, "-m", "unhang.collect.launchers.ray", address]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    return len(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else 0


def test_ray_tasks_reach_every_node(ray_address: str, tmp_path: Path) -> None:
    """One task on each node of a real cluster, each node with a name of its own."""
    words = ("--ray", ray_address, "--only", "env", "--job", "x", "--case", tmp_path / "case")
    done = unhang("collect", *words)
    assert "from 2 nodes" in done.stdout, done.stderr
    assert len(list((tmp_path / "case" / "env").rglob("node.json"))) == 2
