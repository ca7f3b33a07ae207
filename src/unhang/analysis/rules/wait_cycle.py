"""Ranks that wait for each other in a circle, so that none of them can go on.

The report shows a loop, "rank a waits in X for rank b, which waits in Y for rank a", with both
call sites. No single rank is blamed, unless one alone is in every loop: among those who keep the
same order there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import rustworkx as rx
from msgspec import Struct

from unhang.analysis.matching.roots import Root
from unhang.analysis.matching.wait_graph import Edge, Edges
from unhang.analysis.rules.p2p_unmatched import P2P_UNMATCHED
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.progress import Known
from unhang.kinds import Kind, Trait
from unhang.report import Wait
from unhang.wording import count_of

WAIT_CYCLE: Final = Kind(
    "UH301",
    "wait-cycle",
    "deadlock",
    "Groups entered in crossed order: a deadlock among ranks.",
    traits=Trait.OF_NOW,
    alternatives=("One side may have skipped the call in which the other waits, not swapped it.",),
    actions=(
        "Issue calls of different groups in one order on all ranks.",
        "Where groups overlap on a GPU, do not leave calls of both in flight at once.",
    ),
)
P2P_CYCLE: Final = Kind(
    "UH303",
    "p2p-cycle",
    "deadlock",
    "Sends and receives wait for each other in a circle.",
    traits=Trait.OF_NOW,
    actions=(
        "Let one side of each pair send first, or use batch_isend_irecv for both directions.",
    ),
)

_MOST_WAITS = 4
_MOST_TRIED = 32
_MOST_SHOWN = 4
_THREADS = (
    "Communicators are in flight at once on one device ({groups}): if threads of the program race "
    "for it, their order is random."
)
_HOST_ORDER = (
    "NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 and later) or CUDA_DEVICE_MAX_CONNECTIONS=1 launch in "
    "the order of the host: this helps once that order is the same on all ranks. Where several "
    "threads make calls, NCCL_LAUNCH_RACE_FATAL=1 reports it."
)


class Circle(Struct, frozen=True):
    """Ranks that wait for each other; the loop itself is in the claim's waits.

    Attributes:
        n_calls, n_groups: How many calls of how many groups are in it.
        crossed: Every rank has the other call queued behind its own.
        breaking: The one rank without which no rank would wait in a circle; empty where there are
            several such, or none.
        at_once: Groups whose devices have calls in flight at once, in crossed order.
    """

    ranks: tuple[int, ...]
    n_calls: int
    n_groups: int
    crossed: bool
    breaking: tuple[int, ...] = ()
    at_once: tuple[str, ...] = ()


def explain_cycle(situation: Situation, root: Root) -> Claim:
    """Explain ranks that wait for each other in a circle."""
    nodes = np.r_[np.asarray(root.ranks), situation.graph.n_ranks + np.asarray(root.waiting_calls)]
    distance = situation.graph.reaching(nodes.astype(np.int64))
    ranks, broken = situation.named(root.ranks), _breaking(situation, root)
    about, call = _circle(situation, root, broken), _call_of(situation, root, broken)
    collective = any(each < situation.heads.n_collective for each in root.waiting_calls)
    rows = situation.heads.row[np.asarray(root.ranks, np.int64)]
    return Claim(
        kind=WAIT_CYCLE if collective else P2P_CYCLE,
        about=about,
        culprits=about.breaking,
        victims=tuple(sorted({*ranks, *situation.victims(distance)} - set(about.breaking))),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=situation.sides_by_row(rows, "victim"),
        waits=_shortest_loop(situation, root),
        sites=situation.book.sites_of_rows(rows, "victim"),
        doubts=tuple(_doubts(situation, root, breaking=bool(about.breaking))),
    )


def _call_of(situation: Situation, root: Root, broken: Sequence[int]) -> int:
    """The first call of a circle in which others wait for the rank that breaks it, if one does."""
    inside = _inside(situation, root)
    for_it = set(inside.waiting_call[np.isin(inside.rank, broken)].tolist())
    return next((each for each in root.waiting_calls if each in for_it), root.waiting_calls[0])


def _circle(situation: Situation, root: Root, broken: Sequence[int]) -> Circle:
    kinds = _inside(situation, root).kind
    crossed = bool(len(kinds) and (kinds == Edge.QUEUED).all())
    return Circle(
        ranks=situation.named(root.ranks),
        n_calls=len(root.waiting_calls),
        n_groups=len({int(situation.heads.channel[call]) for call in root.waiting_calls}),
        crossed=crossed,
        breaking=situation.named(broken),
        at_once=_at_once(situation, root) if crossed else (),
    )


def _at_once(situation: Situation, root: Root) -> tuple[str, ...]:
    """Groups with a call queued on some rank's device behind one of another group of the circle."""
    edges, heads, evidence = _inside(situation, root), situation.heads, situation.evidence
    queued = edges.chosen(edges.kind == Edge.QUEUED)
    rows: Ints = heads.row[queued.rank]
    launched = evidence.truthful[evidence.names.backend]
    own, other = evidence.channel(rows), heads.channel[queued.waiting_call]
    both = launched[evidence.case.calls.name[rows]] & (own != other)
    groups = {evidence.group_of(int(each)) for each in np.r_[own[both], other[both]]}
    labels = (evidence.case.groups[group].label for group in sorted(groups))
    return tuple(dict.fromkeys(labels))[:_MOST_SHOWN]


def _breaking(situation: Situation, root: Root) -> list[int]:
    """The rank (index) that is in every loop of a circle; none unless it is the only one.

    Ranks that keep one order cannot wait for each other in a loop, so a rank that left that order
    is in each of them.
    """
    if len(root.ranks) > _MOST_TRIED:
        return []
    graph = situation.graph
    nodes = {*root.ranks, *(graph.n_ranks + call for call in root.waiting_calls)}
    ways = [
        (source, target)
        for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True)
        if source in nodes and target in nodes
    ]
    in_all = [rank for rank in root.ranks if not _loops(ways, rank)]
    return in_all if len(in_all) == 1 else []


def _loops(ways: Sequence[tuple[int, int]], without: int) -> bool:
    """Whether there is a loop that does not pass a node."""
    left = [way for way in ways if without not in way]
    numbers = {node: at for at, node in enumerate(sorted({node for way in left for node in way}))}
    network = rx.PyDiGraph()
    network.add_nodes_from(list(numbers))
    network.extend_from_edge_list([(numbers[a], numbers[b]) for a, b in left])
    return not rx.is_directed_acyclic_graph(network)


def _inside(situation: Situation, root: Root) -> Edges:
    """The edges from calls to ranks inside a circle."""
    blame = situation.graph.blame
    inside = np.isin(blame.waiting_call, root.waiting_calls) & np.isin(blame.rank, root.ranks)
    return blame.chosen(inside)


def _doubts(situation: Situation, root: Root, *, breaking: bool) -> list[Doubt]:
    sure = bool((_inside(situation, root).known >= Known.SURE).all())
    inferred = any(situation.group(call).inferred for call in root.waiting_calls)
    return [
        *(() if sure else (Doubt.COUNT_UNSURE,)),
        *((Doubt.BY_ORDER,) if breaking else ()),
        *((Doubt.MEMBERS_INFERRED,) if inferred else ()),
    ]


def _shortest_loop(situation: Situation, root: Root) -> tuple[Wait, ...]:
    """A shortest way from the lowest rank of the circle back to itself."""
    graph = situation.graph
    inside = np.zeros(graph.n_nodes, np.bool_)
    inside[np.asarray(root.ranks, np.int64)] = True
    inside[graph.n_ranks + np.asarray(root.waiting_calls, np.int64)] = True
    kept = inside[graph.source] & inside[graph.target]
    ways: dict[int, list[int]] = {}
    for source, target in zip(
        graph.source[kept].tolist(), graph.target[kept].tolist(), strict=True
    ):
        ways.setdefault(source, []).append(target)
    path = _way_back(ways, min(root.ranks))
    ranks = [node for node in path if node < graph.n_ranks]
    numbers = situation.evidence.ranks.numbers
    return tuple(
        Wait(
            int(numbers[a]), int(numbers[b]), situation.label(int(situation.heads.waiting_call[a]))
        )
        for a, b in pairwise(ranks)
    )


def _way_back(ways: dict[int, list[int]], start: int) -> list[int]:
    """Nodes of a shortest loop through `start`, which stands at both ends."""
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in sorted(ways.get(node, ())):
            if target == start:
                path = [start, node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if target not in came_from:
                came_from[target] = node
                queue.append(target)
    return [start]


@words_for(Circle)
def _verdict_of_circle(about: Circle, claim: Claim) -> Words:
    loop = "; ".join(
        f"rank {wait.waiter} waits in {wait.call} for rank {wait.target}"
        for wait in claim.waits[:_MOST_WAITS]
    )
    order = (
        "Each side has queued the other's call behind its own: their orders are crossed."
        if about.crossed
        else "Each side is in its own call and has not made the other's yet."
    )
    calls, groups = count_of(about.n_calls, "call"), count_of(about.n_groups, "group")
    alone = f" {subject(about.breaking)} alone is in every loop." if about.breaking else ""
    why = ("The other ranks keep an order that makes no circle.",)
    races = (_THREADS.format(groups=", ".join(about.at_once)),) if about.at_once else ()
    skipped = () if about.crossed else claim.kind.alternatives
    return Words(
        f"{subject(about.ranks)} wait for each other in a circle: {loop}.{alone}",
        (order, *(why if about.breaking else ()), f"{calls} of {groups} wait for each other."),
        alternatives=(*skipped, *races),
        actions=(*_remedies(about, claim), *((_HOST_ORDER,) if about.at_once else ())),
    )


def _remedies(about: Circle, claim: Claim) -> tuple[str, ...]:
    """In one group no order can be crossed: a send or receive meets a call of all members there."""
    in_one = claim.kind is WAIT_CYCLE and about.n_groups == 1
    return P2P_UNMATCHED.actions if in_one else claim.kind.actions
