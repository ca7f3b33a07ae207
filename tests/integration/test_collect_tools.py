"""`unhang collect` without a cluster: bad input, mpirun, Ray, and tools that are stood in for."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import free_ports, wait_for
from command_line import unhang


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


ABSENT = [
    (["--slurm", "4711"], "scontrol"),
    (["--hosts", "node01"], "ssh"),
    (["--hosts", "node01", "--via", "pdsh"], "pdsh"),
    (["--kubectl", "job-name=train"], "kubectl"),
    (["--mpi", "hosts"], "mpirun"),
]


@pytest.mark.parametrize("command", ["collect", "stacks", "dump"])
@pytest.mark.parametrize(("words", "tool"), ABSENT)
def test_a_launcher_that_is_absent_is_named(
    command: str, words: list[str], tool: str, tmp_path: Path
) -> None:
    """Which program, what to do instead, exit code 3, and nothing made."""
    environ = {**os.environ, "PATH": str(tmp_path / "empty")}
    done = unhang(command, *words, environ=environ, cwd=tmp_path)
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error == f"unhang: {tool} is not installed here"
    assert hint.startswith("hint: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.debian("ssh")
@pytest.mark.parametrize("command", ["collect", "stacks", "dump"])
def test_an_unknown_host_is_named(command: str, tmp_path: Path) -> None:
    """In ssh's own words, with exit code 3 where nothing else was asked."""
    done = unhang(command, "--hosts", "no-such-host.invalid", cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    assert "nothing came of no-such-host.invalid: ssh: Could not resolve hostname" in done.stderr
    assert "0 of 1 nodes answered" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_question_for_this_node_is_none_for_others(tmp_path: Path) -> None:
    """`dump --pid` and `--list` are about this node."""
    for words in (["--pid", "1"], ["--list"]):
        done = unhang("dump", *words, "--hosts", "node01", cwd=tmp_path)
        assert done.returncode == 2
        assert "--pid and --list are of this node" in done.stderr


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
