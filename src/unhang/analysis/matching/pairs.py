"""Pairing sends with receives, and for whom a waiting send or receive waits.

Sends and receives have a number space of their own. The n-th send from one rank to another in a
group meets the n-th receive there, whatever lies between them: so members of a batch may pair in
any order across peers and in order per peer. Where a window has lost its beginning, the first
unfinished send is taken to meet the first unfinished receive, which is presumed rather than sure.

Gloo has no stream in which calls wait their turn: whatever it has taken is in flight at once, as if
a rank had launched it all in one batch, and meets by tag.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.segments import (
    ends_of,
    open_exchanges,
    segments_of,
    shows_all,
    tags_of,
    taken,
)
from unhang.analysis.matching.wait_graph import Edge, Edges
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Known, Standing
from unhang.spans import union

_MAX_SOURCES = 1024


class Pairs(Struct, frozen=True, eq=False):
    """The unfinished sends and receives, by ascending row.

    Attributes:
        row: Row of the call.
        owner, peer: Indices of ranks; the peer is -1 for any source and where unknown.
        sending: True for a send.
        counterpart: Row of the call that meets it; -1 if there is none.
        sure: Whether ordinals are absolute on both sides.
        waiting_call: The waiting call that it belongs to; -1 if it is queued behind its rank's
            head.
        taken: The backend has taken it and has it in flight, whatever stands before it.
        tag: By which its backend matches it; -1 where it does not, and where unknown.
    """

    row: Ints
    owner: Ints
    peer: Ints
    sending: Bools
    counterpart: Ints
    sure: Bools
    waiting_call: Ints
    taken: Bools
    tag: Ints

    def of_waiting_call(self, waiting_call: int) -> Ints:
        """Positions of the calls of one waiting call."""
        return np.flatnonzero(self.waiting_call == waiting_call)

    def at_row(self, row: int) -> int:
        """Position of a row; -1 if it is none of these."""
        at = int(np.searchsorted(self.row, row))
        return at if at < len(self.row) and self.row[at] == row else -1


def pair_up(evidence: Evidence, heads: Heads) -> Pairs:
    """Find the counterpart of every unfinished send and receive."""
    table = segments_of(evidence, open_exchanges(evidence))
    at = np.flatnonzero(~evidence.finished[table.row])
    segment = table.segment[at]
    other = table.other[segment]
    ordinal = at - table.first[segment]
    exists = other >= 0
    sure = table.complete[segment] & exists & table.complete[other]
    shift = np.where(sure, 0, table.finished[other] - table.finished[segment])
    wanted = ordinal + np.where(exists, shift, 0)
    met = exists & (wanted >= 0) & (wanted < np.where(exists, table.length[other], 0))
    counterpart = np.full(len(at), -1, np.int64)
    counterpart[met] = table.row[table.first[other[met]] + wanted[met]]
    absolute = table.complete[segment] & shows_all(
        evidence, np.maximum(table.peer[at], 0), evidence.channel(table.row[at])
    )
    order = np.argsort(table.row[at], kind="stable")
    rows, owner = table.row[at][order], table.owner[at][order]
    return Pairs(
        row=rows,
        owner=owner,
        peer=table.peer[at][order],
        sending=table.sending[at][order],
        counterpart=counterpart[order],
        sure=np.asarray(absolute & (table.peer[at] >= 0), np.bool_)[order],
        waiting_call=_waiting_calls(evidence, heads, rows, owner),
        taken=taken(evidence, rows),
        tag=tags_of(evidence, rows),
    )


def _waiting_calls(evidence: Evidence, heads: Heads, rows: Ints, owner: Ints) -> Ints:
    """The waiting call that each open call belongs to: its rank's head, or the same batch.

    What is in flight next to a head that is so itself is as good as in one batch with it: the end
    of none is seen before the program waits for it, and programs wait for all of them.
    """
    waiting_call, last = heads.waiting_call[owner], evidence.batches.last
    head = heads.row[owner]
    together = (last[head] == last[rows]) | (taken(evidence, head) & taken(evidence, rows))
    return np.where(together & (waiting_call >= heads.n_collective), waiting_call, -1)


def pair_edges(evidence: Evidence, standing: Standing, heads: Heads, pairs: Pairs) -> Edges:
    """Find for whom the waiting calls of sends and receives wait."""
    waiting = np.flatnonzero((pairs.waiting_call >= 0) & (pairs.peer >= 0))
    peer, counterpart = pairs.peer[waiting], pairs.counterpart[waiting]
    channel = evidence.channel(pairs.row[waiting])
    met = counterpart >= 0
    position = np.searchsorted(pairs.row, counterpart)
    inside = np.minimum(position, max(len(pairs.row) - 1, 0))
    still_open = met & (position < len(pairs.row))
    still_open &= pairs.row[inside] == counterpart if len(pairs.row) else False
    if len(pairs.row):
        queued = still_open & (pairs.waiting_call[inside] < 0) & ~pairs.taken[inside]
    else:
        queued = still_open
    seen = standing.unseen(peer, channel)
    cut = met & ~still_open & (seen == Known.UNKNOWN)
    kind = np.where(queued, Edge.QUEUED, np.where(cut, Edge.UNKNOWN, Edge.HEAD))
    kind = np.where(~met, np.where(seen > Known.UNKNOWN, Edge.UNPAIRED, Edge.UNKNOWN), kind)
    known = np.where(pairs.sure[waiting], Known.SURE, np.minimum(seen, Known.INFERRED))
    known = np.where(queued & pairs.sure[waiting], Known.SURE, known)
    edges = Edges(pairs.waiting_call[waiting], peer, kind.astype(np.int64), known.astype(np.int64))
    return edges.chosen(kind != Edge.HEAD).joined(_open_ended_edges(evidence, heads, pairs))


def met_by_tag(evidence: Evidence, pairs: Pairs, at: int) -> bool | None:
    """Whether an open call of the other side has the tag of a call; None where unknown.

    Calls that do not meet by number may do so by tag, and the other way round.

    Args:
        evidence: The case.
        pairs: Its unfinished sends and receives.
        at: Position of the call among them.
    """
    if pairs.tag[at] < 0 or pairs.peer[at] < 0:
        return None
    channel = evidence.channel(pairs.row)
    other = (pairs.owner == pairs.peer[at]) & (pairs.sending != pairs.sending[at])
    other &= (pairs.peer == pairs.owner[at]) | (pairs.peer < 0)
    tags = pairs.tag[other & (channel == channel[at])]
    if len(evidence.unseen_ends):
        tags = np.r_[tags, _unseen_tags(evidence, pairs, at)]
    return None if (tags < 0).any() else bool((tags == pairs.tag[at]).any())


def _unseen_tags(evidence: Evidence, pairs: Pairs, at: int) -> Ints:
    """Tags of what might meet a call, had it not been taken as finished for want of a better."""
    rows = evidence.unseen_ends
    _, owner, peer, sending = ends_of(evidence, rows)
    other = (owner == pairs.peer[at]) & (sending != pairs.sending[at])
    other &= (peer == pairs.owner[at]) | (peer < 0)
    other &= evidence.channel(rows) == evidence.channel(pairs.row[at : at + 1])
    return tags_of(evidence, rows[other])


def pair_links(pairs: Pairs) -> tuple[Ints, Ints]:
    """Waiting calls that meet, in both directions: a batch and its peer's are done together."""
    if not len(pairs.row):
        return pairs.row, pairs.row
    at = np.minimum(np.searchsorted(pairs.row, pairs.counterpart), len(pairs.row) - 1)
    meets = (
        (pairs.row[at] == pairs.counterpart)
        & (pairs.waiting_call >= 0)
        & (pairs.waiting_call[at] >= 0)
    )
    return pairs.waiting_call[meets], pairs.waiting_call[at[meets]]


def _open_ended_edges(evidence: Evidence, heads: Heads, pairs: Pairs) -> Edges:
    """A receive from any source waits for whichever member sends to it: an OR-wait.

    So may a batch that has only its closing entry left. An edge to
    each of them is right for finding circles (one has no way out only if none of them has), and the
    findings know that no single one of them is at fault.
    """
    waiting_call: list[int] = []
    rank: list[int] = []
    asking = pairs.waiting_call[(pairs.waiting_call >= 0) & (pairs.peer < 0) & ~pairs.sending]
    own = np.arange(heads.n_collective, len(heads))
    for each in union(asking, own[~np.isin(own, pairs.waiting_call)]).tolist():
        owner = int(heads.owner[each])
        sent_to_it = (pairs.peer == owner) & pairs.sending & (pairs.counterpart < 0)
        members = evidence.members(int(heads.channel[each]))
        if sent_to_it.any() or len(members) > _MAX_SOURCES:
            continue
        others = members[(members >= 0) & (members != owner)].tolist()
        waiting_call += [each] * len(others)
        rank += others
    columns = np.asarray(waiting_call, np.int64), np.asarray(rank, np.int64)
    kinds = np.full(len(waiting_call), Edge.ANY_SOURCE, np.int64)
    return Edges(*columns, kinds, np.full(len(waiting_call), Known.PRESUMED, np.int64))
