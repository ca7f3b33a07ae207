"""Heads: the earliest unfinished call of each rank, and the waiting calls that they make up.

The head over all groups is what a rank's device or host waits in. Ranks whose heads are the same
collective share one waiting call; a send, a receive or a batch of them is a waiting call of its own
rank. A rank without a head does not wait in communication.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Standing
from unhang.spans import tuples


class Heads(Struct, frozen=True, eq=False):
    """The heads of all ranks and the waiting calls that they form.

    Attributes:
        row: Per rank, the row of its head; -1 if it has none.
        waiting_call: Per rank, the waiting call that it is in; -1 if none.
        channel, seq: Per waiting call. Collective ones stand first, sorted by (channel, seq);
            those of sends and receives follow, with their P2P number (or -1) as `seq`.
        n_collective: Number of collective waiting calls.
        owner: Per waiting call, the rank index of a P2P waiting call; -1 for collectives.
    """

    row: Ints
    waiting_call: Ints
    channel: Ints
    seq: Ints
    n_collective: int
    owner: Ints

    def __len__(self) -> int:
        return len(self.channel)

    def inside(self, waiting_call: int) -> Ints:
        """Indices of ranks whose head is this waiting call."""
        return np.flatnonzero(self.waiting_call == waiting_call)


def find_heads(evidence: Evidence, ignored: Ints) -> Heads:
    """Find the head of every rank.

    Args:
        evidence: The case.
        ignored: Indices of ranks whose dumps say nothing of the present (older than their peers').
    """
    row = _head_rows(evidence)
    row[ignored] = -1
    waiting = np.flatnonzero(row >= 0)
    rows = row[waiting]
    calls = evidence.case.calls
    numbered = evidence.collective[rows] & (calls.seq[rows] >= 0)
    together, alone = waiting[numbered], waiting[~numbered]
    waiting_call = np.full(len(row), -1, np.int64)
    pairs = np.stack([evidence.channel(row[together]), calls.seq[row[together]]])
    waiting_calls, member_of = tuples(pairs)
    waiting_call[together] = member_of
    waiting_call[alone] = waiting_calls.shape[1] + np.arange(len(alone))
    own = row[alone]
    number = np.where(evidence.collective[own], calls.seq[own], calls.p2p_seq[own])
    return Heads(
        row=row,
        waiting_call=waiting_call,
        channel=np.r_[waiting_calls[0], evidence.channel(own)].astype(np.int64),
        seq=np.r_[waiting_calls[1], number].astype(np.int64),
        n_collective=waiting_calls.shape[1],
        owner=np.r_[np.full(waiting_calls.shape[1], -1), alone].astype(np.int64),
    )


def _head_rows(evidence: Evidence) -> Ints:
    """First open row of each rank; between two recorders of one rank the earlier call counts."""
    row = np.full(len(evidence.ranks), -1, np.int64)
    opened = evidence.open_rows
    if not len(opened):
        return row
    starts = np.asarray([dump.start for dump in evidence.dumps], np.int64)
    stops = np.asarray([dump.stop for dump in evidence.dumps], np.int64)
    at = np.minimum(np.searchsorted(opened, starts), len(opened) - 1)
    first = opened[at]
    has = (first >= starts) & (first < stops)
    owners, first = evidence.owner[has], first[has]
    created = evidence.case.calls.created_ns[first]
    order = np.lexsort((first, created, owners))[::-1]
    row[owners[order]] = first[order]
    return row


def unlaunched_ranks(evidence: Evidence, standing: Standing, heads: Heads) -> Bools:
    """Ranks whose head is recorded while their counters stand before it and a peer's do not."""
    unlaunched = np.zeros(len(evidence.ranks), np.bool_)
    inside = np.flatnonzero((heads.waiting_call >= 0) & (heads.waiting_call < heads.n_collective))
    waiting_call = heads.waiting_call[inside]
    at = standing.at(inside, heads.channel[waiting_call])
    has = at >= 0
    counted = np.where(has, standing.counted[at], -1) if len(standing.keys) else at
    counts = has & (counted >= 0)
    launched = np.zeros(max(len(heads), 1), np.bool_)
    launched[waiting_call[counts & (counted >= heads.seq[waiting_call])]] = True
    unlaunched[inside] = counts & (counted == heads.seq[waiting_call] - 1) & launched[waiting_call]
    return unlaunched
