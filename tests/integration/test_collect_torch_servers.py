"""Dumps from ranks that unhang's recorder is not in, by torch's worker server and debug server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import unhang
from patience import wait_for
from ports import free_ports

from unhang.collect.node.debugserver import dumps_of_debug_server
from unhang.collect.processes import read_processes
from unhang.collect.ranks import Target, find_ranks

PROGRAM = Path(__file__).parent / "programs" / "torch_servers.py"


@dataclass(frozen=True)
class Job:
    """A running job: its name, and the port of its debug server."""

    name: str
    port: int

    def targets(self) -> list[Target]:
        """Its processes."""
        return [target for target in find_ranks(read_processes()) if target.job == self.name]


def calls_of(job: Job) -> list[list[int]]:
    """When each rank made each call that its dump holds (ns), by the debug server."""
    found = dumps_of_debug_server(job.targets(), job.port)
    dumps = [json.loads(data)["entries"] for _, _, data in found]
    return [[entry["time_created_ns"] for entry in entries] for entries in dumps]


def stands(job: Job) -> bool:
    """Whether the first rank waits in its second call, for longer than one in flight would."""
    calls = calls_of(job)
    return [len(each) for each in calls] == [2, 1] and time.time_ns() - calls[0][1] > 3 * 10**9


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Two ranks, of which the first waits for the second."""
    place = tmp_path_factory.mktemp("servers")
    master, port = free_ports(2)
    job = Job(f"test-{uuid.uuid4().hex[:8]}", port)
    common = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(master),
        "WORLD_SIZE": "2",
        "UNHANG_JOB": job.name,
        "OMP_NUM_THREADS": "1",
        "TORCH_FR_BUFFER_SIZE": "100",
    }
    ranks = []
    for rank in range(2):
        mine = {"RANK": str(rank), "TORCH_WORKER_SERVER_SOCKET": str(place / f"{rank}.sock")}
        command = [sys.executable, str(PROGRAM), str(port)]
        ranks.append(
            subprocess.Popen(
                command, env=common | mine, stdout=subprocess.PIPE, start_new_session=True
            )
        )
    try:
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        wait_for(lambda: stands(job), "the first rank to stand in the second call")
        yield job
    finally:
        for process in ranks:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_worker_servers_are_asked(job: Job, tmp_path: Path) -> None:
    """Each rank by its own socket; the verdict needs no more."""
    case = tmp_path / "case"
    done = unhang("collect", "--only", "dumps", "--job", job.name, "--case", case)
    assert done.returncode == 0, done.stderr
    ranks = json.loads((case / "manifest.json").read_text())["ranks"]
    assert [ranks[rank]["came"] for rank in "01"] == [
        {"dump": "dumps/gloo/rank_0"},
        {"dump": "dumps/gloo/rank_1"},
    ]
    verdict = unhang("diagnose", case, "--format", "json")
    (cause,) = (f for f in json.loads(verdict.stdout)["findings"] if f["role"] == "cause")
    assert (cause["code"], cause["culprits"], cause["victims"]) == ("UH101", [1], [0])


def test_a_debug_server_gives_the_dumps_of_all_ranks(job: Job) -> None:
    """By its page; nobody else's port is asked."""
    found = dumps_of_debug_server(job.targets(), job.port)
    assert [(rank, backend) for rank, backend, _ in found] == [(0, "gloo"), (1, "gloo")]
    assert [len(each) for each in calls_of(job)] == [2, 1]
    assert dumps_of_debug_server([], job.port) == []
    (own,) = (process for process in read_processes().by_pid.values() if process.pid == os.getpid())
    assert dumps_of_debug_server([Target(own)], job.port) == []
