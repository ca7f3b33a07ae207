"""`unhang doctor` on real parts: four network namespaces as nodes, real Gloo ranks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import PATIENCE_S
from guide_page import on_the_page
from patience import longer_if_busy
from ports import free_ports

OWN = f"u{os.getpid():x}"
"""Begins the names of what these tests make: another run beside this one has its own."""
N1, N2, N3, N4 = NODES = tuple(f"{OWN}n{number}" for number in range(1, 5))
BRIDGE = f"{OWN}b"
HOSTS = ",".join(f"{name}=10.77.0.{number}" for number, name in enumerate(NODES, 1))
SLOW_LINK = Path(__file__).parent / "programs" / "slow_link.py"
VIA = "ip netns exec {host} env GLOO_SOCKET_IFNAME=eth0"


def doctor(*words: str, timeout: float = PATIENCE_S) -> tuple[int, dict[str, Any]]:
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
    subprocess.run(
        ["ip", "netns", "exec", f"{OWN}n{number}", *words], check=True, capture_output=True
    )


def take_down() -> None:
    """Remove what `nodes` made."""
    for name in NODES:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    for link in (BRIDGE, f"{OWN}p", f"{OWN}f", *(f"{OWN}v{number}" for number in range(1, 5))):
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


@pytest.fixture
def nodes() -> Iterator[None]:
    """Four hosts on one bridge, each with the address that HOSTS names."""
    take_down()
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        for number in range(1, 5):
            name = NODES[number - 1]
            ip("netns", "add", name)
            ip(
                "link",
                "add",
                f"{OWN}v{number}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name,
            )
            ip("link", "set", f"{OWN}v{number}", "master", BRIDGE, "up")
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


def over_nodes(
    *words: str, hosts: str = HOSTS, seconds: str = "3", via: str = VIA
) -> dict[str, Any]:
    """The doctor on the four namespaces."""
    where = ("--hosts", hosts, "--via", via, "--python", sys.executable)
    return doctor(*words, *where, "--seconds", seconds)[1]


def causes(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Code and first subject of every cause."""
    found = [f for f in report["findings"] if f["role"] == "cause"]
    return sorted((f["code"], f["subjects"][0]["id"]) for f in found)


@pytest.mark.debian("ip", "nft")
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.usefixtures("nodes")
class TestNetwork:
    """Faults between real (namespaced) hosts."""

    def test_each_of_four_faults_is_named(self) -> None:
        """A filtered port, a wrong interface, a dead link, a host that is not there."""
        drop(2, "tcp dport 29500")
        # NCCL prefers names that begin with "ib": this one leads nowhere.
        ip("link", "add", f"{OWN}p", "type", "veth", "peer", "name", "ib0", "netns", N3)
        ip("link", "set", f"{OWN}p", "up")
        ip("-n", N3, "addr", "add", "192.168.55.3/24", "dev", "ib0")
        ip("-n", N3, "link", "set", "ib0", "up")
        ip("link", "set", f"{OWN}v4", "down")
        via = f"{VIA} MASTER_ADDR=10.77.0.1"
        report = over_nodes("net", hosts=f"{HOSTS},{OWN}n9=10.77.0.9", via=via)
        assert causes(report) == [
            ("UH820", N3), ("UH820", N4), ("UH823", N2), ("UH823", N4),
            ("UH827", f"{OWN}n9"),
        ]  # fmt: skip
        (dead_end,) = (f for f in report["findings"] if f["subjects"][0]["id"] == N3)
        assert (
            "NCCL would advertise 192.168.55.3, which no other node reaches" in dead_end["summary"]
        )
        assert dead_end["actions"][0] == (
            "export NCCL_SOCKET_IFNAME==eth0 GLOO_SOCKET_IFNAME=eth0 (the second = means this name "
            "exactly): the route to MASTER_ADDR (10.77.0.1) leaves by it."
        )
        assert [f["summary"] for f in report["findings"] if f["role"] != "cause"] == []
        on_the_page("nmap -p 6000", str(report["findings"]).replace(OWN, ""))
        on_the_page("ifconfig", str(dead_end["actions"]))

    def test_a_lossy_link_is_isolated_to_its_pair(self) -> None:
        """Drops between two nodes name this pair and no host."""
        drop(1, "ip saddr 10.77.0.4 numgen random mod 100 < 60")
        found = causes(over_nodes("net"))
        assert found
        assert all(N1 in name and N4 in name for _, name in found), found

    def test_a_wrong_mtu_and_a_long_way(self) -> None:
        """What swallows large packets before one node, and delays those of another."""
        ip("link", "set", f"{OWN}v3", "mtu", "1300")
        for number in (1, 2, 3):  # else bridges pass what is put together from several packets
            ip("-n", f"{OWN}n{number}", "link", "set", "eth0", "gso_max_segs", "1")
        ip("-n", N4, "link", "del", "eth0")
        words = [sys.executable, str(SLOW_LINK), f"{OWN}v4", f"{OWN}f", "30"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as link:
            assert link.stdout is not None
            assert link.stdout.readline() == b"ready\n"
            ip("link", "set", f"{OWN}v4", "master", BRIDGE, "up")
            ip("link", "set", f"{OWN}f", "netns", N4, "name", "eth0")
            ip("-n", N4, "addr", "add", "10.77.0.4/24", "dev", "eth0")
            ip("-n", N4, "link", "set", "eth0", "up")
            report = over_nodes("net", seconds="6")
            link.kill()
        assert causes(report) == [("UH825", N3), ("UH825", N4)]
        said = {f["subjects"][0]["id"]: f["summary"] for f in report["findings"]}
        assert "large ones are lost, as with a wrong MTU" in said[N3]
        assert "ms there and back" in said[N4]

    def test_somebody_else_answers(self) -> None:
        """A service that has the port, and an address behind which another host is."""
        serve = "import http.server as h; h.HTTPServer(('', 29500), h.SimpleHTTPRequestHandler)"
        inside = ["ip", "netns", "exec", N2, sys.executable, "-c"]
        code = f"{serve}.serve_forever(print('ready', flush=True))"
        with subprocess.Popen([*inside, code], stdout=subprocess.PIPE) as service:
            assert service.stdout is not None
            service.stdout.readline()
            in_node(1, "nft", "add table ip uhnat")
            chain = "out { type nat hook output priority -100; }"
            in_node(1, "nft", f"add chain ip uhnat {chain}")
            rule = "ip daddr 10.77.0.3 tcp dport 29501 dnat to 10.77.0.4"
            in_node(1, "nft", f"add rule ip uhnat out {rule}")
            report = over_nodes("net")
            service.kill()
        found = causes(report)
        assert ("UH828", N2) in found
        assert ("UH824", f"{N1} -> {N3}:29501") in found
        assert {name for code, name in found if code == "UH824"} == {
            f"{N1} -> {N3}:29501", *(f"{name} -> {N2}:29500" for name in (N1, N3, N4)),
        }  # fmt: skip
        assert f"another host answers: {N4}" in str(report["findings"])

    def test_a_healthy_network_passes(self) -> None:
        """Two of the nodes also run every collective over it."""
        assert over_nodes("net", seconds="8")["status"] == "healthy"
        report = over_nodes("comm", hosts=",".join(HOSTS.split(",")[:2]))
        assert report["status"] == "healthy", report["findings"]
        on_the_page("torchrun … torch-distributed", str(report["notes"]))

    def test_the_interface_that_gloo_chose_is_isolated(self) -> None:
        """Here it binds the loopback, by the host's name: the right interface is what helps."""
        two = ",".join(HOSTS.split(",")[:2])
        via = "ip netns exec {host}"
        report = over_nodes("comm", "--timeout", longer_if_busy(6, 30), hosts=two, via=via)
        found = [f for f in report["findings"] if f["code"] == "UH863"]
        assert [f["subjects"][0]["id"] for f in found] == ["GLOO_SOCKET_IFNAME=eth0"]

    def test_names_that_mean_the_loopback(self, tmp_path: Path) -> None:
        """Debian's 127.0.1.1: the very setting that helps."""
        hosts = tmp_path / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {N1} {N2}\n")
        named = f'mount --bind {hosts} /etc/hosts && hostname $0 && exec "$@"'
        inside = f"ip netns exec {{host}} unshare --uts --mount sh -c '{named}' {{host}}"
        for number in (1, 2):  # a second interface, which leads to nobody
            here = ("-n", NODES[number - 1])
            ip(*here, "link", "add", "aux0", "type", "veth", "peer", "name", "aux1")
            ip(*here, "addr", "add", f"10.66.0.{number}/32", "dev", "aux0")
            for name in ("aux0", "aux1"):
                ip(*here, "link", "set", name, "up")
        report = over_nodes("net", hosts=",".join(HOSTS.split(",")[:2]), via=inside)
        (found,) = (f for f in report["findings"] if f["role"] == "cause")
        on_the_page("NCCL_SOCKET_IFNAME=eth0", found["summary"] + str(found["actions"]))
        assert found["actions"] == [
            f"On {NODES[number - 1]}: export GLOO_SOCKET_IFNAME=eth0, or let /etc/hosts name "
            f"10.77.0.{number}: the route to its peers leaves by it."
            for number in (1, 2)
        ]

    def test_a_pair_whose_ranks_cannot_talk_is_isolated(self) -> None:
        """Only what their collectives send is lost between two of three nodes."""
        drop(2, "ip saddr 10.77.0.3 tcp dport != 29500")
        three = ",".join(HOSTS.split(",")[:3])
        report = over_nodes("comm", "--timeout", longer_if_busy(6, 30), hosts=three)
        found = [f for f in report["findings"] if f["code"] == "UH863" and f["role"] == "cause"]
        assert [s["id"] for f in found for s in f["subjects"]] == [f"{N2} - {N3}"]
        on_the_page("CUDA_VISIBLE_DEVICES=0,1 torchrun", str(found).replace(OWN, ""))


def test_a_node_that_does_not_answer_is_named() -> None:
    """The others are checked all the same."""
    code, report = doctor("env", "--hosts", "good,bad", "--via", "env UH_NODE={host} sh -c '"
                          "if [ $UH_NODE = bad ]; then echo no such machine >&2; exit 255; fi; "
                          "exec \"$@\"' sh")  # fmt: skip
    assert code == 1
    assert causes(report) == [("UH827", "bad")]
    assert any("good" in note["text"] for note in report["notes"])


def test_a_master_address_that_nobody_knows() -> None:
    """The variable of this shell is looked up on this node."""
    done = subprocess.run(
        [sys.executable, "-m", "unhang", "doctor", "net", "--format", "json"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, "MASTER_ADDR": "nowhere.invalid"},
    )  # fmt: skip
    assert done.returncode == 1
    assert causes(json.loads(done.stdout)) == [("UH822", socket.gethostname())]


AMD_SMI = """#!/bin/sh
case "$1" in
list) echo '[{"gpu": 0}, {"gpu": 1}]' ;;
metric) echo '{"gpu_data": [{"gpu": 0, "ecc": {"total_uncorrectable_count": 0}},
    {"gpu": 1, "ecc": {"total_uncorrectable_count": 2}}]}' ;;
xgmi) echo '[{"gpu": 0}] [{"gpu": 1, "link_status": ["U", "D", "X"]}]' ;;
*) echo "amd-smi: no such subcommand" >&2; exit 2 ;;
esac
"""


def test_amds_tool_is_asked(tmp_path: Path) -> None:
    """A stand-in of it in PATH, on a node without NVIDIA's library: two faults, and what failed."""
    tool = tmp_path / "amd-smi"
    tool.write_text(AMD_SMI)
    tool.chmod(0o755)
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    paths = {name: f"{tmp_path}:{os.environ.get(name, '')}" for name in ("PATH", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-m", "unhang", "doctor", "gpu", "--format", "json"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, **paths},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    name = socket.gethostname()
    assert causes(report) == [("UH842", f"{name} gpu 1"), ("UH845", f"{name} gpu 1")]
    assert "1 of 2 XGMI links are down" in str(report["findings"])
    assert "amd-smi static printed nothing (exit code 2)" in str(report["notes"])


def test_comm_passes_with_real_ranks() -> None:
    """Every collective over Gloo with checked values, and a table of all sizes."""
    code, report = doctor("comm", "--nproc", "2", "--backend", "gloo")
    assert (code, report["status"]) == (0, "healthy")
    table = next(f for f in report["findings"] if f["code"] == "UH866")["evidence"]
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        assert sum(line.startswith(name) for line in table) == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nonsense"], 2, "there is no part 'nonsense'"),
        (["comm", "--nproc", "0"], 2, "--nproc 0 is out of bounds"),
        (["comm", "--timeout", "nan"], 2, "--timeout nan is not a time"),
        (["comm", "--start-timeout", "0"], 2, "--start-timeout 0 is not a time"),
        (["comm", "--allocate", "0"], 2, "--allocate 0 is out of bounds"),
        (["net", "--ports", "x"], 2, "--ports 'x' is not a range"),
        (["net", "--ports", "70000"], 2, "is empty or too large"),
        (["net", "--ports", "9-5"], 2, "is empty or too large"),
        (["net", "--ports", "1-65535"], 2, "is empty or too large"),
        (["net", "--ports", "\u0664"], 2, "is not a range"),
        (["net", "--via", "ssh {host}"], 2, "--via is for --hosts and --hostfile"),
        (["net", "--hosts", "a", "--via", "ssh2"], 2, "has no {host} in it"),
        (["net", "--hosts", "a", "--via", "no-such-tool {host}"], 3, "is not installed here"),
        (["net", "--hosts", "a", "--via", "'{host}"], 2, "no closing quotation"),
        (["net", "--hosts", "a", "--launcher-options", "'"], 2, "no closing quotation"),
        (["net", "--hosts=-F/etc/passwd"], 2, "is not a host"),
        (["net", "--hosts", "a=b"], 2, "names no address"),
        (["--slurm", "x"], 2, "is not a job id of SLURM"),
        (["--slurm", "1", "--hosts", "a"], 2, "not allowed with"),
        (["--hostfile", "/no/such/file"], 3, "cannot be read"),
        (["--mpi", "/no/such/file"], 3, ""),
        (["--kubectl", "app=x"], 3, ""),
    ],
)
def test_bad_usage(words: list[str], code: int, said: str) -> None:
    """One sentence, a hint, the right exit code."""
    command = [sys.executable, "-m", "unhang", "doctor", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    if "not allowed" not in said:
        assert done.stderr.startswith("unhang: ")
        assert "hint: " in done.stderr


def test_one_rank_of_several_that_cannot_find_the_first() -> None:
    """A clear sentence when the launcher does not say where rank 0 is, or nobody is there."""
    command = [sys.executable, "-m", "unhang", "doctor", "comm", "--start-timeout", "1"]
    lost = {**os.environ, "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=lost)
    assert (done.returncode, "MASTER_ADDR" in done.stderr) == (2, True)
    alone = {**os.environ, "WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(free_ports(1)[0])}  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 3
    assert "never reached rank 0's store at 127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr
