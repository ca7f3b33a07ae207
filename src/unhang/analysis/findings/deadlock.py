"""Claims about circles: ranks that wait for each other, so that none of them can go on.

The circle is told as a loop, "rank a waits in X for rank b, which waits in Y for rank a", with both
call sites. No single rank is blamed.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
from msgspec import Struct

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.matching.roots import Root
from unhang.analysis.matching.wait_graph import Edge, Edges
from unhang.analysis.situation import Situation
from unhang.analysis.state.progress import Known
from unhang.kinds import P2P_CYCLE, WAIT_CYCLE
from unhang.report import Wait

__all__ = ["Circle", "explain_cycle"]


class Circle(Struct, frozen=True):
    """Ranks that wait for each other; the loop itself is in the claim's waits.

    Attributes:
        n_calls, n_groups: How many calls of how many groups are in it.
        crossed: Every rank has the other call queued behind its own.
    """

    ranks: tuple[int, ...]
    n_calls: int
    n_groups: int
    crossed: bool


def explain_cycle(situation: Situation, root: Root) -> Claim:
    """Explain ranks that wait for each other in a circle."""
    nodes = np.r_[np.asarray(root.ranks), situation.graph.n_ranks + np.asarray(root.waiting_calls)]
    distance = situation.graph.reaching(nodes.astype(np.int64))
    ranks, call = situation.named(root.ranks), root.waiting_calls[0]
    collective = any(each < situation.heads.n_collective for each in root.waiting_calls)
    rows = situation.heads.row[np.asarray(root.ranks, np.int64)]
    return Claim(
        kind=WAIT_CYCLE if collective else P2P_CYCLE,
        about=_circle(situation, root),
        victims=tuple(sorted({*ranks, *situation.victims(distance)})),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=situation.sides_by_row(rows, "victim"),
        waits=_shortest_loop(situation, root),
        sites=situation.book.sites_of_rows(rows, "victim"),
        doubts=tuple(_doubts(situation, root)),
    )


def _circle(situation: Situation, root: Root) -> Circle:
    kinds = _inside(situation, root).kind
    return Circle(
        ranks=situation.named(root.ranks),
        n_calls=len(root.waiting_calls),
        n_groups=len({int(situation.heads.channel[call]) for call in root.waiting_calls}),
        crossed=bool(len(kinds) and (kinds == Edge.QUEUED).all()),
    )


def _inside(situation: Situation, root: Root) -> Edges:
    """The edges from calls to ranks inside a circle."""
    blame = situation.graph.blame
    inside = np.isin(blame.waiting_call, root.waiting_calls) & np.isin(blame.rank, root.ranks)
    return blame.chosen(inside)


def _doubts(situation: Situation, root: Root) -> list[Doubt]:
    sure = bool((_inside(situation, root).known >= Known.SURE).all())
    inferred = any(situation.group(call).inferred for call in root.waiting_calls)
    return [
        *(() if sure else (Doubt.COUNT_UNSURE,)),
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
