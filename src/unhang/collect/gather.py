"""Collects a job's evidence from all its nodes into one case: at once, bounded, resumable.

Nodes are asked in batches by their launcher; where a batch fails, its nodes are asked one by one.
Each node that answers adds its part to the manifest as it comes, and each that does not adds why.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from unhang.bounds import MAX_RANKS, is_rank, largest_world
from unhang.casedir.manifest import (
    NodePart,
    RankPart,
    agreed_world,
    merge_manifest,
    not_found,
    write_part,
)
from unhang.collect.launchers import Launcher, Program
from unhang.collect.launches import Delivery, run_launches
from unhang.collect.parcel import ParcelError, safe_node, unpack
from unhang.collect.ship import make_program
from unhang.incoming import fitting, overlaid, value_of

_MAX_TEXT = 500
_MAX_RANKS = 4_096
_MAX_NOTES = 100
_MAX_WORDS = 32
"""Of one node; words are of one rank, and of one kind."""
_MAX_NODE = 40
"""Of a part's name, which is cut at 64: the rest is the run's."""

_LARGEST = (1 << 63) - 1
_Number = Annotated[int, Meta(ge=0, le=_LARGEST)]
_Rank = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]


@dataclass(frozen=True, slots=True)
class _Told:
    """What a node says of itself; see `unhang.collect.node.main`."""

    host: str = ""
    job: str = ""
    command: str = ""
    world_size: _Number = 0
    time_ns: _Number = 0
    timings_s: dict[str, Annotated[float, Meta(ge=0, le=_LARGEST)]] = field(default_factory=dict)
    jobs: list[Any] = field(default_factory=list)
    ranks: list[Any] = field(default_factory=list)
    not_found: list[Any] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodeJob:
    """A job with ranks on a node.

    Attributes:
        node: As the launcher knows it.
        ranks: Those that run there, ascending.
        command: Of one of them.
    """

    job: str
    node: str = ""
    ranks: tuple[_Rank, ...] = ()
    world_size: _Number = 0
    command: str = ""


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How to collect.

    Attributes:
        orders: What every node receives; see `unhang.collect.node.main`.
        run: Names this collecting run.
        python: Interpreter to try first on the nodes, or "".
        ship: Send the collector along.
        timeout_s: For one node, or one batch of nodes.
        cluster, namespace: Whose nodes they are, for the manifest; "" where that is not known.
        at_once: Most commands at a time.
    """

    orders: Mapping[str, object]
    run: str
    python: str = ""
    ship: bool = True
    timeout_s: float = 120.0
    at_once: int = 32
    cluster: str = ""
    namespace: str = ""


@dataclass(slots=True)
class Gathered:
    """What came.

    Attributes:
        whole: Nodes from which everything came.
        failed: Why nothing (whole) came from a node.
        parts: What the nodes say of each rank that they found.
        worlds: The world size that each node says that says one.
        jobs: The jobs of each node; a node of several has sent nothing else.
        notes: What the nodes say of what they could not do, and what was not taken of them.
        asked: Names of all nodes that were asked: none of them may answer as another.
    """

    whole: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    parts: dict[int, RankPart] = field(default_factory=dict)
    worlds: list[int] = field(default_factory=list)
    jobs: list[NodeJob] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    asked: frozenset[str] = frozenset()

    @property
    def are_mixed(self) -> bool:
        """Whether ranks of several jobs run there, and no job was chosen.

        Nodes may call one job by different names: then they share its size and no rank.
        """
        nodes = Counter(job.node for job in self.jobs)
        names: dict[int, set[str]] = defaultdict(set)
        for each in self.jobs:
            for rank in each.ranks:
                names[rank].add(each.job)
        apart = len({each.job for each in self.jobs}) > 1
        sizes = len({each.world_size for each in self.jobs if each.world_size})
        shared = any(len(told) > 1 for told in names.values())
        return max(nodes.values(), default=0) > 1 or (apart and (shared or sizes > 1))

    @property
    def world_size(self) -> int:
        """As most nodes say; 0 where none does."""
        return agreed_world(self.worlds)

    @property
    def ranks(self) -> set[int]:
        """The ranks that were found."""
        return set(self.parts)


def gather(
    launcher: Launcher,
    nodes: Sequence[str],
    plan: GatherPlan,
    case: Path,
    progress: Callable[[str, str], None] = lambda _node, _what: None,
) -> Gathered:
    """Collect from nodes into a case.

    Args:
        launcher: How to reach them.
        nodes: Names as the launcher knows them.
        plan: How to collect.
        case: A case directory that is there.
        progress: Called with a node and "done", or why nothing came of it.

    Raises:
        OSError: The case cannot be written.
    """
    gathered = Gathered(asked=frozenset(form for node in nodes for form in _forms(node)))

    def program_of(batch: tuple[str, ...], run: str) -> Program:
        orders = {**plan.orders, "run": run, **launcher.orders(batch[0])}
        return make_program(orders, plan.python, ship=plan.ship)

    batches = in_batches(nodes, launcher.at_once)
    for single in (False, True):
        missed: list[tuple[str, str]] = []
        for batch, delivery in run_launches(
            launcher, batches, plan.run, program_of, plan.timeout_s, at_once=plan.at_once,
            within=case,
        ):  # fmt: skip
            missed += _take(batch, delivery, plan, case, gathered, progress)
            gathered.notes += _strange(batch, delivery)
        retry = [node for node, _ in missed] if launcher.at_once > 1 and not single else []
        for node, why in missed:
            if node not in retry:
                _give_up(node, why, plan, case, gathered)
                progress(node, why)
        if not retry:
            break
        batches = in_batches(retry, 1)
    merge_manifest(case)
    return gathered


def in_batches(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """The nodes as a launcher takes them, so many at a time."""
    return [tuple(nodes[i : i + size]) for i in range(0, len(nodes), max(size, 1))]


def _take(  # one step of the loop above
    batch: Sequence[str],
    delivery: Delivery,
    plan: GatherPlan,
    case: Path,
    gathered: Gathered,
    progress: Callable[[str, str], None],
) -> list[tuple[str, str]]:
    """Take in what a batch brought; returns the nodes from which nothing came, and why."""
    names = match_senders(batch, [*delivery.parcels, *delivery.broken])
    missed = []
    for node in batch:
        own = names.get(node, safe_node(node))
        parcel = delivery.parcels.get(own)
        why = delivery.broken.get(own) or delivery.error or "no answer"
        others = gathered.asked.difference(*map(_forms, batch))
        if own in others:
            why = f"it answered as {own}, which is another node"
        elif parcel is not None:
            try:
                with parcel.open("rb") as file:
                    files, part = unpack(file, case, others)
                _add_part(node, files, part, plan, case, gathered)
            except ParcelError as error:
                why = f"its answer is unusable: {error}"
            else:
                gathered.whole.append(node)
                progress(node, "done")
                continue
            finally:
                parcel.unlink(missing_ok=True)
        missed.append((node, why))
    return missed


def _strange(batch: Sequence[str], delivery: Delivery) -> list[str]:
    notes = [f"{node}: more than one answer came; unhang uses the first" for node in delivery.again]
    if delivery.passed_over:
        text = "skipped lines under further names: more names came than there are nodes"
        notes.append(f"{', '.join(batch[:3])}: {delivery.passed_over:,} {text}")
    return sorted(notes)


def _forms(node: str) -> tuple[str, str]:
    """A node's name as it calls itself, with its domain and without."""
    return safe_node(node), safe_node(node).partition(".")[0]


def match_senders(batch: Sequence[str], senders: Sequence[str]) -> dict[str, str]:
    """Which sender is which node: by name, without its domain, else the only ones left over."""
    found: dict[str, str] = {}
    left = list(senders)
    for same in (safe_node, lambda name: safe_node(name).partition(".")[0]):
        for node in batch:
            own = next((s for s in left if node not in found and same(s) == same(node)), None)
            if own is not None:
                found[node] = own
                left.remove(own)
    nameless = [node for node in batch if node not in found]
    if len(nameless) == len(left):
        found |= dict(zip(nameless, left, strict=True))
    return found


def _add_part(  # what a node sent becomes its part of the manifest
    node: str,
    files: Sequence[str],
    raw: bytes,
    plan: GatherPlan,
    case: Path,
    gathered: Gathered,
) -> None:
    told = _told(raw)
    host = told.host[:_MAX_TEXT] or node
    if safe_node(host) in gathered.asked.difference(_forms(node)):
        gathered.notes.append(f"{node}: it says that it is {host}, which is another node")
        host = node
    ranks, notes = _ranks(told, host)
    world_size = told.world_size
    if world_size > largest_world(len(ranks)):
        notes.append(f"it claims a job of {world_size:,} ranks: ignored")
        world_size = 0
    write_part(
        case,
        NodePart(
            run=_run_of(plan, node),
            host=host,
            job=told.job[:_MAX_TEXT],
            attempt=0,
            world_size=world_size,
            command=told.command[:_MAX_TEXT].split(),
            incident={
                "id": str(plan.orders.get("incident", "")),
                "reason": "collected",
                "detail": f"{len(files)} files from node {node}",
                "time_ns": told.time_ns,
            },
            ranks=[*ranks, *not_found(fitting(told.not_found[:_MAX_RANKS], _Rank), host)],
            timings_s=dict(list(told.timings_s.items())[:_MAX_WORDS]),
            notes=notes,
            node=node,
            cluster=plan.cluster,
            namespace=plan.namespace,
        ),
        merge=False,
    )
    gathered.parts |= {rank.rank: rank for rank in ranks}
    gathered.worlds += [world_size] if world_size else []
    jobs = fitting(told.jobs[:_MAX_RANKS], NodeJob)
    gathered.jobs += [replace(job, job=job.job[:_MAX_TEXT], node=node) for job in jobs]
    gathered.notes += [f"{node}: {note}" for note in notes]


def _give_up(node: str, why: str, plan: GatherPlan, case: Path, gathered: Gathered) -> None:
    gathered.failed[node] = why
    write_part(
        case,
        NodePart(
            run=_run_of(plan, node),
            host=node,
            notes=[f"nothing came from this node: {why}"],
            missed=why[:_MAX_TEXT],
            cluster=plan.cluster,
            namespace=plan.namespace,
        ),
        merge=False,
    )


def _run_of(plan: GatherPlan, node: str) -> str:
    """Names a node's part; long names that begin alike stay apart."""
    safe = safe_node(node)
    if len(safe) > _MAX_NODE:
        digest = hashlib.sha256(node.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        safe = f"{safe[: _MAX_NODE - 9]}-{digest}"
    return f"{plan.run}-{safe}"


def _told(raw: bytes) -> _Told:
    """What a node says of itself; a field of another shape is as if it were not there."""
    try:
        return overlaid(_Told(), value_of(raw or b"{}"))[0]
    except ValueError as error:
        raise ParcelError("its description of itself is no JSON") from error


def _ranks(told: _Told, host: str) -> tuple[list[RankPart], list[str]]:
    """What a node says of its ranks, and its notes; what is left out is one note more."""
    read = (overlaid(RankPart(-1, pid=0), row)[0] for row in told.ranks[:_MAX_RANKS])
    ranks = [_rank_part(row, host) for row in read if is_rank(row.rank)]
    notes = [note[:_MAX_TEXT] for note in fitting(told.notes[:_MAX_NOTES], str)]
    for what, came, kept in (("ranks", told.ranks, ranks), ("notes", told.notes, notes)):
        if len(kept) < len(came):
            notes.append(f"{len(came) - len(kept):,} {what} of it left out: too many, or no {what}")
    return ranks, notes


def _rank_part(row: RankPart, host: str) -> RankPart:
    came, missing = _words(row.came), _words(row.missing)
    return RankPart(row.rank, host, row.pid, row.state[:_MAX_TEXT], came=came, missing=missing)


def _words(told: Mapping[str, str]) -> dict[str, str]:
    return {key[:_MAX_TEXT]: word[:_MAX_TEXT] for key, word in list(told.items())[:_MAX_WORDS]}
