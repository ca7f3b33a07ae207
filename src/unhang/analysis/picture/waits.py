"""Who waits for whom as a graph that can be drawn: equal ranks and calls folded, circles kept.

A node's level is the longest way from it to where waiting ends. Only nodes of one level are folded,
so that folding never draws a circle that is none; real circles are kept whole. Within a level,
nodes are distinguished by what they are and by what their neighbours are, in as many rounds as the
limit allows (colour refinement). So a thousand tensor-parallel groups that wait alike are one node
with a count. Where there are too many levels, the furthest become one node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import rustworkx as rx

from unhang.analysis.matching.wait_graph import Edge
from unhang.analysis.shared.situation import Situation
from unhang.picture import Knot, Link
from unhang.report import Report
from unhang.stacks.ownership import shown_frame
from unhang.wording import rank_phrase

_MOST_NODES = 20
_MOST_ROUNDS = 6
_MOST_ALONE = 16
_WHY = {
    Edge.HEAD: "waits in",
    Edge.CHAIN: "after",
    Edge.NOT_LAUNCHED: "not launched",
    Edge.NOT_CALLED: "not called",
    Edge.QUEUED: "queued",
    Edge.UNPAIRED: "no counterpart",
    Edge.ANY_SOURCE: "any source",
    Edge.UNKNOWN: "not known",
}

Arcs = list[tuple[int, int, int]]


def wait_graph(
    situation: Situation, report: Report, status: Mapping[int, str]
) -> tuple[tuple[Knot, ...], tuple[Link, ...]]:
    """Fold the wait-for graph to what can be drawn.

    Args:
        situation: All that is known.
        report: Its culprits, the call of its first finding, and the ranks of its first circle stay
            apart where they are few.
        status: Of each rank, as the report has it.
    """
    numbers = situation.evidence.ranks.numbers.tolist()
    arcs = _arcs(situation)
    used = {node for source, target, _ in arcs for node in (source, target)}
    used |= {index for index, rank in enumerate(numbers) if status.get(rank) == "culprit"}
    levels, ring = _levels(used, arcs)
    alone = _alone(situation, report, numbers, status) & used
    what = {node: _what(situation, node, numbers, status) for node in used}
    classes = _folded(arcs, what, levels, alone)
    members: dict[int, list[int]] = defaultdict(list)
    for node in sorted(used):
        members[classes[node]].append(node)
    nodes = [
        replace(_node(situation, own, numbers, status), level=levels[own[0]], ring=own[0] in ring)
        for own in members.values()
    ]
    place = {number: at for at, number in enumerate(members)}
    links = dict.fromkeys(
        Link(
            place[classes[source]],
            place[classes[target]],
            _WHY[Edge(kind)],
            known=Edge(kind) is not Edge.UNKNOWN,
        )
        for source, target, kind in arcs
        if classes[source] != classes[target]
    )
    return tuple(nodes), tuple(links)


def _levels(used: set[int], arcs: Arcs) -> tuple[dict[int, int], set[int]]:
    """The longest way to the end of waiting for each node, and the nodes that lie in circles."""
    position = {node: at for at, node in enumerate(sorted(used))}
    graph: rx.PyDiGraph[int, None] = rx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(list(position))
    graph.add_edges_from_no_data([(position[s], position[t]) for s, t, _ in arcs])
    level: dict[int, int] = {}
    ring: set[int] = set()
    for component in rx.strongly_connected_components(graph):  # those that are waited for first
        own = set(component)
        beyond = {to for at in own for to in graph.successor_indices(at)} - own
        height = 1 + max((level[to] for to in beyond), default=-1)
        level.update(dict.fromkeys(own, height))
        ring |= own if len(own) > 1 else set()
    node_of = list(position)
    return {node_of[at]: height for at, height in level.items()}, {node_of[at] for at in ring}


def _arcs(situation: Situation) -> Arcs:
    """All edges with their `Edge` kind; those of blame stand last in the graph."""
    graph = situation.graph
    kind = np.full(len(graph.source), int(Edge.HEAD), np.int64)
    kind[graph.source >= graph.n_ranks] = int(Edge.CHAIN)
    if len(graph.blame):
        kind[-len(graph.blame) :] = graph.blame.kind
    return list(zip(graph.source.tolist(), graph.target.tolist(), kind.tolist(), strict=True))


def _what(
    situation: Situation, node: int, numbers: Sequence[int], status: Mapping[int, str]
) -> tuple[Hashable, ...]:
    """What a node is, by itself: the status of a rank; operation, group and size of a call."""
    if node < situation.graph.n_ranks:
        return ("ranks", status.get(numbers[node], ""))
    call = node - situation.graph.n_ranks
    group = situation.group(call)
    return ("call", situation.op(call), group.description, group.size)


def _alone(
    situation: Situation, report: Report, numbers: Sequence[int], status: Mapping[int, str]
) -> set[int]:
    """Nodes that are never folded: the verdict's call, few culprits, a circle with its calls."""
    culprits = [rank for rank in numbers if status.get(rank) == "culprit"]
    ranks = set(culprits if len(culprits) <= _MOST_ALONE // 2 else ())
    ranks.update(report.findings[0].loop[:_MOST_ALONE] if report.findings else ())
    index = {rank: at for at, rank in enumerate(numbers)}
    found = {index[rank] for rank in ranks if rank in index}
    heads = situation.heads.waiting_call
    calls = {int(heads[at]) for at in found if int(heads[at]) >= 0} | set(
        call_of_verdict(situation, report)
    )
    return found | {situation.graph.n_ranks + call for call in calls}


def call_of_verdict(situation: Situation, report: Report) -> Iterator[int]:
    """The waiting call that the first finding names, where there is one."""
    first = report.findings[0] if report.findings else None
    if first is None or first.group is None:
        return
    told = {rank for side in first.calls for rank in side.ranks}
    for call in range(len(situation.heads)):
        same = situation.seq(call) == first.seq and situation.group_ref(call) == first.group
        if same and not told.isdisjoint(situation.named(situation.heads.inside(call))):
            yield call
            return


def _folded(
    arcs: Arcs,
    what: Mapping[int, tuple[Hashable, ...]],
    levels: Mapping[int, int],
    alone: set[int],
) -> dict[int, int]:
    """A class for each node, all of one level: as many as can be drawn."""
    around: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for source, target, kind in arcs:
        around[source].append((0, target, kind))
        around[target].append((1, source, kind))
    classes = _by_level(what, levels, alone)
    for _ in range(_MOST_ROUNDS):
        finer = _numbered(
            {
                node: (
                    classes[node],
                    frozenset((way, classes[other], kind) for way, other, kind in around[node]),
                )
                for node in classes
            }
        )
        if not len(set(classes.values())) < len(set(finer.values())) <= _MOST_NODES:
            break
        classes = finer
    return classes


def _by_level(
    what: Mapping[int, tuple[Hashable, ...]], levels: Mapping[int, int], alone: set[int]
) -> dict[int, int]:
    """Classes by level and by what a node is; of the furthest levels, if need be, one for all."""
    for most in range(max(levels.values(), default=0), -1, -1):
        classes = _numbered(
            {
                node: (levels[node], own, node if node in alone else -1)
                if levels[node] <= most
                else ("further",)
                for node, own in what.items()
            }
        )
        if len(set(classes.values())) <= _MOST_NODES:
            return classes
    return _numbered({node: (levels[node], own) for node, own in what.items()})


def _numbered(colours: Mapping[int, Hashable]) -> dict[int, int]:
    numbers: dict[Hashable, int] = {}
    return {node: numbers.setdefault(colour, len(numbers)) for node, colour in colours.items()}


def _node(
    situation: Situation, own: Sequence[int], numbers: Sequence[int], status: Mapping[int, str]
) -> Knot:
    """Draw up nodes of one class; where ranks and calls are one, the ranks stand for both."""
    n_ranks = situation.graph.n_ranks
    if own[0] < n_ranks:
        ranks = tuple(sorted(numbers[node] for node in own if node < n_ranks))
        return Knot("ranks", ranks, status.get(ranks[0], ""), rank_phrase(ranks, 4), len(ranks))
    calls = [node - n_ranks for node in own]
    inside = np.flatnonzero(np.isin(situation.heads.waiting_call, calls))
    group = situation.group(calls[0]) if len(calls) == 1 else None
    return Knot(
        kind="call",
        ranks=situation.named(inside),
        status="",
        label=_label(situation, calls),
        count=len(calls),
        place=_place(situation, calls[0]),
        description=group.description if group else "",
        members=tuple(group.members) if group else (),
    )


def _label(situation: Situation, calls: Sequence[int]) -> str:
    """The call's name; for several what they have in common."""
    if len(calls) == 1:
        return situation.label(calls[0])
    group = situation.group(calls[0])
    name = group.description if group.description not in ("", "undefined") else "groups"
    return f"{len(calls):,} x {situation.op(calls[0])} of {name}, {group.size:,} ranks each"


def _place(situation: Situation, call: int) -> str:
    frame = shown_frame(situation.frames(situation.row(call)))
    return f"{frame.file}:{frame.line}" if frame else ""
