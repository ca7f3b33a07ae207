"""Ranks that a launcher of jobs has started (torchrun, srun, mpirun) as the doctor's nodes.

Every rank runs `unhang doctor`: the first one asks and reports, the others serve. They meet in a
TCP store at MASTER_ADDR and MASTER_PORT, which is torchrun's own where it has one. The ranks of the
test itself are children, so a rank whose test hangs still answers here, and one that does not come
here at all is named.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from unhang.collect.launchers.tools import hosts_of
from unhang.doctor.agents.node import examine
from unhang.doctor.agents.ranks import free_port
from unhang.doctor.asking.nodes import Node, NodeAnswer, answer_of
from unhang.errors import ToolError, UsageError
from unhang.incoming import fit, value_of
from unhang.rankenv import RankEnv, node_of, number_of, rank_env

PREFIX = "unhang-doctor"
POLL_S = 0.1
LONGEST_S = 7_200.0
PORTS_EACH = 2
DEFAULT_PORT = 29_500
LEAVE_S = 10.0


@dataclass(frozen=True, slots=True)
class Seat:
    """This process's place in a job that has begun.

    Attributes:
        serves: Whether it is the one that holds the store: rank 0, where the launcher has none.
    """

    rank: int
    size: int
    local: int
    address: str
    port: int
    serves: bool


@dataclass(frozen=True, slots=True)
class _Hello:
    """What a rank says of itself when it comes."""

    address: str
    host: str
    ports: tuple[int, ...]
    local: int


@dataclass(frozen=True, slots=True)
class _Order:
    """What the first rank asks for: an agent, and what each rank gets for it."""

    over: bool = False
    agent: str = ""
    per: dict[str, Any] = field(default_factory=dict)


def seat_of(environ: Mapping[str, str]) -> Seat | None:
    """The place that a launcher gave this process; None outside of any, or in a job of one.

    Raises:
        UsageError: The ranks could not find each other: MASTER_ADDR is needed.
    """
    told = rank_env(environ, least_world=2)
    if told is None:
        return None
    agent = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    port = number_of(environ.get("MASTER_PORT"))
    return Seat(
        told.rank,
        told.world_size,
        max(told.local_rank, 0),
        environ.get("MASTER_ADDR") or _first_host(environ, told),
        port if port > 0 else DEFAULT_PORT,
        serves=told.rank == 0 and not agent,
    )


def _first_host(environ: Mapping[str, str], told: RankEnv) -> str:
    """Where rank 0 is, from the launcher's own variables.

    SLURM's nodes are those of the ranks only where its step's tasks are: under `mpirun` they are
    its daemons, which the first node does without.
    """
    if number_of(environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")) == told.world_size:
        return "127.0.0.1"
    nodes = environ.get("SLURM_STEP_NODELIST", "")
    if nodes and told.in_step:
        alone = number_of(environ.get("SLURM_STEP_NUM_NODES")) == 1
        return "127.0.0.1" if alone else hosts_of(nodes)[0]
    raise UsageError(
        "this is one rank of several, and MASTER_ADDR does not say where rank 0 is",
        "Export MASTER_ADDR=HOST to all ranks (mpirun -x MASTER_ADDR), or unset RANK, WORLD_SIZE "
        "and the like to test this node alone.",
    )


@dataclass(slots=True)
class Joined:
    """The ranks of a job as nodes; only the first one has this.

    Attributes:
        nodes: One a rank that came.
        absent: Ranks that did not come in time.
    """

    store: Any
    seat: Seat
    nodes: list[Node]
    absent: list[int]
    _count: int = 0

    def ask(
        self,
        nodes: Sequence[Node],
        agent: str,
        orders: Mapping[str, Any],
        timeout_s: float,
        common: Mapping[str, Any] | None = None,
    ) -> list[NodeAnswer]:
        """As `NodeAsker` has it."""
        self._count += 1
        per = {str(n.rank): {**(common or {}), **orders.get(n.name, {})} for n in nodes}
        self.store.set(f"{PREFIX}/order/{self._count}", json.dumps({"agent": agent, "per": per}))
        with ThreadPoolExecutor(1) as pool:
            own = pool.submit(_part, agent, per, self.seat.rank)
            wanted = {node.rank for node in nodes} - {self.seat.rank}
            heard = self._hear({rank: f"answer/{self._count}/{rank}" for rank in wanted}, timeout_s)
            heard[self.seat.rank] = own.result() or ""
        why = f"no answer in {timeout_s:.0f} s"
        return [
            answer_of(node, heard[node.rank]) if heard.get(node.rank) else NodeAnswer(node, {}, why)
            for node in nodes
        ]  # fmt: skip

    def _hear(self, keys: Mapping[int, str], timeout_s: float) -> dict[int, str]:
        return _wait_for(self.store, keys, timeout_s)

    def close(self) -> None:
        """Let the others go; the store stays until they have."""
        self.store.set(f"{PREFIX}/order/{self._count + 1}", json.dumps({"over": True}))
        others = [node.rank for node in self.nodes if node.rank != self.seat.rank]
        self._hear({rank: f"left/{rank}" for rank in others}, LEAVE_S)


def expected_hosts(
    environ: Mapping[str, str], nodes: Sequence[Node], absent: Sequence[int]
) -> dict[int, str]:
    """Machines on which absent ranks should be, as far as those that came bear it out.

    From SLURM's list of nodes and tasks (in blocks, as it spreads them by default), and from ranks
    that torchrun puts on one machine. A rule that any rank contradicts says nothing.
    """
    came = {node.rank: node.where for node in nodes}
    found: dict[int, str] = {}
    for rule in (_slurm_blocks(environ), _torchrun_blocks(environ, came)):
        if came and all(rule.get(rank, host) == host for rank, host in came.items()):
            found |= {rank: rule[rank] for rank in absent if rank in rule}
    return found


def _slurm_blocks(environ: Mapping[str, str]) -> dict[int, str]:
    counts: list[int] = []
    for word in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        shape = re.fullmatch(r"(\d{1,5})(?:\(x(\d{1,5})\))?", word)
        counts += [int(shape[1])] * int(shape[2] or 1) if shape else []
    nodes = environ.get("SLURM_STEP_NODELIST", "")
    hosts = hosts_of(nodes) if counts and nodes else []
    if len(hosts) != len(counts):
        return {}
    return dict(enumerate(h for h, count in zip(hosts, counts, strict=True) for _ in range(count)))


def _torchrun_blocks(environ: Mapping[str, str], came: Mapping[int, str]) -> dict[int, str]:
    size = number_of(environ.get("LOCAL_WORLD_SIZE"))
    if size < 1 or "TORCHELASTIC_RUN_ID" not in environ:
        return {}
    first = {rank // size: host for rank, host in sorted(came.items(), reverse=True)}
    return {g * size + local: host for g, host in first.items() for local in range(size)}


def one_per_machine(nodes: Sequence[Node]) -> list[Node]:
    """The first rank of each machine, which speaks for it, under the machine's name."""
    first: dict[str, Node] = {}
    for node in nodes:
        first.setdefault(node.where, node)
    return [replace(node, name=host) for host, node in first.items()]


def _wait_for(store: Any, keys: Mapping[int, str], timeout_s: float) -> dict[int, str]:  # noqa: ANN401 - torch is imported late
    """The values that came, by rank."""
    end = time.monotonic() + timeout_s
    heard: dict[int, str] = {}
    while len(heard) < len(keys):
        for rank, key in keys.items():
            if rank not in heard and store.check([f"{PREFIX}/{key}"]):
                heard[rank] = store.get(f"{PREFIX}/{key}").decode("utf-8", "replace")
        if time.monotonic() > end:
            break
        time.sleep(POLL_S)
    return heard


def _part(agent: str, per: Mapping[str, Any], rank: int) -> str:
    """This rank's answer, "" if it is not asked."""
    order = per.get(str(rank))
    return "" if order is None else json.dumps(examine(agent, order), default=str)


def take_seat(seat: Seat, start_s: float) -> Joined | None:
    """Meet the other ranks; the first one gets them all, the others serve it and get None.

    Raises:
        ToolError: torch is not installed, or the first rank cannot be reached or went away.
    """
    try:
        import torch.distributed as dist
    except ImportError as error:
        hint = "Run it with the job's own Python, which has torch."
        raise ToolError("joining a job needs torch, which is not installed here", hint) from error
    place = f"{seat.address}:{seat.port}"
    try:
        store = dist.TCPStore(
            seat.address, seat.port, seat.size, seat.serves, timedelta(seconds=start_s),
            wait_for_workers=False,
        )  # fmt: skip
        store.set(f"{PREFIX}/hello/{seat.rank}", json.dumps(_hello(seat)))
        if seat.rank == 0:
            return _first(store, seat, start_s)
        _serve(store, seat)
    except (RuntimeError, OSError) as error:  # torch's DistError is the former
        host = socket.gethostname()
        raise ToolError(
            f"rank {seat.rank} on {host} lost or never reached rank 0's store at {place}: "
            f"{str(error).splitlines()[0][:200]}",
            "Check MASTER_ADDR and MASTER_PORT there: unhang doctor net",
        ) from error
    return None


def _hello(seat: Seat) -> dict[str, Any]:
    address = seat.address
    if seat.rank:
        with socket.create_connection((seat.address, seat.port), timeout=10) as probe:
            address = probe.getsockname()[0]
    ports = {free_port() for _ in range(PORTS_EACH)}
    return {"host": node_of(os.environ) or socket.gethostname(),
            "local": seat.local, "address": address, "ports": sorted(ports)}  # fmt: skip


def _first(store: Any, seat: Seat, start_s: float) -> Joined:  # noqa: ANN401 - torch is imported late
    heard = _wait_for(store, {rank: f"hello/{rank}" for rank in range(seat.size)}, start_s)
    nodes = []
    for rank, text in sorted(heard.items()):
        with suppress(ValueError):  # what is no greeting is of a rank that did not come
            said = fit(value_of(text), _Hello)
            nodes.append(
                Node(f"rank {rank}", said.address, said.host, said.ports[:PORTS_EACH],
                     rank, said.local)
            )  # fmt: skip
    came = {node.rank for node in nodes}
    return Joined(store, seat, nodes, [r for r in range(seat.size) if r not in came])


def _order_of(data: bytes) -> _Order:
    try:
        return fit(value_of(data), _Order)
    except ValueError as error:
        raise ToolError(
            "what rank 0 asks for cannot be read", "Use the same version of unhang on all ranks."
        ) from error


def _serve(store: Any, seat: Seat) -> None:  # noqa: ANN401 - torch is imported late
    """Do what the first rank asks for until it says that it is over."""
    number = 1
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        if not store.check([f"{PREFIX}/order/{number}"]):
            time.sleep(POLL_S)
            continue
        order = _order_of(store.get(f"{PREFIX}/order/{number}"))
        if order.over:
            store.set(f"{PREFIX}/left/{seat.rank}", "1")
            return
        answer = _part(order.agent, order.per, seat.rank)
        if answer:
            store.set(f"{PREFIX}/answer/{number}/{seat.rank}", answer)
        number += 1
