"""Judge the matrix of connections: who is not reached, who else answers, which pairs are slow.

What was tried more than once counts by its best: a fault shows every time, a busy machine does not.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.checks import (
    CLOCKS_APART,
    INTERFACE_UNWISE,
    PORT_BLOCKED,
    SLOW_LINK,
    WRONG_ANSWER,
)
from unhang.doctor.checks.interfaces import Lead, use
from unhang.doctor.checks.results import CheckResult, Level, host_subject
from unhang.report import Subject
from unhang.wording import printable

Row = Mapping[str, Any]
"""One connection that agents/net.py tried."""

SLOW_FACTOR = 8.0
SLOW_RTT_MS = 2.0
LOST_SHARE = 0.02
MAX_CLOCK_S = 2.0
LOST_SEGMENTS = 10
MIN_PAIRS = 3
"""Fewer have no median worth the name."""
MAX_AGAIN = 64
"""Connections that one node tries once more."""
_BEST_FIRST = ("open", "wrong-host", "other-service", "silent", "filtered", "refused", "")


def check_matrix(
    hosts: Sequence[str],
    rows: Mapping[str, Sequence[Row]],
    chosen: Mapping[str, str],
    leads: Mapping[str, Lead] | None = None,
    any_ports: Sequence[int] = (),
    more: Mapping[str, Mapping[str, str]] | None = None,
) -> list[CheckResult]:
    """Judge all connections that the nodes tried.

    Args:
        hosts: Nodes that answered.
        rows: Per node, what it tried.
        chosen: Per node, the address that NCCL would advertise, where it is not the node's own.
        leads: Per node, the interface by which it reaches its peers.
        any_ports: Those of the ports that the kernel would choose.
        more: Per node, further addresses that NCCL's sockets would use, with their interfaces.
    """
    every = [(host, row) for host in hosts for row in rows[host]]
    extra = [item for item in every if item[1]["address"] in (more or {}).get(item[1]["peer"], ())]
    tried = [item for item in every if item not in extra]
    control = [item for item in tried if item[1]["address"] != chosen.get(item[1]["peer"])]
    advertised = [item for item in tried if item[1]["address"] == chosen.get(item[1]["peer"])]
    results = _wrong_answers(control) + _blocked(control, hosts, any_ports)
    results += _unreachable_choice(advertised, control, leads or {})
    results += _slow(control, leads or {})
    if not results:
        seen = f"all {len(tried)} connections between {len(hosts)} nodes work{_figures(control)}."
        results.append(CheckResult(PORT_BLOCKED, "ok", seen))
    return [*results, *_unreachable_extra(extra, more or {}, leads or {}), *_clocks(control)]


def _figures(tried: Sequence[tuple[str, Row]]) -> str:
    """The slowest of what was measured: with two nodes there is nothing to compare it with."""
    rates = [row["mb_per_s"] for _, row in tried if row.get("mb_per_s")]
    trips = [row["rtt_ms"] for _, row in tried if row.get("rtt_ms") is not None]
    told = [f"at least {min(rates):,.0f} MB/s"] if rates else []
    told += [f"at most {max(trips):.1f} ms there and back"] if trips else []
    return f" ({', '.join(told)})" if told else ""


def _unreachable_extra(
    tried: Sequence[tuple[str, Row]],
    more: Mapping[str, Mapping[str, str]],
    leads: Mapping[str, Lead],
) -> list[CheckResult]:
    """Interfaces that no other node reaches, and that NCCL would use besides the one that works."""
    states: dict[tuple[str, str], list[str]] = defaultdict(list)
    for _, row in tried:
        states[row["peer"], row["address"]].append(row["state"])
    results = []
    for (host, address), seen in sorted(states.items()):
        if "open" not in seen:
            what = (
                f"{host}: NCCL's sockets would use {more[host][address]} ({address}), too, which "
                f"no other node reaches ({', '.join(sorted(set(seen)))})."
            )
            about, action = host_subject(host), use(leads.get(host))
            results.append(CheckResult(INTERFACE_UNWISE, "warn", what, about, action=action))
    return results


def _clocks(tried: Sequence[tuple[str, Row]]) -> list[CheckResult]:
    """How far the clocks are apart, as asked over connections that were open at the time."""
    apart = [(row["ahead_ms"], host, row["peer"]) for host, row in tried
             if row.get("ahead_ms") is not None]  # fmt: skip
    if not apart:
        return []
    found, host, peer = max(apart, key=lambda each: abs(each[0]))
    first, last = (host, peer) if found > 0 else (peer, host)
    seconds = abs(found) / 1000
    if seconds <= MAX_CLOCK_S:
        seen = f"the nodes' clocks are at most {seconds:.3f} s apart."
        return [CheckResult(CLOCKS_APART, "ok", seen)]
    seen = f"the clock of {last} is {seconds:.1f} s ahead of that of {first}."
    action = (
        f"On {first} and {last}: timedatectl shows which one is not synchronised; there "
        "systemctl enable --now chrony && chronyc makestep."
    )
    about = host_subject(first, last)
    return [CheckResult(CLOCKS_APART, "warn", seen, about, action=action)]


def _link(source: str, target: str, port: int) -> Subject:
    return Subject("link", f"{source} -> {target}:{port}")


def _wrong_answers(tried: Sequence[tuple[str, Row]]) -> list[CheckResult]:
    results = []
    for host, row in tried:
        if row["state"] in ("wrong-host", "other-service"):
            who = "another host" if row["state"] == "wrong-host" else "another program"
            seen = (
                f"{host}: at {row['address']}:{row['port']}, where {row['peer']} is expected, "
                f"{who} answers: {printable(str(row['says']), 60)}."
            )
            results.append(
                CheckResult(WRONG_ANSWER, "fail", seen, (_link(host, row["peer"], row["port"]),))
            )
    return results


_NO = ("filtered", "refused", "unreachable")


_LET_THROUGH = (
    "Let TCP through between the nodes on every port: Gloo and NCCL listen where the kernel "
    "chooses (sysctl net.ipv4.ip_local_port_range)."
)


def _ports(ports: Sequence[int], any_ports: Sequence[int]) -> str:
    """Ports in words; those of the kernel's own choice say so, for their numbers tell nothing."""
    named = ", ".join(str(port) for port in ports if port not in any_ports)
    tried = ", ".join(str(port) for port in ports if port in any_ports)
    chosen = f"ports that the kernel chooses ({tried} tried)" if tried else ""
    return " and ".join(filter(None, (named and f"port {named}", chosen)))


def _advice(host: str, ports: Sequence[int], any_ports: Sequence[int], state: str) -> str:
    """Where to look for what is in the way, and what it must let through."""
    if state == "unreachable":
        return f"On {host}: ip -br address and ip route show whether it has a way to its peers."
    if set(ports) & set(any_ports):
        return f"On {host}: nft list ruleset shows the rules of its firewall. {_LET_THROUGH}"
    named = ", ".join(map(str, ports))
    return (
        f"On {host}: nft list ruleset shows the rules of its firewall. Let TCP to port {named} "
        "through from the other nodes, or give the job another port (--master-port)."
    )


def _blocked(
    tried: Sequence[tuple[str, Row]], hosts: Sequence[str], any_ports: Sequence[int]
) -> list[CheckResult]:
    """Fold blocked connections: a port of a host, a whole host, or one pair."""
    bad = {(host, row["peer"], row["port"]): row for host, row in tried if row["state"] in _NO}
    ports = sorted({row["port"] for _, row in tried})
    results = []
    dead = []
    for host in hosts:
        others = [peer for peer in hosts if peer != host]
        whole = [p for p in ports if others and all((o, host, p) in bad for o in others)]
        if not whole or (len(others) == 1 and _mutual(bad, host, others[0], ports)):
            continue
        states = Counter(bad.pop((other, host, p))["state"] for other in others for p in whole)
        state = states.most_common(1)[0][0]
        what = "no port" if whole == ports else _ports(whole, any_ports)
        verb = "can be reached on" if whole == ports else "cannot be reached on"
        seen = f"{host} {verb} {what} from any other node ({state})."
        subjects = (*host_subject(host), *(_link("*", host, port) for port in whole))
        advice = _advice(host, whole, any_ports, state)
        results.append(CheckResult(PORT_BLOCKED, "fail", seen, subjects, action=advice))
        dead += [host] if whole == ports else []
    # A node that no other reaches reaches none: that is said with it.
    bad = {key: row for key, row in bad.items() if key[0] not in dead}
    return results + _blocked_pairs(bad, any_ports)


def _mutual(bad: Mapping[tuple[str, str, int], Row], a: str, b: str, ports: Sequence[int]) -> bool:
    """With two nodes that cannot reach each other either way, neither is the one to blame."""
    return all((a, b, p) in bad and (b, a, p) in bad for p in ports)


def _blocked_pairs(
    bad: Mapping[tuple[str, str, int], Row], any_ports: Sequence[int]
) -> list[CheckResult]:
    pairs: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for (source, target, port), row in bad.items():
        pairs[source, target].append((port, row["state"]))
    results = []
    for (source, target), items in sorted(pairs.items()):
        if (target, source) in pairs and source > target:
            continue
        ports = sorted(port for port, _ in items)
        arrow = "and" if (target, source) in pairs else "->"
        what = _ports(ports, any_ports)
        seen = f"{source} {arrow} {target}: {what} cannot be reached ({items[0][1]})."
        subjects = tuple(_link(source, target, port) for port, _ in items)
        advice = _advice(target, ports, any_ports, items[0][1])
        results.append(CheckResult(PORT_BLOCKED, "fail", seen, subjects, action=advice))
    return results


def _unreachable_choice(
    advertised: Sequence[tuple[str, Row]],
    control: Sequence[tuple[str, Row]],
    leads: Mapping[str, Lead],
) -> list[CheckResult]:
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
            action = use(leads.get(host))
            results.append(
                CheckResult(INTERFACE_UNWISE, "fail", seen, host_subject(host), action=action)
            )
    return results


def best_of(rows: Sequence[Row]) -> list[Row]:
    """One row for each connection: the best state, and of the open ones the best of each number."""
    tried: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        tried[row["peer"], row["address"], row["port"]].append(row)
    return [_best(same) for same in tried.values()]


def _best(rows: Sequence[Row]) -> Row:
    def place(row: Row) -> int:
        state = str(row["state"])
        return _BEST_FIRST.index(state) if state in _BEST_FIRST else len(_BEST_FIRST)

    first = min(rows, key=place)
    same = [row for row in rows if row["state"] == first["state"]]
    least = {key: [row[key] for row in same if row.get(key) is not None]
             for key in ("latency_ms", "rtt_ms", "mb_per_s")}  # fmt: skip
    sent, resent = _steady(same)
    return {
        **first,
        "passes": max((row["passes"] for row in rows if row.get("passes")), default=None),
        "ahead_ms": min(
            (row["ahead_ms"] for row in same if row.get("ahead_ms") is not None),
            key=abs,
            default=None,
        ),
        "latency_ms": min(least["latency_ms"], default=None),
        "rtt_ms": min(least["rtt_ms"], default=None),
        "mb_per_s": max(least["mb_per_s"], default=None),
        "sent": sent,
        "resent": resent,
    }


def _steady(rows: Sequence[Row]) -> tuple[int, int]:
    """Segments sent and sent again in all tries but the worst, which a busy moment may explain."""
    kept = sorted(rows, key=_lost)[: max(len(rows) - 1, 1)]
    return sum(int(r.get("sent", 0)) for r in kept), sum(int(r.get("resent", 0)) for r in kept)


def _lost(row: Row) -> float:
    """Share of the segments that were sent again; 0 where it means nothing."""
    resent, sent = int(row.get("resent", 0)), int(row.get("sent", 0))
    return resent / max(sent, 1) if resent >= LOST_SEGMENTS else 0.0


def calls_again(heard: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, Any]]:
    """What must be tried once more, with nothing else going on, before a node is named.

    Returns:
        Per node its part of the second look: `again`, whom it calls, and `callers`, who call it.
    """
    usual = _usual([row for rows in heard.values() for row in rows])
    parts: dict[str, dict[str, Any]] = {}
    for name, rows in heard.items():
        doubtful = [row for row in rows if row["peer"] in heard
                    and (row["state"] in _NO or _what_is_slow(row, *usual)[0])]  # fmt: skip
        for row in doubtful[:MAX_AGAIN]:
            own = parts.setdefault(name, {"again": [], "callers": []})
            own["again"].append([row["peer"], row["address"], row["port"]])
            other = parts.setdefault(row["peer"], {"again": [], "callers": []})
            if name not in other["callers"]:
                other["callers"].append(name)
    return parts


def _usual(rows: Sequence[Row]) -> tuple[float, float]:
    """Throughput and round trip of connections that are all right; 0 where there are too few.

    One bad node of four spoils half of all pairs, so for round trips it is the better quarter that
    counts; for throughput, which varies more, the median.
    """

    def known(key: str) -> list[float]:
        values = [r[key] for r in rows if r["state"] == "open" and r.get(key) is not None]
        return sorted(values) if len(values) >= MIN_PAIRS else [0.0]

    rtts = known("rtt_ms")
    return statistics.median_high(known("mb_per_s")), rtts[(len(rtts) - 1) // 4]


_ONCE = "this is one measurement, and other traffic slows a link too"


def _slow(tried: Sequence[tuple[str, Row]], leads: Mapping[str, Lead]) -> list[CheckResult]:
    """Pairs that lose data, or are far from the median; a node that is so with all others."""
    usual = _usual([row for _, row in tried])
    found: dict[frozenset[str], tuple[str, Level]] = {}
    passes: dict[frozenset[str], int] = {}
    partners: dict[str, set[str]] = defaultdict(set)
    for host, row in tried:
        pair = frozenset((host, row["peer"]))
        partners[host].add(row["peer"])
        partners[row["peer"]].add(host)
        verdict = _what_is_slow(row, *usual)
        if verdict[0] and (pair not in found or found[pair][1] != "fail"):
            found[pair] = verdict
            passes[pair] = int(row.get("passes") or 0)
    results = []
    healthy = _healthy(partners, found)
    counts = Counter(name for pair in found for name in pair)
    for name, count in counts.items():
        others = len(partners[name])
        if count == others > 1 and any(name not in pair for pair in healthy):
            what, level = next(said for pair, said in found.items() if name in pair)
            seen = f"{name} and every other node: {what}."
            about = host_subject(name)
            action = _cure([name], max(passes[pair] for pair in found if name in pair), leads)
            results.append(CheckResult(SLOW_LINK, level, seen, about, action=action, doubt=_ONCE))
            found = {pair: said for pair, said in found.items() if name not in pair}
    for pair, said in found.items():
        what, level = said
        a, b = sorted(pair)
        seen, subject = f"{a} and {b}: {what}.", (Subject("link", f"{a} - {b}"),)
        action = _cure([a, b], passes[pair], leads)
        results.append(CheckResult(SLOW_LINK, level, seen, subject, action=action, doubt=_ONCE))
    return results


def _cure(hosts: Sequence[str], passes: int, leads: Mapping[str, Lead]) -> str:
    """What to do at the interfaces by which these hosts reach their peers; "" where unknown."""
    known = [(host, leads[host].name) for host in hosts if host in leads]
    if passes:
        told = "; ".join(f"on {host} ip link set dev {name} mtu {passes}" for host, name in known)
        here = f"; or {told}" if told else ""
        return f"Packets of {passes} bytes pass: let switches and tunnels pass larger ones{here}."
    told = "; ".join(f"on {host} ethtool -S {name}" for host, name in known)
    return f"Check cable, duplex, errors and drops: {told}." if told else ""


def _healthy(
    partners: Mapping[str, set[str]], bad: Mapping[frozenset[str], object]
) -> list[frozenset[str]]:
    """Pairs that were tried and are not among the bad ones."""
    every = {frozenset((host, other)) for host, others in partners.items() for other in others}
    return [pair for pair in every if pair not in bad]


def _what_is_slow(row: Row, rate: float, rtt: float) -> tuple[str, Level]:
    """What is wrong with one connection, compared with the median of all; "" if nothing is.

    What the kernel counts (loss, round trips) is a failure; throughput, which a busy processor
    lowers as well, a warning.
    """
    said: tuple[str, Level] = ("", "ok")
    if row["state"] == "silent":
        what = "they connect, and then data is lost"
        if row["latency_ms"] is not None and not row.get("early"):
            what = "small messages pass, large ones are lost, as with a wrong MTU on the way"
        said = (what, "fail")
    elif row["state"] != "open":
        pass
    elif counted := list(_counted(row, rtt)):
        said = ("; ".join(counted), "fail")
    elif row["mb_per_s"] and row["mb_per_s"] * SLOW_FACTOR < rate:
        said = (f"{row['mb_per_s']} MB/s; the median pair has {rate:.0f} MB/s", "warn")
    return said


def _counted(row: Row, rtt: float) -> Iterator[str]:
    """What the kernel saw go wrong; one fault may show in both figures."""
    if row.get("rtt_ms") and rtt and row["rtt_ms"] > max(rtt * SLOW_FACTOR, SLOW_RTT_MS):
        yield f"{row['rtt_ms']:.1f} ms there and back; others take {rtt:.2f} ms"
    if (share := _lost(row)) > LOST_SHARE:
        yield f"{share:.0%} of the segments were sent again"
