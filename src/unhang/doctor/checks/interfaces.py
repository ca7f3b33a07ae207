"""Checks of interfaces, names and MTU: pure functions over what the nodes said.

Which interface NCCL takes by itself follows its socket.cc (2.27): the first with an address among
names that begin with "ib", then all but docker, lo and virbr, then docker, then lo. Gloo binds what
the host's own name resolves to, else the loopback.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from unhang.checks import INTERFACE_MISSING, INTERFACE_UNWISE, MTU_DIFFERS, NAME_UNRESOLVED
from unhang.doctor.checks.results import CheckResult, host_subject
from unhang.report import Subject
from unhang.wording import printable

__all__ = ["check_interfaces", "nccl_interface"]

Facts = Mapping[str, Any]

_WAVES = (("ib",), ("^docker", "lo", "virbr"), ("docker",), ("lo",))


def nccl_interface(facts: Facts) -> tuple[Mapping[str, Any] | None, str]:
    """The interface that NCCL would use on this node, and why.

    Returns:
        The interface (None if there is none), and "by NCCL_SOCKET_IFNAME" or "by itself".
    """
    with_address = [i for i in facts.get("interfaces", []) if i["address"] and i["up"]]
    wanted = str(facts.get("settings", {}).get("NCCL_SOCKET_IFNAME", ""))
    if wanted:
        found = [i for i in with_address if _named(i["name"], wanted.split(","))]
        return (found[0] if found else None), "by NCCL_SOCKET_IFNAME"
    for wave in _WAVES:
        for interface in with_address:
            if _named(interface["name"], wave):
                return interface, "by itself"
    return None, "by itself"


def _named(name: str, patterns: Sequence[str]) -> bool:
    """NCCL's rule: "^a,b" excludes prefixes, "=a" is exact, "a" is a prefix."""
    first = patterns[0]
    if first.startswith("^"):
        plain = [first[1:].lstrip("="), *patterns[1:]]
        exact = first.startswith("^=")
        return not any(name == p if exact else name.startswith(p) for p in plain)
    if first.startswith("="):
        return name in [first[1:], *patterns[1:]]
    return any(name.startswith(pattern) for pattern in patterns)


def check_interfaces(nodes: Mapping[str, Facts]) -> list[CheckResult]:
    """Interfaces, names and MTU of all nodes, before anything is connected."""
    results = []
    for host, facts in nodes.items():
        results += _own_interfaces(host, facts, alone=len(nodes) == 1)
        master = facts.get("master", {})
        if master.get("error"):
            name = facts.get("settings", {}).get("MASTER_ADDR", "")
            seen = f"{host}: MASTER_ADDR={printable(name, 60)} cannot be resolved there."
            results.append(
                CheckResult(
                    NAME_UNRESOLVED, "fail", seen, host_subject(host), evidence=(master["error"],)
                )
            )
    return [*results, *_masters(nodes), *_mtu(nodes)]


def _masters(nodes: Mapping[str, Facts]) -> list[CheckResult]:
    """MASTER_ADDR must mean one machine, and not each node itself."""
    meant = {host: set(facts["master"]["addresses"]) for host, facts in nodes.items()}
    meant = {host: addresses for host, addresses in meant.items() if addresses}
    if len(nodes) <= 1 or not meant:
        return []
    real = {host: {a for a in found if not ipaddress.ip_address(a).is_loopback}
            for host, found in meant.items()}  # fmt: skip
    master = set().union(*real.values())
    results = []
    for host, found in real.items():
        own = {interface["address"] for interface in nodes[host]["interfaces"]}
        if not found and not own & master:
            seen = f"{host}: MASTER_ADDR is the loopback there, so it looks for rank 0 in itself."
            results.append(CheckResult(NAME_UNRESOLVED, "fail", seen, host_subject(host)))
    if len(known := {frozenset(found) for found in real.values() if found}) > 1:
        said = "; ".join(sorted(", ".join(sorted(addresses)) for addresses in known))
        seen = f"MASTER_ADDR is not the same address on all nodes: {said}."
        results.append(CheckResult(NAME_UNRESOLVED, "warn", seen))
    return results


def _own_interfaces(host: str, facts: Facts, *, alone: bool) -> list[CheckResult]:
    chosen, how = nccl_interface(facts)
    if chosen is None:
        wanted = facts.get("settings", {}).get("NCCL_SOCKET_IFNAME", "")
        seen = f"{host}: NCCL finds no interface" + (
            f" for NCCL_SOCKET_IFNAME={printable(wanted, 60)}." if wanted else "."
        )
        have = ", ".join(f"{i['name']} {i['address']}" for i in facts.get("interfaces", []))
        return [
            CheckResult(
                INTERFACE_MISSING, "fail", seen, host_subject(host), evidence=(f"it has: {have}",)
            )
        ]
    results = []
    seen = f"{host}: NCCL takes {chosen['name']} ({chosen['address']}, {chosen['kind']}) {how}"
    if not alone and (bad := _unusable(chosen)):
        better = _better(facts)
        action = _use(better) if better else ""
        results.append(
            CheckResult(
                INTERFACE_UNWISE, "fail", f"{seen}: {bad}.", host_subject(host), action=action
            )
        )
    else:
        results.append(CheckResult(INTERFACE_UNWISE, "ok", f"{seen}."))
    if not alone and (what := _own_name_is_useless(facts)):
        seen = f"{host}: its own name {what}, so Gloo would bind the loopback."
        name = chosen["name"] if not _unusable(chosen) else (_better(facts) or "the interface")
        action = f"export GLOO_SOCKET_IFNAME={name}, or let /etc/hosts name {chosen['address']}."
        results.append(
            CheckResult(INTERFACE_UNWISE, "warn", seen, host_subject(host), action=action)
        )
    return results


def _better(facts: Facts) -> str:
    """An interface whose address peers can reach; "" where there is none. Real ones come first."""
    usable = [
        interface
        for interface in facts.get("interfaces", [])
        if interface["address"] and interface["up"] and not _unusable(interface)
    ]
    order = {"infiniband": 0, "ethernet": 1}
    usable.sort(key=lambda interface: order.get(interface["kind"], 2))
    return str(usable[0]["name"]) if usable else ""


def _use(name: str) -> str:
    """The settings that make NCCL and Gloo take one interface."""
    settings = f"NCCL_SOCKET_IFNAME=={name} GLOO_SOCKET_IFNAME={name}"
    return f"export {settings} (the second = means this name exactly)."


def _own_name_is_useless(facts: Facts) -> str:
    """Why Gloo, which binds what the host's name resolves to, would bind the loopback; or ""."""
    if facts.get("settings", {}).get("GLOO_SOCKET_IFNAME"):
        return ""
    own = facts.get("own_name", {})
    if own.get("error"):
        return "does not resolve"
    addresses = own.get("addresses", [])
    if addresses and all(address.startswith("127.") for address in addresses):
        return f"resolves to {addresses[0]}"
    return ""


def _unusable(interface: Mapping[str, Any]) -> str:
    """Why peers on other nodes cannot reach this interface's address, or ""."""
    address = ipaddress.ip_address(interface["address"])
    if address.is_loopback:
        return "the loopback, which no other node reaches"
    if address.is_link_local:
        return "a link-local address, which is not routed"
    if interface["kind"] == "bridge":
        return "a bridge of containers or virtual machines on this host"
    return ""


def _mtu(nodes: Mapping[str, Facts]) -> list[CheckResult]:
    """Compare the MTU of the interfaces that the nodes would take; unusable ones are told apart."""
    values: dict[str, int] = {}
    names: dict[str, str] = {}
    for host, facts in nodes.items():
        chosen, _ = nccl_interface(facts)
        if chosen is not None and not _unusable(chosen):
            values[host], names[host] = int(chosen["mtu"]), str(chosen["name"])
    if len(values) <= 1:
        return []
    common = Counter(values.values()).most_common(1)[0][0]
    odd = {host: mtu for host, mtu in values.items() if mtu != common}
    if not odd:
        return [CheckResult(MTU_DIFFERS, "ok", f"all nodes have MTU {common}.")]
    said = ", ".join(f"{host} has {mtu}" for host, mtu in odd.items())
    subjects = tuple(Subject("host", host, host=host) for host in odd)
    seen = f"MTU differs: {said}, the others {common}."
    first = next(iter(odd))
    command = f"ip link set dev {names[first]} mtu {common}"
    action = f"On {first}: {command}; or the larger one everywhere, switches included."
    return [CheckResult(MTU_DIFFERS, "warn", seen, subjects, action=action)]
