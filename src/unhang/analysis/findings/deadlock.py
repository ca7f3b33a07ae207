"""Findings about circles: ranks that wait for each other, so that none of them can go on.

The circle is told as a loop, "rank a waits in X for rank b, which waits in Y for rank a", with both
call sites. No single rank is blamed.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from unhang.analysis.matching.roots import Root
from unhang.analysis.matching.wait_graph import Edge
from unhang.analysis.situation import Situation
from unhang.analysis.words import ACTIONS, ALTERNATIVES, subject
from unhang.report import Finding, Wait
from unhang.wording import count_of

__all__ = ["explain_cycle"]


def explain_cycle(situation: Situation, root: Root) -> Finding:
    """Explain ranks that wait for each other in a circle."""
    loop = _shortest_loop(situation, root)
    nodes = np.r_[np.asarray(root.ranks), situation.graph.n_ranks + np.asarray(root.waiting_calls)]
    distance = situation.graph.reaching(nodes.astype(np.int64))
    ranks = situation.named(root.ranks)
    collective = any(
        waiting_call < situation.heads.n_collective for waiting_call in root.waiting_calls
    )
    code = "UH301" if collective else "UH303"
    waiting_call = root.waiting_calls[0]
    told = "; ".join(f"rank {w.waiter} waits in {w.call} for rank {w.target}" for w in loop[:4])
    rows = situation.heads.row[np.asarray(root.ranks, np.int64)]
    return Finding(
        id="",
        code=code,
        role="cause",
        confidence="high" if _certain(situation, root) else "medium",
        summary=f"{subject(ranks)} wait for each other in a circle: {told}.",
        victims=tuple(sorted({*ranks, *situation.victims(distance)})),
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call),
        calls=situation.sides_by_row(rows, "victim"),
        waits=loop,
        sites=situation.book.sites_of_rows(rows, "victim"),
        evidence=(
            f"{count_of(len(root.waiting_calls), 'call')} of {_groups(situation, root)} wait for each other.",
            _order_sentence(situation, root),
        ),
        alternatives=() if _crossed(situation, root) else ALTERNATIVES[code],
        actions=ACTIONS[code],
    )


def _groups(situation: Situation, root: Root) -> str:
    return count_of(
        len({int(situation.heads.channel[waiting_call]) for waiting_call in root.waiting_calls}),
        "group",
    )


def _crossed(situation: Situation, root: Root) -> bool:
    """Whether every rank of the circle has the other call queued behind its head."""
    blame = situation.graph.blame
    inside = np.isin(blame.waiting_call, root.waiting_calls) & np.isin(blame.rank, root.ranks)
    return bool(inside.any() and (blame.kind[inside] == Edge.QUEUED).all())


def _order_sentence(situation: Situation, root: Root) -> str:
    if _crossed(situation, root):
        return "Each side has queued the other's call behind its own: the order is crossed."
    return "Each side is in its own call and has not made the other's yet."


def _certain(situation: Situation, root: Root) -> bool:
    blame = situation.graph.blame
    inside = np.isin(blame.waiting_call, root.waiting_calls) & np.isin(blame.rank, root.ranks)
    sure = bool((blame.known[inside] >= 3).all())  # noqa: PLR2004 - Known.SURE
    return sure and not any(
        situation.group(waiting_call).inferred for waiting_call in root.waiting_calls
    )


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
