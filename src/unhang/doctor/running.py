"""Ask the nodes and judge the answers: what `unhang doctor` does, without any printing."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unhang.checks import (
    COMM_NOT_STARTED,
    COMM_RANKS_MISSING,
    HOST_SILENT,
    INTERFACE_MISSING,
    PORT_BLOCKED,
    PORT_TAKEN,
)
from unhang.doctor.asking.nodes import Node, NodeAnswer, NodeAsker, address_of
from unhang.doctor.checks.env import check_env
from unhang.doctor.checks.gpu import check_gpus, check_kernel_log
from unhang.doctor.checks.interfaces import (
    check_interfaces,
    leads_of,
    nccl_interface,
    nccl_interfaces,
    of_six_among_four,
)
from unhang.doctor.checks.matrix import best_of, calls_again, check_matrix
from unhang.doctor.checks.results import CheckResult, host_subject
from unhang.doctor.checks.shapes import gpus_misfit, misfit, rows_of
from unhang.doctor.comm.isolate import IFNAME
from unhang.doctor.comm.judging import CommPlan, run_comm
from unhang.doctor.comm.teams import Crew, places_on
from unhang.report import Subject
from unhang.wording import fold_ranks

_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_USUAL_RANGE = range(32768, 61000)
START_S = 20.0
MAX_FULL_MATRIX = 64
"""Nodes up to which throughput is measured as well: it is a quadratic number of streams."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the nodes say of themselves.

    Attributes:
        asked_ns: Wall clock here when they were asked.
        answers: One a node; those that answered have their addresses.
    """

    asked_ns: int
    answers: Sequence[NodeAnswer]

    @property
    def nodes(self) -> list[Node]:
        """Those that answered."""
        return [answer.node for answer in self.answers if not answer.error]

    @property
    def by_name(self) -> dict[str, Mapping[str, Any]]:
        """Facts by name of the node."""
        return {answer.node.name: answer.data for answer in self.answers if not answer.error}


@dataclass(frozen=True, slots=True)
class NetPlan:
    """Which ports are tried, and for how long in seconds.

    Attributes:
        ports: Where ranks meet.
        any_ports: Such as the kernel chooses: where ranks listen for each other.
    """

    ports: tuple[int, ...] = (29500, 29501, 29502)
    seconds: float = 12.0
    size: int = 4 << 20
    any_ports: tuple[int, ...] = ()


def kernels_ports(count: int = 2) -> tuple[int, ...]:
    """Some of the ports that a kernel chooses from, where its own range can be read, at random.

    A rank binds port 0 for what Gloo and NCCL send; a firewall that lets only the meeting port
    through lets a job start and hang.
    """
    try:
        first, last = Path(_RANGE).read_text(encoding="ascii").split()
        several = range(int(first), int(last) + 1)
    except (OSError, ValueError):
        several = _USUAL_RANGE
    chooser = secrets.SystemRandom()
    return tuple(sorted(chooser.sample(several, count))) if len(several) > count else ()


def ask_facts(
    asking: NodeAsker, nodes: Sequence[Node], told: Mapping[str, str], timeout_s: float
) -> Facts:
    """Ask all nodes; each gets the address that was given, or the one that its facts show."""
    asked_ns = time.time_ns()
    answers = []
    for answer in asking.ask(nodes, "facts", {}, timeout_s):
        node = answer.node
        if answer.error:
            answers.append(answer)
        elif why := misfit(answer.data):
            answers.append(NodeAnswer(node, {}, f"its description of itself is unusable: {why}"))
        else:
            address = told.get(node.name) or node.address or address_of(node.name, answer.data)
            answers.append(NodeAnswer(replace(node, address=address), answer.data))
    return Facts(asked_ns, answers)


def silent(answers: Sequence[NodeAnswer]) -> list[CheckResult]:
    """A result for each node that did not answer."""
    return [
        CheckResult(
            HOST_SILENT,
            "fail",
            f"{answer.node.name} did not answer: {answer.error}.",
            host_subject(answer.node.name),
        )
        for answer in answers
        if answer.error
    ]


def absent(
    ranks: Sequence[int], hosts: Mapping[int, str], came: Sequence[Node], start_s: float
) -> list[CheckResult]:
    """A result for the ranks of a job that never came to the meeting point.

    Args:
        ranks: Those that did not come.
        hosts: Where they should be, as far as that is known.
        came: Those that did.
        start_s: How long they were waited for.
    """
    if not ranks:
        return []
    whom = f"rank{'s' if len(ranks) > 1 else ''} {fold_ranks(ranks)}"
    known = sorted({hosts[rank] for rank in ranks if rank in hosts})
    where = f" (on {', '.join(known[:8])}, as the launcher spreads them)" if known else ""
    others = ", ".join(sorted({node.where for node in came})[:8])
    subjects = tuple(
        Subject("process", f"rank {rank}" + (f" on {hosts[rank]}" if rank in hosts else ""),
                rank=rank, host=hosts.get(rank))
        for rank in ranks[:16]
    )  # fmt: skip
    seen = f"{whom}{where} did not arrive within {start_s:.0f} s."
    evidence = (f"{len(came)} other ranks arrived, on {others}",)
    return [CheckResult(COMM_RANKS_MISSING, "fail", seen, subjects, tuple(ranks), evidence)]


def run_env(facts: Facts, *, measured: bool = False) -> list[CheckResult]:
    """Part env over the facts of all nodes that answered; `measured`: see `check_env`."""
    return check_env(facts.by_name, facts.asked_ns, measured=measured)


def run_gpu(asking: NodeAsker, facts: Facts, timeout_s: float) -> list[CheckResult]:
    """Part gpu: the GPUs of all nodes that answered, and what their kernels logged."""
    found = [
        NodeAnswer(a.node, {}, f"its description of its GPUs is unusable: {why}")
        if not a.error and (why := gpus_misfit(a.data)) else a
        for a in asking.ask(facts.nodes, "gpu", {}, timeout_s, {"seconds": timeout_s / 2})
    ]  # fmt: skip
    return [*silent(found), *check_gpus(found), *check_kernel_log(facts.by_name)]


def run_net(
    asking: NodeAsker, facts: Facts, plan: NetPlan, say: Say = lambda _: None
) -> list[CheckResult]:
    """Part net: interfaces of all nodes, then the full matrix of connections between them."""
    nodes, left_out = _own_machines(facts)
    another_family = of_six_among_four(facts.by_name)
    nodes = [node for node in nodes if node.name not in another_family]
    if len(nodes) <= 1:
        own = check_interfaces(facts.by_name, leads_of(facts.by_name, {}))
        return [
            *own,
            *left_out,
            CheckResult(PORT_BLOCKED, "skip", "one node has no peer to connect to."),
        ]
    say(
        f"connecting {len(nodes)} nodes with each other on "
        f"{len(plan.ports) + len(plan.any_ports)} ports"
    )
    chosen = _other_addresses(nodes, facts.by_name)
    more = {n.name: _more_addresses(n, facts.by_name[n.name], chosen) for n in nodes}
    answers = _ask_net(asking, nodes, plan, {node.name: {} for node in nodes}, {
        "peers": {n.name: [*filter(None, (n.address, chosen.get(n.name))), *more[n.name]]
                  for n in nodes},
        "bytes": plan.size if len(nodes) <= MAX_FULL_MATRIX else 0,
    })  # fmt: skip
    heard = _where_peers_listen(answers, plan)
    again = calls_again(heard)
    if again:
        say("repeating what failed or was slow")
        second = _ask_net(asking, [n for n in nodes if n.name in again], plan, again,
                          {"bytes": plan.size})  # fmt: skip
        for answer in second:
            if answer.node.name in heard:
                heard[answer.node.name] += rows_of(answer.data)
    heard = {name: best_of(rows) for name, rows in heard.items()}
    leads = leads_of(facts.by_name, {name: _control(rows, chosen) for name, rows in heard.items()})
    return [
        *check_interfaces(facts.by_name, leads),
        *left_out,
        *silent(answers),
        *_taken(answers, plan),
        *check_matrix(list(heard), heard, chosen, leads, plan.any_ports, more),
    ]


def _where_peers_listen(
    answers: Sequence[NodeAnswer], plan: NetPlan
) -> dict[str, list[Mapping[str, Any]]]:
    """What each node tried, without ports of the kernel's that another program has at a peer."""
    busy = {
        (a.node.name, port)
        for a in answers
        for port in plan.any_ports
        if str(port) in a.data.get("listen_errors", {})
    }
    return {
        a.node.name: [r for r in rows_of(a.data) if (r["peer"], r["port"]) not in busy]
        for a in answers
        if not a.error
    }


def _control(
    rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Connections to the addresses by which we know the nodes, not to those that NCCL takes."""
    return [row for row in rows if row["address"] != chosen.get(row["peer"])]


def _ask_net(
    asking: NodeAsker,
    nodes: Sequence[Node],
    plan: NetPlan,
    per: Mapping[str, Mapping[str, Any]],
    common: Mapping[str, Any],
) -> list[NodeAnswer]:
    ports = [*plan.ports, *(port for port in plan.any_ports if port not in plan.ports)]
    told = {"token": secrets.token_hex(8), "ports": ports, "seconds": plan.seconds}
    orders = {node.name: {"me": node.name, **per[node.name]} for node in nodes}
    return asking.ask(nodes, "net", orders, plan.seconds * 2 + START_S, {**told, **common})


def _own_machines(facts: Facts) -> tuple[list[Node], list[CheckResult]]:
    """Nodes to connect: not a second name of one machine, nor one without an address."""
    first: dict[str, Node] = {}
    results = []
    for node in facts.nodes:
        same = first.setdefault(str(facts.by_name[node.name].get("machine", node.name)), node)
        if not node.address:
            seen = f"{node.name} has no address that peers can use: skipped."
            results.append(CheckResult(INTERFACE_MISSING, "fail", seen, host_subject(node.name)))
        elif same is not node:
            seen = f"{node.name} is the same machine as {same.name}: skipped."
            results.append(CheckResult(PORT_BLOCKED, "skip", seen))
    return [node for node in first.values() if node.address], results


def default_backend(gpus: Sequence[int]) -> str:
    """NCCL where every node has GPUs enough, else Gloo."""
    return "nccl" if gpus and all(gpus) else "gloo"


def comm_between(
    asking: NodeAsker,
    facts: Facts,
    ranks: Sequence[Node],
    plan: CommPlan,
    layout: tuple[int, Sequence[int]],
    say: Say = lambda _: None,
) -> list[CheckResult]:
    """Part comm.

    Args:
        asking: Reaches the nodes.
        facts: Of the machines.
        ranks: The nodes that start ranks: the machines, or single ranks of a job.
        plan: How to test.
        layout: Ranks on each machine, and ports on which the first one may listen.
        say: Told what goes on.
    """
    per_node, ports = layout
    usable = [node for node in ranks if node.address or len(ranks) == 1]
    if not usable:
        return [
            CheckResult(COMM_NOT_STARTED, "skip", "no node answered: there is no node to test.")
        ]
    crew = Crew(asking, {node.name: node for node in usable}, ports)
    variable = IFNAME[plan.backend]
    by_host = {node.where: interface_of(node, facts, variable) for node in facts.nodes}
    interfaces = {node.name: by_host.get(node.where, "") for node in usable}
    team = places_on(usable, per_node)
    return run_comm(team, replace(plan, interfaces=interfaces), crew, say)


def interface_of(node: Node, facts: Facts, variable: str) -> str:
    """Name of the interface that carries a node's address, "" if none does or it is set already."""
    settings = facts.by_name.get(node.name, {}).get("settings", {})
    for interface in facts.by_name.get(node.name, {}).get("interfaces", []):
        name = str(interface["name"])
        if interface["address"] == node.address and settings.get(variable) != name:
            return name
    return ""


def _other_addresses(nodes: Sequence[Node], facts: Mapping[str, Any]) -> dict[str, str]:
    """Per node, the address that NCCL would advertise, where it differs from the one we use."""
    found = {}
    for node in nodes:
        interface, _ = nccl_interface(facts[node.name])
        own = {i["address"] for i in facts[node.name].get("interfaces", [])}
        known = node.address if node.address in own else ""
        if interface is not None and known and interface["address"] != known:
            found[node.name] = interface["address"]
    return found


def _more_addresses(
    node: Node, facts: Mapping[str, Any], chosen: Mapping[str, str]
) -> dict[str, str]:
    """What NCCL's sockets would use besides, by address; nothing where RDMA carries the data."""
    if any(i["kind"] == "infiniband" for i in facts.get("interfaces", [])) or facts.get("rdma"):
        return {}
    known = (node.address, chosen.get(node.name))
    return {i["address"]: i["name"] for i in nccl_interfaces(facts) if i["address"] not in known}


def _taken(answers: Sequence[NodeAnswer], plan: NetPlan) -> list[CheckResult]:
    results = []
    free = set(map(str, plan.any_ports)) - set(map(str, plan.ports))
    for answer in answers:
        host = answer.node.name
        for port, error in answer.data.get("listen_errors", {}).items():
            if port in free:
                continue
            seen = f"{host}: cannot listen on port {port}: {error}."
            results.append(CheckResult(PORT_TAKEN, "fail", seen, host_subject(host)))
    return results
