"""The wait-for graph: which rank waits for which, through which call.

One node per rank and one per waiting call, so that the graph stays linear in ranks:

- a rank waits in the waiting call of its head;
- a waiting call waits for every member that has not made it (strong), that has it queued behind
  another head (strong), or about which nothing is known (weak: used only where nothing else
  explains it);
- a waiting call waits for the one before it in the same channel, so that each member hangs on one
  only, the first that it keeps waiting;
- sends and receives that meet wait for each other: they are done together or not at all.

Edges are arrays; this module knows no codes and blames no rank.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Known, Standing
from unhang.spans import distinct

_SEQ_BITS = 40


class Edge(IntEnum):
    """Why a waiting call waits for a rank, or what else an edge is; the most telling first."""

    HEAD = 0
    CHAIN = 1
    NOT_LAUNCHED = 2
    NOT_CALLED = 3
    QUEUED = 4
    UNPAIRED = 5
    ANY_SOURCE = 6
    UNKNOWN = 7


class Edges(Struct, frozen=True, eq=False):
    """Call-to-rank edges, as columns.

    Attributes:
        waiting_call, rank: Who waits for whom (rank index).
        kind: `Edge`.
        known: `Known`, how well it is known.
    """

    waiting_call: Ints
    rank: Ints
    kind: Ints
    known: Ints

    def __len__(self) -> int:
        return len(self.waiting_call)

    def joined(self, other: Edges) -> Edges:
        """Both together."""
        return Edges(
            np.r_[self.waiting_call, other.waiting_call],
            np.r_[self.rank, other.rank],
            np.r_[self.kind, other.kind],
            np.r_[self.known, other.known],
        )

    def chosen(self, which: Bools) -> Edges:
        """Some of them."""
        return Edges(
            self.waiting_call[which], self.rank[which], self.kind[which], self.known[which]
        )


class Graph(Struct, frozen=True, eq=False):
    """Nodes 0 to n_ranks - 1 are indices of ranks, waiting call w is node n_ranks + w.

    Attributes:
        source, target: Edges between nodes.
        blame: The call-to-rank edges among them, with their kinds.
    """

    n_ranks: int
    n_waiting_calls: int
    source: Ints
    target: Ints
    blame: Edges

    @property
    def n_nodes(self) -> int:
        """Ranks and waiting calls."""
        return self.n_ranks + self.n_waiting_calls

    def reaching(self, nodes: Ints) -> Ints:
        """Distance of every node to the nearest of `nodes` along edges; -1 if it leads to none."""
        order = np.argsort(self.target, kind="stable")
        by_target, sources = self.target[order], self.source[order]
        distance = np.full(self.n_nodes, -1, np.int64)
        distance[nodes] = 0
        frontier, steps = nodes, 0
        while len(frontier):
            steps += 1
            low = np.searchsorted(by_target, frontier, "left")
            high = np.searchsorted(by_target, frontier, "right")
            reached = distinct(sources[ranges(low, high)])
            frontier = reached[distance[reached] < 0]
            distance[frontier] = steps
        return distance


def ranges(low: Ints, high: Ints) -> Ints:
    """All numbers of several half-open ranges, one after the other."""
    lengths = high - low
    before = np.cumsum(lengths) - lengths
    numbers: Ints = np.arange(int(lengths.sum())) - np.repeat(before - low, lengths)
    return numbers


def collective_edges(
    evidence: Evidence, standing: Standing, heads: Heads, unlaunched: Bools
) -> Edges:
    """Find for whom each collective waiting call waits.

    Args:
        evidence: The case.
        standing: How far all ranks have come.
        heads: Who is in which waiting call.
        unlaunched: Per rank: its head is recorded but was never launched.
    """
    waiting_calls = np.arange(heads.n_collective)
    channels, first = np.unique(heads.channel[waiting_calls], return_index=True)
    members = [evidence.members(int(channel)) for channel in channels]
    lengths = np.asarray([len(each) for each in members], np.int64)
    if not members:
        empty = np.zeros(0, np.int64)
        return Edges(empty, empty, empty, empty)
    rank = np.concatenate(members)
    position = np.repeat(np.arange(len(channels)), lengths)
    known_member = rank >= 0
    rank, position = rank[known_member], position[known_member]
    at = standing.at(rank, channels[position])
    has = at >= 0
    reach = np.where(has, standing.reach[at], -1)
    opened = np.where(has, standing.open_from[at], reach + 1)
    done_before = np.minimum(opened, reach + 1)
    waiting_call = _first_waiting_call_from(heads, first, position, done_before)
    blocks = waiting_call >= 0
    rank, waiting_call, at, reach = rank[blocks], waiting_call[blocks], at[blocks], reach[blocks]
    called = reach >= heads.seq[waiting_call]
    inside = called & (heads.waiting_call[rank] == waiting_call)
    known = np.where(
        at >= 0, standing.known[at], standing.unseen(rank, heads.channel[waiting_call])
    )
    kind = np.where(known > Known.UNKNOWN, Edge.NOT_CALLED, Edge.UNKNOWN)
    kind = np.where(called, Edge.QUEUED, kind)
    kind = np.where(inside & unlaunched[rank], Edge.NOT_LAUNCHED, kind)
    known = np.where(called, Known.SURE, known)
    waits = ~inside | unlaunched[rank]
    left_no_dump = (kind == Edge.UNKNOWN) & (at < 0)
    waits &= ~(left_no_dump & _made_by_all(evidence, standing, heads)[waiting_call])
    return Edges(waiting_call, rank, kind.astype(np.int64), known.astype(np.int64)).chosen(waits)


def _made_by_all(evidence: Evidence, standing: Standing, heads: Heads) -> Bools:
    """Per collective waiting call: some member has finished it, which takes all of them.

    So those of whom there is no dump have made it too. Gloo's calls end by a failure, too.
    """
    first = np.full(len(heads), -1, np.int64)
    ranks = np.flatnonzero(heads.waiting_call >= 0)
    first[heads.waiting_call[ranks]] = heads.row[ranks]
    rows = first[: heads.n_collective]
    takes_all = evidence.names.synchronising[evidence.case.calls.name[rows]]
    takes_all &= evidence.truthful[heads.channel[: heads.n_collective] % len(evidence.backends)]
    finished = standing.done[heads.channel[: heads.n_collective]] >= heads.seq[: heads.n_collective]
    found: Bools = takes_all & finished
    return found


def _first_waiting_call_from(heads: Heads, first: Ints, position: Ints, seq: Ints) -> Ints:
    """First waiting call of a channel with at least this sequence number; -1 if there is none."""
    n = heads.n_collective
    waiting_call_position = np.repeat(np.arange(len(first)), np.diff(np.r_[first, n]))
    order = (waiting_call_position << _SEQ_BITS) + np.clip(heads.seq[:n], 0, (1 << _SEQ_BITS) - 1)
    wanted = (position << _SEQ_BITS) + np.clip(seq, 0, (1 << _SEQ_BITS) - 1)
    waiting_call = np.searchsorted(order, wanted)
    inside = np.minimum(waiting_call, n - 1)
    return np.where((waiting_call < n) & (waiting_call_position[inside] == position), inside, -1)


def make_graph(
    heads: Heads, blame: Edges, links: tuple[Ints, Ints], unlaunched: Bools, explained: Bools
) -> Graph:
    """Put heads, chains and blame together, leaving out weak edges that are not needed.

    Args:
        heads: Heads and waiting calls.
        blame: For whom the waiting calls wait.
        links: Waiting calls of sends and receives that meet each other.
        unlaunched: Ranks that do not wait in their head, since they never launched it.
        explained: Per waiting call: it has an explanation of its own (its members disagree).
    """
    n_ranks = len(heads.row)
    waiting = np.flatnonzero((heads.waiting_call >= 0) & ~unlaunched)
    later = np.arange(1, max(heads.n_collective, 1))
    chained = later[heads.channel[later] == heads.channel[later - 1]] if len(later) else later
    strong = blame.kind != Edge.UNKNOWN
    has_reason = explained.copy()
    has_reason[chained] = True
    has_reason[blame.waiting_call[strong]] = True
    blame = blame.chosen(strong | ~has_reason[blame.waiting_call])
    return Graph(
        n_ranks=n_ranks,
        n_waiting_calls=len(heads),
        source=np.r_[waiting, n_ranks + np.r_[chained, links[0], blame.waiting_call]].astype(
            np.int64
        ),
        target=np.r_[
            n_ranks + np.r_[heads.waiting_call[waiting], chained - 1, links[1]], blame.rank
        ].astype(np.int64),
        blame=blame,
    )
