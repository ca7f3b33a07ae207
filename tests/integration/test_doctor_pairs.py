"""`unhang doctor net` between two nodes with one fault each, and healthy ones of both families.

Each pair is two network namespaces on a bridge of their own, and all pairs are asked at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

OWN = f"d{os.getpid():x}"
"""Begins the names of what these tests make: another run at the same time has its own."""
HUB = f"{OWN}h"
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
SYN = "tcp flags & (syn | ack) == syn"
PORTS = "29500-29502"


@dataclass(frozen=True)
class Fault:
    """What is wrong with the second node of a pair, and what the doctor must say.

    Attributes:
        rules: Of its firewall, on what comes in.
        commands: Of `ip`, in it; with `both`, in the first node, too.
        hub: Of `ip`, at the bridge; {b} is its port there.
        name: What its /etc/hosts says its own name is.
        ahead: By so much its clock is ahead.
        sixes: The nodes that have no IPv4 address.
        code, level: Of the check that names it; "" where all is well.
        seen, cure: Parts of what it saw, and of what to do; {a} and {b} are the nodes.
    """

    rules: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    both: bool = False
    hub: tuple[str, ...] = ()
    name: str = ""
    ahead: str = ""
    sixes: str = ""
    code: str = ""
    level: str = "fail"
    seen: str = ""
    cure: str = ""


def _another(name: str) -> tuple[str, ...]:
    """An interface that leads nowhere."""
    return (
        f"link add {name} type veth peer name xp0",
        f"addr add 192.168.55.3/24 dev {name}",
        f"link set {name} up",
        "link set xp0 up",
    )


FAULTS = {
    "healthy": Fault(),
    "healthy6": Fault(sixes="ab"),
    "port": Fault(
        rules=("tcp dport 29500 drop",), code="UH823",
        seen="{b} cannot be reached on port 29500 from any other node (filtered)",
        cure="On {b}: nft list ruleset shows the rules of its firewall. Let TCP to port 29500",
    ),
    "reject": Fault(
        rules=("tcp dport 29500-29502 reject with tcp reset",), code="UH823",
        seen="{b} cannot be reached on port 29500, 29501, 29502 from any other node (refused)",
        cure="On {b}: nft list ruleset shows the rules of its firewall. Let TCP to port 29500",
    ),
    "oneway": Fault(
        rules=(f"{SYN} drop",), code="UH823",
        seen="{b} can be reached on no port from any other node (filtered)",
        cure="On {b}: nft list ruleset shows the rules of its firewall. Let TCP through",
    ),
    "ephemeral": Fault(
        rules=(f"tcp dport 30000-65535 {SYN} drop",), code="UH823",
        seen="{b} cannot be reached on ports that the kernel chooses",
        cure="Let TCP through between the nodes on every port",
    ),
    "mtu": Fault(
        commands=("link set eth0 gso_max_segs 1",), both=True, hub=("link set {b} mtu 1300",),
        code="UH825",
        seen="large ones are lost, as with a wrong MTU on the way",
        cure="Packets of 1300 bytes pass: let switches and tunnels pass larger ones; or on {a} ip "
        "link set dev eth0 mtu 1300; on {b} ip link set dev eth0 mtu 1300",
    ),
    "mtuends": Fault(
        commands=("link set eth0 mtu 9000",), hub=("link set {b} mtu 9000",), code="UH826",
        level="warn", seen="MTU differs: {b} has 9000, the others 1500",
        cure="On {b}: ip link set dev eth0 mtu 1500",
    ),
    "loss": Fault(
        rules=("numgen random mod 100 < 10 drop",), code="UH825",
        seen="of the segments were sent again", cure="on {b} ethtool -S eth0",
    ),
    "wrongif": Fault(
        commands=_another("en0"), code="UH820", level="warn",
        seen="{b}: NCCL's sockets would use en0 (192.168.55.3), too, which no other node reaches",
        cure="export NCCL_SOCKET_IFNAME==eth0",
    ),
    "wrongname": Fault(
        commands=_another("ib0"), code="UH820",
        seen="{b}: NCCL would advertise 192.168.55.3, which no other node reaches",
        cure="export NCCL_SOCKET_IFNAME==eth0 GLOO_SOCKET_IFNAME=eth0",
    ),
    "loopname": Fault(
        name="127.0.1.1", code="UH820",
        seen="its own name resolves to 127.0.1.1, so Gloo would bind the loopback",
        cure="On {b}: export GLOO_SOCKET_IFNAME=eth0, or let /etc/hosts name 10.78.0.2",
    ),
    "six": Fault(
        sixes="b", code="UH820", seen="{b}: has no IPv4 address, and {a} would advertise one",
        cure="On {b}: give it an IPv4 address in the network of its peers",
    ),
    "clock": Fault(
        ahead="+90s", code="UH812", level="warn",
        seen="the clock of {b} is 90.0 s ahead of that of {a}", cure="chronyc makestep",
    ),
}  # fmt: skip


@dataclass
class Pair:
    """Two nodes and the doctor that looks at them."""

    a: str
    b: str
    doctor: subprocess.Popen[str]


def _ip(namespace: str, *commands: str) -> None:
    words = ["ip", "-n", namespace, "-batch", "-"]
    subprocess.run(words, input="\n".join(commands), text=True, check=True, capture_output=True)


def _in(node: str, *words: str) -> None:
    subprocess.run(["ip", "netns", "exec", node, *words], check=True, capture_output=True)


def _remove() -> None:
    every = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for name in every.stdout.split():
        if name.startswith(OWN):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _make(number: int, fault: Fault, folder: Path) -> Pair:
    """Two nodes on a bridge, with their fault, and the doctor on its way."""
    a, b = f"{OWN}n{number}a", f"{OWN}n{number}b"
    bridge = f"br{number}"
    _ip(HUB, f"link add {bridge} type bridge", f"link set {bridge} up")
    told = []
    for at, node in enumerate((a, b), 1):
        subprocess.run(["ip", "netns", "add", node], check=True, capture_output=True)
        port = f"p{number}{'ab'[at - 1]}"
        _ip(HUB, f"link add {port} type veth peer name eth0 netns {node}",
            f"link set {port} master {bridge} up")  # fmt: skip
        four, six = f"10.78.0.{at}", f"fd00:78::{at}"
        only_six = "ab"[at - 1] in fault.sixes
        added = f"{six}/64 dev eth0 nodad" if only_six else f"{four}/24 dev eth0"
        _ip(node, "link set lo up", "link set eth0 up", f"addr add {added}")
        told.append(f"{node}={six if only_six else four}")
    for node in (a, b) if fault.both else (b,):
        _ip(node, *fault.commands)
    _ip(HUB, *(line.format(b=f"p{number}b") for line in fault.hub))
    if fault.rules:
        table = "add table inet f; add chain inet f in { type filter hook input priority 0; }; "
        rules = "; ".join(f"add rule inet f in {rule}" for rule in fault.rules)
        _in(b, "nft", table + rules)
    words = [sys.executable, "-m", "unhang", "doctor", "net", "--hosts", ",".join(told), "--via",
             _via(fault, b, folder / f"hosts-{number}"), "--python", sys.executable, "--ports",
             PORTS, "--seconds", "4", "--format", "json"]  # fmt: skip
    doctor = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return Pair(a, b, doctor)


def _via(fault: Fault, bad: str, hosts: Path) -> str:
    """How a program starts on a node: with the name, or the clock, that its fault gives it."""
    if fault.name:
        hosts.write_text(f"127.0.0.1 localhost\n{fault.name} {bad[:-1]}a {bad}\n")
        inside = f'mount --bind {hosts} /etc/hosts && hostname $0 && exec "$@"'
        return f"ip netns exec {{host}} unshare --uts --mount sh -c '{inside}' {{host}}"
    setting = "GLOO_SOCKET_IFNAME=eth0"
    if fault.ahead:
        skewed = f"LD_PRELOAD={FAKETIME} FAKETIME={fault.ahead}"
        inside = f'test $0 = {bad} && export {skewed}; exec "$@"'
        return f"ip netns exec {{host}} env {setting} sh -c '{inside}' {{host}}"
    return f"ip netns exec {{host}} env {setting}"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    """All of them, each with a doctor that is asking."""
    folder, made = tmp_path_factory.mktemp("pairs"), {}
    try:
        subprocess.run(["ip", "netns", "add", HUB], check=True, capture_output=True)
        for number, (name, fault) in enumerate(FAULTS.items()):
            if not fault.ahead or Path(FAKETIME).exists():
                made[name] = _make(number, fault, folder)
        yield made
    finally:
        for pair in made.values():
            with suppress(ProcessLookupError):
                pair.doctor.kill()
            pair.doctor.communicate()
        _remove()


@pytest.mark.debian("ip", "nft")
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("name", FAULTS)
def test_a_pair_of_nodes(pairs: dict[str, Pair], name: str) -> None:
    """The fault is the only one named, with what helps; of a healthy pair nothing is said."""
    fault = FAULTS[name]
    if name not in pairs:
        pytest.skip("not installed: libfaketime")
    pair = pairs[name]
    said, failed = pair.doctor.communicate(timeout=PATIENCE_S)
    assert said, failed
    report: dict[str, Any] = json.loads(said)
    found = report["findings"]
    if not fault.code:
        assert (found, report["status"]) == ([], "healthy")
        return
    (first, *more) = found
    wanted = "cause" if fault.level == "fail" else "observation"
    assert (first["code"], first["role"]) == (fault.code, wanted), found
    assert not more, found
    assert fault.seen.format(a=pair.a, b=pair.b) in first["summary"]
    assert fault.cure.format(a=pair.a, b=pair.b) in " ".join(first["actions"]), first["actions"]
