"""Checks of interfaces and of the connection matrix: pure functions over what the nodes said.

Which interface NCCL takes by itself follows its socket.cc (2.27): the first with an address among
names that begin with "ib", then all but docker, lo and virbr, then docker, then lo. Gloo binds what
the host's own name resolves to, else the loopback.
"""

from __future__ import annotations

import ipaddress
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from unhang.doctor.results import Result
from unhang.report import Subject
from unhang.wording import printable

__all__ = ["check_interfaces", "check_matrix", "nccl_interface"]

Facts = Mapping[str, Any]
Row = Mapping[str, Any]
"""One connection that agents/net.py tried."""

SLOW_FACTOR = 8.0
SLOW_LATENCY_MS = 50.0
MIN_PAIRS = 3
"""Fewer have no median worth the name."""
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


def check_interfaces(nodes: Mapping[str, Facts]) -> list[Result]:
    """Interfaces, names and MTU of all nodes, before anything is connected."""
    results = []
    for host, facts in nodes.items():
        results += _own_interfaces(host, facts, alone=len(nodes) == 1)
        master = facts.get("master", {})
        if master.get("error"):
            name = facts.get("settings", {}).get("MASTER_ADDR", "")
            seen = f"{host}: MASTER_ADDR={printable(name, 60)} cannot be resolved there."
            results.append(Result("UH822", "fail", seen, _host(host), evidence=(master["error"],)))
    return [*results, *_mtu(nodes)]


def _host(name: str) -> tuple[Subject, ...]:
    return (Subject("host", name, host=name),)


def _own_interfaces(host: str, facts: Facts, *, alone: bool) -> list[Result]:
    chosen, how = nccl_interface(facts)
    if chosen is None:
        wanted = facts.get("settings", {}).get("NCCL_SOCKET_IFNAME", "")
        seen = f"{host}: NCCL finds no interface" + (
            f" for NCCL_SOCKET_IFNAME={printable(wanted, 60)}." if wanted else "."
        )
        have = ", ".join(f"{i['name']} {i['address']}" for i in facts.get("interfaces", []))
        return [Result("UH821", "fail", seen, _host(host), evidence=(f"it has: {have}",))]
    results = []
    seen = f"{host}: NCCL takes {chosen['name']} ({chosen['address']}, {chosen['kind']}) {how}"
    if not alone and (bad := _unusable(chosen)):
        results.append(Result("UH820", "fail", f"{seen}: {bad}.", _host(host)))
    else:
        results.append(Result("UH820", "ok", f"{seen}."))
    if not alone and (what := _own_name_is_useless(facts)):
        seen = f"{host}: its own name {what}, so Gloo would bind the loopback."
        action = "Set GLOO_SOCKET_IFNAME, or mend /etc/hosts."
        results.append(Result("UH820", "warn", seen, _host(host), action=action))
    return results


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


def _mtu(nodes: Mapping[str, Facts]) -> list[Result]:
    """Compare the MTU of the interfaces that share a network with most nodes' chosen ones."""
    values: dict[str, int] = {}
    for host, facts in nodes.items():
        chosen, _ = nccl_interface(facts)
        if chosen is not None:
            values[host] = int(chosen["mtu"])
    if len(values) <= 1:
        return []
    common = Counter(values.values()).most_common(1)[0][0]
    odd = {host: mtu for host, mtu in values.items() if mtu != common}
    if not odd:
        return [Result("UH826", "ok", f"all nodes have MTU {common}.")]
    said = ", ".join(f"{host} has {mtu}" for host, mtu in odd.items())
    subjects = tuple(Subject("host", host, host=host) for host in odd)
    return [Result("UH826", "warn", f"MTU differs: {said}, the others {common}.", subjects)]


def check_matrix(
    hosts: Sequence[str], rows: Mapping[str, Sequence[Row]], chosen: Mapping[str, str]
) -> list[Result]:
    """Judge all connections that the nodes tried.

    Args:
        hosts: Nodes that answered.
        rows: Per node, what it tried.
        chosen: Per node, the address that NCCL would advertise, where it is not the node's own.
    """
    tried = [(host, row) for host in hosts for row in rows[host]]
    control = [item for item in tried if item[1]["address"] != chosen.get(item[1]["peer"])]
    advertised = [item for item in tried if item[1]["address"] == chosen.get(item[1]["peer"])]
    results = _wrong_answers(control) + _blocked(control, hosts)
    results += _unreachable_choice(advertised, control)
    results += _slow(control)
    if not results:
        seen = f"all {len(tried)} connections between {len(hosts)} nodes work."
        results.append(Result("UH823", "ok", seen))
    return results


def _link(source: str, target: str, port: int) -> Subject:
    return Subject("link", f"{source} -> {target}:{port}")


def _wrong_answers(tried: Sequence[tuple[str, Row]]) -> list[Result]:
    results = []
    for host, row in tried:
        if row["state"] in ("wrong-host", "other-service"):
            who = "another host" if row["state"] == "wrong-host" else "another program"
            seen = (
                f"{host}: at {row['address']}:{row['port']}, where {row['peer']} is expected, "
                f"{who} answers: {printable(str(row['says']), 60)}."
            )
            results.append(Result("UH824", "fail", seen, (_link(host, row["peer"], row["port"]),)))
    return results


_NO = ("filtered", "refused", "unreachable")


def _blocked(tried: Sequence[tuple[str, Row]], hosts: Sequence[str]) -> list[Result]:
    """Fold blocked connections: a port of a host, a whole host, or one pair."""
    bad = {(host, row["peer"], row["port"]): row for host, row in tried if row["state"] in _NO}
    ports = sorted({row["port"] for _, row in tried})
    results = []
    for host in hosts:
        others = [peer for peer in hosts if peer != host]
        whole = [p for p in ports if others and all((o, host, p) in bad for o in others)]
        if not whole or (len(others) == 1 and _mutual(bad, host, others[0], ports)):
            continue
        for other in others:
            for port in whole:
                state = bad.pop((other, host, port))["state"]
        what = "no port" if whole == ports else f"port {', '.join(map(str, whole))}"
        verb = "can be reached on" if whole == ports else "cannot be reached on"
        seen = f"{host} {verb} {what} from any other node ({state})."
        subjects = (*_host(host), *(_link("*", host, port) for port in whole))
        results.append(Result("UH823", "fail", seen, subjects))
    return results + _blocked_pairs(bad)


def _mutual(bad: Mapping[tuple[str, str, int], Row], a: str, b: str, ports: Sequence[int]) -> bool:
    """With two nodes that cannot reach each other either way, neither is the one to blame."""
    return all((a, b, p) in bad and (b, a, p) in bad for p in ports)


def _blocked_pairs(bad: Mapping[tuple[str, str, int], Row]) -> list[Result]:
    pairs: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for (source, target, port), row in bad.items():
        pairs[source, target].append((port, row["state"]))
    results = []
    for (source, target), items in sorted(pairs.items()):
        if (target, source) in pairs and source > target:
            continue
        ports = ", ".join(str(port) for port, _ in sorted(items))
        arrow = "and" if (target, source) in pairs else "->"
        seen = f"{source} {arrow} {target}: port {ports} cannot be reached ({items[0][1]})."
        subjects = tuple(_link(source, target, port) for port, _ in items)
        results.append(Result("UH823", "fail", seen, subjects))
    return results


def _unreachable_choice(
    advertised: Sequence[tuple[str, Row]], control: Sequence[tuple[str, Row]]
) -> list[Result]:
    """Hosts whose own address works while the one that NCCL would advertise does not."""
    works = {row["peer"] for _, row in control if row["state"] == "open"}
    verdicts: dict[str, list[str]] = defaultdict(list)
    address = {}
    for _, row in advertised:
        verdicts[row["peer"]].append(row["state"])
        address[row["peer"]] = row["address"]
    results = []
    for host, states in sorted(verdicts.items()):
        if host in works and "open" not in states:
            seen = (
                f"{host}: NCCL would advertise {address[host]}, which no other node reaches "
                f"({', '.join(sorted(set(states)))})."
            )
            results.append(Result("UH820", "fail", seen, _host(host)))
    return results


def _slow(tried: Sequence[tuple[str, Row]]) -> list[Result]:
    """Pairs that lose data, or are far from the median of all pairs; one result a pair."""
    rates = [row["mb_per_s"] for _, row in tried if row["mb_per_s"]]
    delays = [row["latency_ms"] for _, row in tried if row["latency_ms"] is not None]
    rate = statistics.median(rates) if rates else 0.0
    delay = statistics.median(delays) if delays else 0.0
    found: dict[frozenset[str], Result] = {}
    for host, row in tried:
        what = _what_is_slow(row, rate, delay, known=len(delays) >= MIN_PAIRS)
        pair = frozenset((host, row["peer"]))
        if what and pair not in found:
            seen = f"{host} and {row['peer']}: {what}."
            subject = _link(host, row["peer"], row["port"])
            found[pair] = Result("UH825", "fail", seen, (subject,), confidence="medium")
    return list(found.values())


def _what_is_slow(row: Row, rate: float, delay: float, *, known: bool) -> str:
    """What is wrong with one connection, compared with the median of all; or ""."""
    if row["state"] == "silent":
        return "they connect, and then data is lost"
    if row["state"] != "open" or not known:
        return ""
    if row["latency_ms"] > max(delay * SLOW_FACTOR, SLOW_LATENCY_MS):
        return f"{row['latency_ms']} ms, where the median of all pairs is {delay} ms"
    if row["mb_per_s"] and row["mb_per_s"] * SLOW_FACTOR < rate:
        return f"{row['mb_per_s']} MB/s, where the median of all pairs is {rate:.0f} MB/s"
    return ""
