"""Nodes, and asking all of them at once: through a launcher, or as ranks of a job that has begun.

One silent node stops no other: it has an answer too, which says why there is none.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from unhang.collect.gather import in_batches, match_senders
from unhang.collect.launchers import Launcher, Program
from unhang.collect.launches import Delivery, run_launches
from unhang.collect.parcel import ParcelError, safe_node, unpack
from unhang.collect.ship import Shipment, make_program
from unhang.errors import UsageError
from unhang.incoming import fit, value_of

SHIPMENT = Shipment(
    "unhang.doctor.agents.node",
    ("__init__.py", "_version.py", "activity/__init__.py", "activity/looks.py", "isolated.py",
     "model.py", "record/statement.py", "regular.py", "room.py",
     "surroundings.py",
     "telltale", "record/__init__.py", "record/contact/__init__.py",
     "record/contact/runtime_dir.py", "collect/__init__.py", "collect/parcel.py",
     "doctor/__init__.py", "doctor/agents"),
)  # fmt: skip
"""What a node imports to answer the doctor; the standard library does the rest (a test checks)."""

MAX_AT_ONCE = 1_024
MAX_ANSWER = 64 << 20


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        name: As the launcher and the report call it.
        address: Where its peers reach it; "" until known.
        host: The machine, where a node is one process of a job that has begun.
        ports: Where its ranks may listen; () for those that the user has named.
        rank, local: The rank that it is, in a job that has begun; else -1.
    """

    name: str
    address: str = ""
    host: str = ""
    ports: tuple[int, ...] = ()
    rank: int = -1
    local: int = 0

    @property
    def where(self) -> str:
        """The machine's name."""
        return self.host or self.name


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node answered: `data`, or `error` where it did not."""

    node: Node
    data: Mapping[str, Any]
    error: str = ""


class NodeAsker(Protocol):
    """A way to make nodes look at themselves."""

    def ask(
        self,
        nodes: Sequence[Node],
        agent: str,
        orders: Mapping[str, Any],
        timeout_s: float,
        common: Mapping[str, Any] | None = None,
    ) -> list[NodeAnswer]:
        """Run an agent on all nodes at the same time.

        Args:
            nodes: Where.
            agent: Name of the agent.
            orders: What each receives, by node name; {} where missing.
            timeout_s: After that a node counts as silent.
            common: What all of them receive.
        """


@dataclass(frozen=True, slots=True)
class _Question:
    """The arguments of `ask` but the nodes."""

    agent: str
    orders: Mapping[str, Any]
    common: Mapping[str, Any]
    timeout_s: float


@dataclass(slots=True)
class Launched:
    """Nodes that a launcher reaches, as `unhang collect` does.

    Attributes:
        python, ship: As `make_program` takes them.
        own: What each node calls itself, learnt from its first answer.
    """

    launcher: Launcher
    python: str = ""
    ship: bool = True
    own: dict[str, str] = field(default_factory=dict)

    def ask(
        self,
        nodes: Sequence[Node],
        agent: str,
        orders: Mapping[str, Any],
        timeout_s: float,
        common: Mapping[str, Any] | None = None,
    ) -> list[NodeAnswer]:
        """As `NodeAsker` has it; nodes of a failed batch are asked alone if they need not meet."""
        question = _Question(agent, orders, common or {}, timeout_s)
        found = self._ask_batches(nodes, self.launcher.at_once, question)
        silent = [node for node in nodes if found[node.name].error]
        if silent and not orders and self.launcher.at_once > 1:
            found |= self._ask_batches(silent, 1, question)
        return [found[node.name] for node in nodes]

    def _ask_batches(
        self, nodes: Sequence[Node], size: int, question: _Question
    ) -> dict[str, NodeAnswer]:
        known = {node.name: node for node in nodes}
        batches = in_batches(list(known), size)
        if len(batches) > MAX_AT_ONCE:
            raise UsageError(
                f"{len(batches):,} nodes cannot be asked at once", f"At most {MAX_AT_ONCE:,}."
            )
        run = f"doctor-{secrets.token_hex(4)}"

        def program_of(names: tuple[str, ...], run: str) -> Program:
            orders = question.orders
            per = {self._own(name): orders[name] for name in names if name in orders}
            told = {"agent": question.agent, "run": run, "common": question.common, "per": per,
                    **self.launcher.orders(names[0])}  # fmt: skip
            return make_program(told, self.python, ship=self.ship, shipment=SHIPMENT)

        found: dict[str, NodeAnswer] = {}
        for names, delivery in run_launches(
            self.launcher, batches, run, program_of, question.timeout_s, at_once=len(batches)
        ):
            senders = match_senders(names, [*delivery.parcels, *delivery.broken])
            self.own |= senders
            found |= {n: _answer(known[n], senders.get(n, ""), delivery) for n in names}
        return found

    def _own(self, name: str) -> str:
        told = self.launcher.orders(name).get("node")
        return safe_node(str(told)) if told else self.own.get(name, safe_node(name))


def _answer(node: Node, own: str, delivery: Delivery) -> NodeAnswer:
    parcel = delivery.parcels.get(own)
    if parcel is None:
        why = delivery.broken.get(own) or delivery.error or "no answer"
        return NodeAnswer(node, {}, why)
    try:
        with parcel.open("rb") as file:
            _, part = unpack(file, parcel.parent)
    except (ParcelError, OSError) as error:
        return NodeAnswer(node, {}, f"its answer is unusable: {error}")
    return answer_of(node, part)


def answer_of(node: Node, text: bytes | str) -> NodeAnswer:
    """What a node sent as JSON; an answer that says that it failed is an error."""
    try:
        data = fit(value_of(text[:MAX_ANSWER]), dict[str, Any])
    except ValueError as error:
        return NodeAnswer(node, {}, f"its answer is unusable: {error}")
    failed = str(data.get("failed", ""))[:300]
    return NodeAnswer(node, {} if failed else data, failed)


def split_addresses(text: str) -> tuple[str, dict[str, str]]:
    """Take "node01=10.0.0.1,node02" apart: "node01,node02" and the addresses that were given.

    Raises:
        UsageError: An address is none.
    """
    names, addresses = [], {}
    for word in text.split(","):
        name, equals, address = word.partition("=")
        names.append(name)
        if equals:
            try:
                addresses[name.strip()] = str(ipaddress.ip_address(address.strip()))
            except ValueError as error:
                raise UsageError(
                    f"{word[:100]!r} names no address", "For example: --hosts node01=10.0.0.1"
                ) from error
    return ",".join(names), addresses


def address_of(name: str, facts: Mapping[str, Any]) -> str:
    """Where peers most likely reach a node that has no given address; "" where unknown.

    Its name where that is an address; what its own name resolves to, if that is an address of its
    own that others can use; else the first interface of a kind that leaves the machine.
    """
    try:
        return str(ipaddress.ip_address(name.rpartition("@")[2].strip("[]")))
    except ValueError:
        pass
    usable = [
        interface["address"]
        for interface in facts.get("interfaces", [])
        if interface["up"] and interface["address"] and interface["kind"] not in _INSIDE
        and not ipaddress.ip_address(interface["address"]).is_link_local
    ]  # fmt: skip
    named = [a for a in facts.get("own_name", {}).get("addresses", []) if a in usable]
    return next(iter([*named, *usable]), "")


_INSIDE = ("loopback", "bridge")
