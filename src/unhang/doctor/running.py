"""Ask the nodes and judge the answers: what `unhang doctor` does, without any printing."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.doctor.env import check_env
from unhang.doctor.gpu import check_gpus, check_kernel_log
from unhang.doctor.net import check_interfaces, check_matrix, nccl_interface
from unhang.doctor.nodes import Answer, Node, ask
from unhang.doctor.results import Result
from unhang.report import Subject

__all__ = ["NetPlan", "ask_facts", "now_ns", "run_env", "run_gpu", "run_net", "silent"]

ASK_S = 30.0
START_S = 20.0
MAX_FULL_MATRIX = 64
"""Nodes up to which throughput is measured as well: it is a quadratic number of streams."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NetPlan:
    """Which ports are tried, and for how long in seconds."""

    ports: tuple[int, ...] = (29500, 29501, 29502)
    seconds: float = 12.0
    size: int = 4 << 20


def ask_facts(nodes: Sequence[Node], timeout_s: float = ASK_S) -> list[Answer]:
    """What each node says of itself."""
    return ask(nodes, "facts", {}, timeout_s)


def silent(answers: Sequence[Answer]) -> list[Result]:
    """A result for each node that did not answer."""
    return [
        Result(
            "UH827",
            "fail",
            f"{answer.node.name} did not answer: {answer.error}.",
            (Subject("host", answer.node.name, host=answer.node.name),),
        )
        for answer in answers
        if answer.error
    ]


def run_env(answers: Sequence[Answer], asked_ns: int) -> list[Result]:
    """Part env over the facts of all nodes that answered."""
    return check_env({a.node.name: a.data for a in answers if not a.error}, asked_ns)


def run_gpu(answers: Sequence[Answer]) -> list[Result]:
    """Part gpu: the GPUs of all nodes that answered, and what their kernels logged."""
    nodes = [a.node for a in answers if not a.error]
    facts = {a.node.name: a.data for a in answers if not a.error}
    found = ask(nodes, "gpu", {}, ASK_S)
    return [*silent(found), *check_gpus(found), *check_kernel_log(facts)]


def run_net(answers: Sequence[Answer], plan: NetPlan, say: Say = lambda _: None) -> list[Result]:
    """Part net: interfaces of all nodes, then the full matrix of connections between them."""
    facts = {a.node.name: a.data for a in answers if not a.error}
    results = check_interfaces(facts)
    nodes = [a.node for a in answers if not a.error]
    if len(nodes) <= 1:
        return [*results, Result("UH823", "skip", "one node has nobody to connect to.")]
    say(f"connecting {len(nodes)} nodes with each other on {len(plan.ports)} ports")
    chosen = _other_addresses(nodes, facts)
    orders = _orders(nodes, chosen, plan)
    answers = ask(nodes, "net", orders, plan.seconds + START_S)
    heard = {a.node.name: a.data.get("rows", []) for a in answers if not a.error}
    results += silent(answers)
    results += _taken(answers)
    return results + check_matrix(list(heard), heard, chosen)


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


def _orders(nodes: Sequence[Node], chosen: Mapping[str, str], plan: NetPlan) -> dict[str, Any]:
    peers = {
        node.name: [node.address, *([chosen[node.name]] if node.name in chosen else [])]
        for node in nodes
    }
    common = {
        "token": secrets.token_hex(8),
        "peers": peers,
        "ports": list(plan.ports),
        "seconds": plan.seconds,
        "bytes": plan.size if len(nodes) <= MAX_FULL_MATRIX else 0,
    }
    return {node.name: {**common, "me": node.name} for node in nodes}


def _taken(answers: Sequence[Answer]) -> list[Result]:
    results = []
    for answer in answers:
        host = answer.node.name
        for port, error in answer.data.get("listen_errors", {}).items():
            seen = f"{host}: port {port} cannot be listened on: {error}."
            results.append(Result("UH828", "fail", seen, (Subject("host", host, host=host),)))
    return results


def now_ns() -> int:
    """Wall clock in ns: the edge that tests replace."""
    return time.time_ns()
