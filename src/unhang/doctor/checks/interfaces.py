"""Checks of interfaces, names and MTU: pure functions over what the nodes said.

Which interfaces NCCL takes by itself follows its socket.cc (2.27): those with an address among
names that begin with "ib", else all but docker, lo and virbr, else docker, else lo. Ranks meet on
the first; without RDMA its sockets carry data on all (net_socket.cc). Gloo binds what
the host's own name resolves to, else the loopback. Which one they should take: where what they
would take is of no use, that by which the kernel sends to rank 0, or else to the peers.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from unhang.checks import INTERFACE_MISSING, INTERFACE_UNWISE, MTU_DIFFERS, NAME_UNRESOLVED
from unhang.doctor.checks.results import CheckResult, host_subject, of_host
from unhang.wording import printable

Facts = Mapping[str, Any]

_NEVER_MEETS = "ranks on other nodes then connect to themselves: Gloo fails in connectFullMesh"
_WAVES = (("ib",), ("^docker", "lo", "virbr"), ("docker",), ("lo",))


class Lead(NamedTuple):
    """The interface by which a node's kernel sends to where its peers are.

    Attributes:
        towards: Whose route it is: "MASTER_ADDR (10.0.0.9)", "its peers".
    """

    name: str
    address: str
    towards: str


def leads_of(
    nodes: Mapping[str, Facts], rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Lead]:
    """By which interface each node sends to rank 0, or else to its peers; none where unknown.

    Args:
        nodes: What the nodes said.
        rows: Per node, the connections that it tried.
    """
    found = {}
    for host, facts in nodes.items():
        routes = [(facts["route"]["source"], f"MASTER_ADDR ({facts['route']['to']})")]
        routes += [(r.get("source"), "its peers") for r in rows.get(host, ()) if _works(r)]
        own = {i["address"]: i["name"] for i in _usable(facts)}
        known = [Lead(own[source], source, to) for source, to in routes if source in own]
        if known:
            found[host] = known[0]
    return found


def _works(row: Mapping[str, Any]) -> bool:
    return bool(row["state"] == "open")


def nccl_interface(facts: Facts) -> tuple[Mapping[str, Any] | None, str]:
    """The interface on which NCCL's ranks would meet on this node, and why.

    Returns:
        The interface (None if there is none), and "by NCCL_SOCKET_IFNAME" or "by itself".
    """
    wanted = facts.get("settings", {}).get("NCCL_SOCKET_IFNAME")
    found = nccl_interfaces(facts)
    return (found[0] if found else None), "by NCCL_SOCKET_IFNAME" if wanted else "by itself"


def nccl_interfaces(facts: Facts) -> list[Mapping[str, Any]]:
    """All that its sockets would carry data on; they meet on the first."""
    with_address = [i for i in facts.get("interfaces", []) if i["address"] and i["up"]]
    wanted = str(facts.get("settings", {}).get("NCCL_SOCKET_IFNAME", ""))
    for wave in [wanted.split(",")] if wanted else _WAVES:
        if found := [i for i in with_address if _named(i["name"], wave)]:
            return found
    return []


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


def _gloo_interface(facts: Facts) -> tuple[Mapping[str, Any] | None, str]:
    """The interface that Gloo would use on this node, None for none, and how it comes to it."""
    interfaces = facts.get("interfaces", [])
    wanted = str(facts.get("settings", {}).get("GLOO_SOCKET_IFNAME", "")).split(",")[0]
    if wanted:
        named = [i for i in interfaces if i["name"] == wanted and i["address"]]
        return (named[0] if named else None), "by GLOO_SOCKET_IFNAME"
    known = [i for i in interfaces if i["address"] and i["address"] == facts.get("own_address")]
    return (known[0] if known else None), "by its own name"


def check_interfaces(
    nodes: Mapping[str, Facts], leads: Mapping[str, Lead] | None = None
) -> list[CheckResult]:
    """Interfaces, names and MTU of all nodes.

    Args:
        nodes: What the nodes said.
        leads: As `leads_of` gives them.
    """
    results = []
    alone = len({str(facts.get("machine", host)) for host, facts in nodes.items()}) == 1
    for host, facts in nodes.items():
        lead = (leads or {}).get(host)
        results += _own_interfaces(host, facts, lead, alone=alone)
        results += _for_gloo(host, facts, lead, alone=alone)
        master = facts.get("master", {})
        if master.get("error"):
            name = facts.get("settings", {}).get("MASTER_ADDR", "")
            seen = f"MASTER_ADDR={printable(name, 60)} cannot be resolved there"
            results.append(of_host(NAME_UNRESOLVED, "fail", host, seen, "", master["error"]))
    return [*results, *_masters(nodes), *_families(nodes), *_mtu(nodes)]


def of_six_among_four(nodes: Mapping[str, Facts]) -> list[str]:
    """Nodes with IPv6 alone among others: where an interface has both, IPv4 is advertised."""
    taken = {host: nccl_interface(facts)[0] for host, facts in nodes.items()}
    sixes = {
        host: ipaddress.ip_address(chosen["address"]).version == 6  # noqa: PLR2004 - IPv6
        for host, chosen in taken.items()
        if chosen is not None and not _unusable(chosen)
    }
    six = [host for host, is_six in sixes.items() if is_six]
    return six if len(six) < len(sixes) else []


def _families(nodes: Mapping[str, Facts]) -> list[CheckResult]:
    six = of_six_among_four(nodes)
    others = ", ".join(host for host in nodes if host not in six)
    seen = f"has no IPv4 address, and {others} would advertise one"
    action = (
        "give it an IPv4 address in the network of its peers, or all nodes an IPv6 address and "
        "NCCL_SOCKET_FAMILY=AF_INET6."
    )
    return [of_host(INTERFACE_UNWISE, "fail", host, seen, f"On {host}: {action}") for host in six]


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
            seen = "MASTER_ADDR is the loopback there, so it looks for rank 0 on itself"
            results.append(of_host(NAME_UNRESOLVED, "fail", host, seen))
    if len(known := {frozenset(found) for found in real.values() if found}) > 1:
        said = "; ".join(sorted(", ".join(sorted(addresses)) for addresses in known))
        seen = f"MASTER_ADDR is not the same address on all nodes: {said}."
        results.append(CheckResult(NAME_UNRESOLVED, "warn", seen))
    return results


def _own_interfaces(
    host: str, facts: Facts, lead: Lead | None, *, alone: bool
) -> list[CheckResult]:
    chosen, how = nccl_interface(facts)
    if chosen is None:
        wanted = facts.get("settings", {}).get("NCCL_SOCKET_IFNAME", "")
        named = f" for NCCL_SOCKET_IFNAME={printable(wanted, 60)}" if wanted else ""
        return [_missing(host, f"NCCL finds no interface{named}", facts)]
    seen = f"NCCL takes {chosen['name']} ({chosen['address']}, {chosen['kind']}) {how}"
    bad = "" if alone else _unusable(chosen)
    if not bad:
        return [CheckResult(INTERFACE_UNWISE, "ok", f"{host}: {seen}{_leading(chosen, lead)}.")]
    action = use(lead, _better(facts))
    return [of_host(INTERFACE_UNWISE, "fail", host, f"{seen}: {bad}", action)]


def _missing(host: str, seen: str, facts: Facts) -> CheckResult:
    have = ", ".join(f"{i['name']} {i['address']}" for i in facts.get("interfaces", []))
    return of_host(INTERFACE_MISSING, "fail", host, seen, "", f"it has: {have}")


def _for_gloo(host: str, facts: Facts, lead: Lead | None, *, alone: bool) -> Iterator[CheckResult]:
    """What Gloo would bind, and what to set where that is of no use."""
    taken, how = _gloo_interface(facts)
    wanted = facts.get("settings", {}).get("GLOO_SOCKET_IFNAME", "")
    if wanted and taken is None:
        seen = f"Gloo finds no interface for GLOO_SOCKET_IFNAME={printable(wanted, 60)}"
        yield _missing(host, seen, facts)
    elif not alone and (what := _own_name_is_useless(facts)):
        chosen, _ = nccl_interface(facts)
        own = chosen["name"] if chosen is not None and not _unusable(chosen) else _better(facts)
        name = lead.name if lead else own or "the interface"
        address = next((i["address"] for i in _usable(facts) if i["name"] == name), "its address")
        why = f": {_by_lead(lead)}" if lead else ""
        seen = f"its own name {what}, so Gloo would bind the loopback"
        action = f"export GLOO_SOCKET_IFNAME={name}, or let /etc/hosts name {address}{why}."
        found = of_host(INTERFACE_UNWISE, "fail", host, seen, action, _NEVER_MEETS)
        yield replace(found, doubt="a job without a group of Gloo binds no such address")
    elif taken is not None:
        seen = f"{host}: Gloo takes {taken['name']} ({taken['address']}) {how}"
        yield CheckResult(INTERFACE_UNWISE, "ok", f"{seen}{_leading(taken, lead)}.")


def _leading(taken: Mapping[str, Any], lead: Lead | None) -> str:
    """How the interface that is taken compares with the route to the peers; "" where unknown."""
    if lead is None:
        return ""
    if taken["name"] == lead.name:
        return f"; {_by_lead(lead)}"
    return f"; the route to {lead.towards} leaves by {lead.name} ({lead.address})"


def _by_lead(lead: Lead) -> str:
    return f"the route to {lead.towards} leaves by it"


def _usable(facts: Facts) -> list[Mapping[str, Any]]:
    """Interfaces whose address peers may reach, real ones first."""
    usable = [
        interface
        for interface in facts.get("interfaces", [])
        if interface["address"] and interface["up"] and not _unusable(interface)
    ]
    order = {"infiniband": 0, "ethernet": 1}
    return sorted(usable, key=lambda interface: order.get(interface["kind"], 2))


def _better(facts: Facts) -> str:
    """An interface whose address peers can reach; "" where there is none."""
    return next((str(interface["name"]) for interface in _usable(facts)), "")


def use(lead: Lead | None, otherwise: str = "") -> str:
    """The settings that make NCCL and Gloo take the one by which peers are reached; "" if none."""
    name = lead.name if lead else otherwise
    if not name:
        return ""
    settings = f"NCCL_SOCKET_IFNAME=={name} GLOO_SOCKET_IFNAME={name}"
    why = f": {_by_lead(lead)}" if lead else ""
    return f"export {settings} (the second = means this name exactly){why}."


def _own_name_is_useless(facts: Facts) -> str:
    """Why Gloo, which binds what the host's name resolves to, would bind the loopback; or ""."""
    if facts.get("settings", {}).get("GLOO_SOCKET_IFNAME"):
        return ""
    own = facts.get("own_name", {})
    if own.get("error"):
        return "does not resolve"
    addresses = own.get("addresses", [])
    if addresses and all(ipaddress.ip_address(address).is_loopback for address in addresses):
        return f"resolves to {addresses[0]}"
    if addresses and not facts.get("own_address"):
        return f"resolves to {addresses[0]}, which is no address of it"
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
    """Compare the MTU of the interfaces that the nodes would take, without unusable ones."""
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
    subjects = host_subject(*odd)
    seen = f"MTU differs: {said}, the others {common}."
    first = next(iter(odd))
    command = f"ip link set dev {names[first]} mtu {common}"
    action = f"On {first}: {command}; or the larger one everywhere, switches included."
    return [CheckResult(MTU_DIFFERS, "warn", seen, subjects, action=action)]
