"""Roots: where the chains of waiting end. All other ranks wait, directly or not, for one of them.

A sink of the wait-for graph is a rank that waits for no other rank (it is the reason), a call in
which all members are and that still does not move, or a circle of ranks that wait for each other.
Roots are facts of the graph; naming and explaining them is left to the findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import rustworkx as rx
from msgspec import Struct

from unhang.analysis.matching.wait_graph import Edge, Edges, Graph, ranges
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.heads import Heads
from unhang.spans import distinct


class Root(Struct, frozen=True):
    """One end of waiting.

    Attributes:
        kind: "ranks" (they wait for no other rank), "call" (all members are in it), "cycle".
        ranks: Indices of ranks that make it up; for a call, those whose head it is.
        waiting_calls: What the ranks keep waiting; the call itself, or those that meet; or the
            calls of the circle.
        edge: Why the others wait for the ranks; meaningful for kind "ranks".
        known: How well that is known (`Known`), the least of all its edges.
    """

    kind: Literal["ranks", "call", "cycle"]
    ranks: tuple[int, ...]
    waiting_calls: tuple[int, ...]
    edge: int = Edge.HEAD
    known: int = 0


def find_roots(
    graph: Graph, heads: Heads, more_order: Callable[[Edges], Iterable[tuple[int, int]]]
) -> list[Root]:
    """Find all ends of waiting.

    Args:
        graph: Who waits for whom.
        heads: Who is in which waiting call.
        more_order: Of calls that a rank lacks: (later, earlier), where ranks of its role show it.
    """
    outgoing = np.bincount(graph.source, minlength=graph.n_nodes)
    incoming = np.bincount(graph.target, minlength=graph.n_nodes)
    ends = np.flatnonzero((outgoing == 0) & (incoming > 0))
    ranks, waiting_calls = ends[ends < graph.n_ranks], ends[ends >= graph.n_ranks] - graph.n_ranks
    return [
        *_rank_roots(graph, heads, ranks, more_order),
        *(
            Root("call", tuple(heads.inside(waiting_call).tolist()), (waiting_call,))
            for waiting_call in waiting_calls.tolist()
        ),
        *_cycles(graph, heads),
    ]


def _rank_roots(
    graph: Graph,
    heads: Heads,
    ends: Ints,
    more_order: Callable[[Edges], Iterable[tuple[int, int]]],
) -> list[Root]:
    """Ranks that wait for no rank, grouped by the call that they lack first.

    Where the order of the calls that a rank lacks is not known, it is the one in which most wait.
    """
    blame = graph.blame.chosen(np.isin(graph.blame.rank, ends))
    waiting = np.bincount(heads.waiting_call[heads.waiting_call >= 0], minlength=max(len(heads), 1))
    order = np.lexsort(
        (
            heads.seq[blame.waiting_call],
            -waiting[blame.waiting_call],
            _is_later(graph, heads, blame, more_order(blame)),
            blame.kind,
            blame.rank,
        )
    )
    first = (
        order[np.flatnonzero(np.r_[True, np.diff(blame.rank[order]) != 0])] if len(order) else order
    )
    together: dict[tuple[int, int], list[int]] = defaultdict(list)
    for edge in first.tolist():
        together[int(blame.waiting_call[edge]), int(blame.kind[edge])].append(edge)
    return [
        Root(
            "ranks",
            tuple(sorted(blame.rank[edges].tolist())),
            (waiting_call,),
            kind,
            int(blame.known[edges].min()),
        )
        for (waiting_call, kind), edges in together.items()
    ]


def _is_later(
    graph: Graph, heads: Heads, blame: Edges, more_order: Iterable[tuple[int, int]]
) -> Bools:
    """Per edge of `blame`: its rank lacks another call that comes before this one.

    A rank that stands in one call, and has not made another or has it queued behind, has that one
    later in its program; so has a rank that lacks both. `more_order` is what kin show of it.
    """
    width = max(len(heads), 1)
    stands_in = heads.waiting_call[graph.blame.rank]
    behind = np.isin(graph.blame.kind, (Edge.NOT_CALLED, Edge.QUEUED)) & (stands_in >= 0)
    shown = np.asarray([after * width + before for after, before in more_order], np.int64)
    order = distinct(np.r_[graph.blame.waiting_call[behind] * width + stands_in[behind], shown])
    later, earlier = np.divmod(order, width)
    low = np.searchsorted(later, blame.waiting_call, "left")
    high = np.searchsorted(later, blame.waiting_call, "right")
    edges = np.repeat(np.arange(len(blame)), high - low)
    before = earlier[ranges(low, high)]
    lacked = np.isin(blame.rank[edges] * width + before, blame.rank * width + blame.waiting_call)
    return np.bincount(edges[lacked], minlength=len(blame)) > 0


def _cycles(graph: Graph, heads: Heads) -> list[Root]:
    """Circles without a way out, by strongly connected components."""
    core = _core(graph)
    if not len(core):
        return []
    network = rx.PyDiGraph()
    network.add_nodes_from(core.tolist())
    inside = np.isin(graph.source, core) & np.isin(graph.target, core)
    number = np.full(graph.n_nodes, -1, np.int64)
    number[core] = np.arange(len(core))
    source, target = number[graph.source[inside]], number[graph.target[inside]]
    network.extend_from_edge_list(list(zip(source.tolist(), target.tolist(), strict=True)))
    component = np.full(graph.n_nodes, -1, np.int64)
    parts = rx.strongly_connected_components(network)
    for index, part in enumerate(parts):
        component[core[np.asarray(part, np.int64)]] = index
    leaves = component[graph.source] != component[graph.target]
    leaving = set(component[graph.source[leaves]].tolist())
    return [
        _circle(graph, heads, core[np.asarray(part, np.int64)])
        for index, part in enumerate(parts)
        if len(part) > 1 and index not in leaving
    ]


def _core(graph: Graph) -> Ints:
    """Nodes left over when those that wait for no other rank are taken away again and again."""
    outgoing = np.bincount(graph.source, minlength=graph.n_nodes)
    order = np.argsort(graph.target, kind="stable")
    by_target, sources = graph.target[order], graph.source[order]
    frontier: Ints = np.flatnonzero(outgoing == 0)
    alive = outgoing > 0
    while len(frontier):
        low = np.searchsorted(by_target, frontier, "left")
        high = np.searchsorted(by_target, frontier, "right")
        waiting = np.concatenate([sources[a:b] for a, b in zip(low, high, strict=True)])
        np.subtract.at(outgoing, waiting, 1)
        frontier = distinct(waiting[(outgoing[waiting] == 0) & alive[waiting]])
        alive[frontier] = False
    return np.flatnonzero(alive)


def _circle(graph: Graph, heads: Heads, nodes: Ints) -> Root:
    """A circle of ranks; or, without any rank in it, calls that meet and do not move."""
    ranks = np.sort(nodes[nodes < graph.n_ranks])
    waiting_calls = np.sort(nodes[nodes >= graph.n_ranks] - graph.n_ranks)
    if not len(ranks):
        inside = np.flatnonzero(np.isin(heads.waiting_call, waiting_calls))
        return Root("call", tuple(inside.tolist()), tuple(waiting_calls.tolist()))
    return Root("cycle", tuple(ranks.tolist()), tuple(waiting_calls.tolist()))
