"""`unhang doctor` on real parts: four network namespaces as nodes, real Gloo ranks."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOSTS = ",".join(f"uhn{i}=10.77.0.{i}" for i in range(1, 5))
VIA = f"ip netns exec {{host}} env GLOO_SOCKET_IFNAME=eth0 PATH={os.environ['PATH']}"


def doctor(*words: str, timeout: float = 120) -> tuple[int, dict[str, Any]]:
    """Run `unhang doctor` and read its JSON."""
    command = [sys.executable, "-m", "unhang", "doctor", *words, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def ip(*words: str) -> None:
    """Run ip; a failure is the test's."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def in_node(number: int, *words: str) -> None:
    """Run a command in one namespace."""
    subprocess.run(["ip", "netns", "exec", f"uhn{number}", *words], check=True, capture_output=True)


def take_down() -> None:
    """Remove what `nodes` made."""
    for number in range(1, 5):
        subprocess.run(["ip", "netns", "del", f"uhn{number}"], check=False, capture_output=True)
    for link in ("uhbr", "uhp", *(f"uhv{number}" for number in range(1, 5))):
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


@pytest.fixture
def nodes() -> Iterator[None]:
    """Four hosts on one bridge, each with the address that HOSTS names."""
    take_down()
    try:
        ip("link", "add", "uhbr", "type", "bridge")
        ip("link", "set", "uhbr", "up")
        for number in range(1, 5):
            name = f"uhn{number}"
            ip("netns", "add", name)
            ip("link", "add", f"uhv{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"uhv{number}", "master", "uhbr", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        take_down()


def drop(number: int, rule: str) -> None:
    """Drop what matches on its way into one namespace."""
    in_node(number, "nft", "add table inet uh")
    in_node(number, "nft", "add chain inet uh in { type filter hook input priority 0; }")
    in_node(number, "nft", f"add rule inet uh in {rule} drop")


def net(seconds: str) -> dict[str, Any]:
    """The matrix over the four namespaces."""
    return doctor("net", "--hosts", HOSTS, "--via", VIA, "--seconds", seconds)[1]


def causes(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Code and first subject of every cause."""
    found = [f for f in report["findings"] if f["role"] == "cause"]
    return sorted((f["code"], f["subjects"][0]["id"]) for f in found)


@pytest.mark.debian
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nft"),
    reason="network namespaces need root, iproute2 and nftables",
)
@pytest.mark.usefixtures("nodes")
class TestNetwork:
    """Faults between real (namespaced) hosts."""

    def test_a_filtered_port_and_a_wrong_interface(self) -> None:
        """Both hosts are named, nothing else is."""
        drop(2, "tcp dport 29500")
        # NCCL prefers names that begin with "ib": this one leads nowhere.
        ip("link", "add", "uhp", "type", "veth", "peer", "name", "ib0", "netns", "uhn3")
        ip("link", "set", "uhp", "up")
        ip("-n", "uhn3", "addr", "add", "192.168.55.3/24", "dev", "ib0")
        ip("-n", "uhn3", "link", "set", "ib0", "up")
        report = net("6")
        assert causes(report) == [("UH820", "uhn3"), ("UH823", "uhn2")]
        assert [f for f in report["findings"] if f["role"] != "cause"] == []

    def test_a_lossy_link_is_isolated_to_its_pair(self) -> None:
        """Drops between two nodes name this pair and no host."""
        drop(1, "ip saddr 10.77.0.4 numgen random mod 100 < 60")
        found = causes(net("10"))
        assert found
        assert all("uhn1" in name and "uhn4" in name for _, name in found), found

    def test_nothing_wrong(self) -> None:
        """Four good nodes: healthy."""
        assert causes(net("7")) == []


def test_a_node_that_does_not_answer_is_named() -> None:
    """The others are checked all the same."""
    code, report = doctor("env", "--hosts", "good,bad", "--via", "env UH_NODE={host} sh -c '"
                          "if [ $UH_NODE = bad ]; then echo no such machine >&2; exit 255; fi; "
                          "exec \"$@\"' sh")  # fmt: skip
    assert code == 1
    assert causes(report) == [("UH827", "bad")]
    assert any("good" in note["text"] for note in report["notes"])


def test_comm_passes_with_real_ranks() -> None:
    """Every collective over Gloo with checked values, and a bandwidth table."""
    code, report = doctor("comm", "--nproc", "2", "--backend", "gloo")
    assert (code, report["status"]) == (0, "healthy")
    table = next(f for f in report["findings"] if f["code"] == "UH866")
    assert len(table["evidence"]) > 5


def test_a_rank_that_sleeps_is_named(tmp_path: Path) -> None:
    """One of three real ranks is stopped as it starts: it is named with its host."""
    words = shlex.split("comm --nproc 3 --backend gloo --timeout 6 --no-isolate --format json")
    command = [sys.executable, "-m", "unhang", "doctor", *words]
    command += ["-o", str(tmp_path / "out.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        victim = find_rank(process.pid, "1")
        os.kill(victim, signal.SIGSTOP)
        process.wait(timeout=180)
    report = json.loads((tmp_path / "out.json").read_text())
    finding = next(f for f in report["findings"] if f["role"] == "cause")
    assert finding["code"] in ("UH860", "UH865")
    assert finding["culprits"] == [1]
    assert finding["subjects"][0]["pid"] in (victim, None)


def find_rank(parent: int, rank: str) -> int:
    """PID of a rank of the test, as soon as it has said where it runs."""
    for _ in range(2_000):
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for child in children:
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            if f"RANK={rank}".encode() in environment and loaded(child):
                return int(child)
        time.sleep(0.01)
    raise AssertionError("the rank was never started")


def loaded(pid: str) -> bool:
    """Whether the process has begun to load torch: past its first line of output."""
    return b"libtorch" in Path(f"/proc/{pid}/maps").read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["comm", "--nproc", "0"],
        ["net", "--ports", "x"],
        ["net", "--ports", "70000"],
        ["net", "--via", "ssh {host}"],
        ["net", "--hosts", "a", "--via", "ssh"],
    ],
)
def test_bad_usage(words: list[str]) -> None:
    """One sentence, a hint, exit code 2."""
    command = [sys.executable, "-m", "unhang", "doctor", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("unhang: ")
    assert "hint: " in done.stderr
