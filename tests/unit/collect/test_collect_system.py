from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ras_emulator import emulator

from unhang.collect.node import system
from unhang.collect.node.system import describe_ranks, take_ras, take_system
from unhang.collect.processes import Process, read_process
from unhang.collect.ranks import Target
from unhang.rasclient import DEFAULT_ADDRESS

KERNEL = """\
[Fri Jan  2 03:04:05 2026] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
[Fri Jan  2 03:04:06 2026] audit: something that is nobody's business
[Fri Jan  2 03:04:07 2026] Out of memory: Killed process 4711 (python)
"""


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Put shell scripts in the place of programs that this machine may not have."""
    for name, script in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_programs_tell_of_gpus_and_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-smi as it is; of the kernel's log only lines about GPUs and memory."""
    (tmp_path / "kernel").write_text(KERNEL)
    tools(
        tmp_path,
        monkeypatch,
        nvidia_smi='echo "asked: $*"',
        dmesg=f'[ "$*" = --ctime ] && cat {tmp_path}/kernel',
    )
    files = take_system([])
    assert files["nvidia-smi.txt"] == b"asked: -q\n"
    assert files["nvidia-topology.txt"] == b"asked: topo -m\n"
    kernel = files["kernel.txt"].decode()
    assert "Xid" in kernel
    assert "Killed process 4711" in kernel
    assert "audit" not in kernel
    assert json.loads(files["node.json"])["host"]


def test_a_program_that_hangs_or_fails_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is stuck must not stop the collection, and its words are evidence."""
    monkeypatch.setattr(system, "PROGRAM_S", 2.0)
    tools(
        tmp_path,
        monkeypatch,
        nvidia_smi='[ "$1" = -q ] && exec sleep 100; echo "No devices were found" >&2; exit 6',
        dmesg="echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1",
    )
    files = take_system([])
    assert files["nvidia-smi.txt"] == b"nvidia-smi did not end within 2 s\n"
    assert files["nvidia-topology.txt"] == b"No devices were found\n"
    assert b"Operation not permitted" in files["kernel.txt"]


def test_ras_is_asked_where_the_ranks_have_it() -> None:
    """At the address of NCCL_RAS_ADDR; that one of the ranks listens there is enough."""
    answer = "NCCL version 2.27.7 compiled with CUDA 12.6\nJob summary\n"
    with emulator(answer, knows_json=False) as (address, heard):
        environ = {"NCCL_RAS_ADDR": address}
        found = take_ras([Target(Process(pid=os.getpid(), environ=environ), rank=0)])
    assert found == [answer.encode()]
    assert heard == ["CLIENT PROTOCOL 2", "SET FORMAT json", "VERBOSE STATUS"]


@pytest.mark.parametrize("told", ["", "nonsense", "host:", "host:99999999", "host:-1", ":0"])
def test_nonsense_in_the_address_of_ncclras_is_passed_over(told: str) -> None:
    """The variable comes from the job."""
    target = Target(Process(pid=1, environ={"NCCL_RAS_ADDR": told}), rank=0)
    assert system._ras_addresses([target]) == [DEFAULT_ADDRESS]


def test_a_rank_is_described_as_the_kernel_tells() -> None:
    """State, limits and open files."""
    process = read_process(os.getpid())
    assert process is not None
    told = json.loads(describe_ranks([Target(process, rank=3)]))["3"]
    assert told["status"]["Pid"] == str(os.getpid())
    assert any(line.startswith("Max open files") for line in told["limits"])
    assert told["open_files"] > 0
