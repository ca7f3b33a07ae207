"""Pairing sends with receives, and for whom a waiting send or receive waits.

Sends and receives have a number space of their own. The n-th send from one rank to another in a
group meets the n-th receive there, whatever lies between them: so members of a batch may pair in
any order across peers and in order per peer. Where a window has lost its beginning, the first
unfinished send is taken to meet the first unfinished receive, which is presumed rather than sure.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.wait_graph import Edge, Edges
from unhang.analysis.state.columns import Bools, Ints, distinct
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Known, Standing
from unhang.model import DumpStatus

__all__ = ["Pairs", "pair_edges", "pair_links", "pair_up"]


_MAX_SOURCES = 1024


class Pairs(Struct, frozen=True, eq=False):
    """The unfinished sends and receives, by ascending row.

    Attributes:
        row: Row of the call.
        owner, peer: Indices of ranks; the peer is -1 for any source and where nobody knows.
        sending: True for a send.
        counterpart: Row of the call that meets it; -1 if there is none.
        sure: Whether ordinals are absolute on both sides.
        waiting_call: The waiting call that it belongs to; -1 if it is queued behind its rank's
            head.
    """

    row: Ints
    owner: Ints
    peer: Ints
    sending: Bools
    counterpart: Ints
    sure: Bools
    waiting_call: Ints

    def of_waiting_call(self, waiting_call: int) -> Ints:
        """Positions of the calls of one waiting call."""
        return np.flatnonzero(self.waiting_call == waiting_call)

    def at_row(self, row: int) -> int:
        """Position of a row; -1 if it is none of these."""
        at = int(np.searchsorted(self.row, row))
        return at if at < len(self.row) and self.row[at] == row else -1


class _Table(Struct, frozen=True, eq=False):
    """Sends and receives of the wanted pairs, sorted by (pair, direction, row)."""

    row: Ints
    owner: Ints
    peer: Ints
    sending: Bools
    segment: Ints
    first: Ints
    length: Ints
    finished: Ints
    complete: Bools
    other: Ints


def pair_up(evidence: Evidence, heads: Heads) -> Pairs:
    """Find the counterpart of every unfinished send and receive."""
    opened = evidence.open_rows[~evidence.collective[evidence.open_rows]]
    opened = opened[~evidence.names.closing[evidence.case.calls.name[opened]]]
    table = _table(evidence, opened)
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
    absolute = table.complete[segment] & _complete_ranks(evidence)[np.maximum(table.peer[at], 0)]
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
    )


def _table(evidence: Evidence, opened: Ints) -> _Table:
    """All sends and receives of the pairs that have something unfinished."""
    key, *_ = _ends(evidence, opened)
    rows = np.flatnonzero(~evidence.collective) if len(opened) else opened
    rows = rows[_counts(evidence, rows)]
    every, owner, peer, sending = _ends(evidence, rows)
    kept = np.isin(every, distinct(key))
    rows, every, owner = rows[kept], every[kept], owner[kept]
    peer, sending = peer[kept], sending[kept]
    order = np.lexsort((rows, sending, every))
    rows, every, owner = rows[order], every[order], owner[order]
    peer, sending = peer[order], sending[order]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (every[1:] != every[:-1]) | (sending[1:] != sending[:-1])
    first = np.flatnonzero(new)
    segment = np.cumsum(new) - 1
    length = np.diff(np.r_[first, len(rows)])
    finished = np.bincount(segment, weights=evidence.finished[rows], minlength=len(first))
    other = np.full(len(first), -1, np.int64)
    twins = np.flatnonzero(every[first][1:] == every[first][:-1]) if len(first) else first
    other[twins], other[twins + 1] = twins + 1, twins
    return _Table(
        row=rows,
        owner=owner,
        peer=peer,
        sending=sending,
        segment=segment,
        first=first,
        length=length,
        finished=finished.astype(np.int64),
        complete=_complete_ranks(evidence)[owner[first]] if len(first) else np.zeros(0, np.bool_),
        other=other,
    )


def _counts(evidence: Evidence, rows: Ints) -> Bools:
    """Rows of dumps that count, closing entries left out."""
    calls = evidence.case.calls
    counts: Bools = evidence.counts[calls.dump[rows]] & ~evidence.names.closing[calls.name[rows]]
    return counts


def _ends(evidence: Evidence, rows: Ints) -> tuple[Ints, Ints, Ints, Bools]:
    """Pair key, owner, peer and direction of sends and receives.

    Names hold group ranks; a peer outside the group, or none, is -1.
    """
    case = evidence.case
    names = case.names
    sending_name = np.asarray([name.op.lower().startswith("send") for name in names], np.bool_)
    other_name = np.asarray(
        [name.dst if send else name.src for name, send in zip(names, sending_name, strict=True)],
        np.int64,
    )
    name = case.calls.name[rows]
    sending = sending_name[name] if len(names) else np.zeros(len(rows), np.bool_)
    owner = evidence.owner_of(rows)
    peer = _member(evidence, case.calls.group[rows], other_name[name] if len(names) else name)
    source, target = np.where(sending, owner, peer), np.where(sending, peer, owner)
    n_ranks = len(evidence.ranks) + 1
    key = (evidence.channel(rows) * n_ranks + source + 1) * n_ranks + target + 1
    return key, owner, peer, sending


def _member(evidence: Evidence, group: Ints, position: Ints) -> Ints:
    """Index of the rank of a group rank; -1 where the group has none such."""
    used = distinct(group)  # most groups have no sends: their members need not be looked up
    groups = [evidence.case.groups[number] for number in used.tolist()]
    group = np.searchsorted(used, group)
    sizes = np.asarray([each.size for each in groups], np.int64)
    before = np.cumsum(sizes) - sizes
    parts = [np.asarray(each.members, np.int64) for each in groups]
    every = evidence.ranks.index_of(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
    valid = (position >= 0) & (position < (sizes[group] if len(sizes) else 0))
    at = np.where(valid, (before[group] if len(sizes) else 0) + position, 0)
    found: Ints = np.where(valid, every[at] if len(every) else -1, -1)
    return found


def _complete_ranks(evidence: Evidence) -> Bools:
    """Ranks whose dumps show everything from the first call on."""
    complete = np.zeros(max(len(evidence.ranks), 1), np.bool_)
    for owner, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        whole = dump.status is DumpStatus.OK and not dump.active_only
        complete[owner] = whole and dump.first_record_id <= 0 and dump.dropped == 0
    return complete


def _waiting_calls(evidence: Evidence, heads: Heads, rows: Ints, owner: Ints) -> Ints:
    """The waiting call that each open call belongs to: its rank's head, or the same batch."""
    waiting_call, last = heads.waiting_call[owner], evidence.batches.last
    together = (waiting_call >= heads.n_collective) & (last[heads.row[owner]] == last[rows])
    return np.where(together, waiting_call, -1)


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
    queued = still_open & (pairs.waiting_call[inside] < 0 if len(pairs.row) else False)
    seen = standing.unseen(peer, channel)
    cut = met & ~still_open & (seen == Known.UNKNOWN)
    kind = np.where(queued, Edge.QUEUED, np.where(cut, Edge.UNKNOWN, Edge.HEAD))
    kind = np.where(~met, np.where(seen > Known.UNKNOWN, Edge.UNPAIRED, Edge.UNKNOWN), kind)
    known = np.where(pairs.sure[waiting], Known.SURE, np.minimum(seen, Known.INFERRED))
    known = np.where(queued, Known.SURE, known)
    edges = Edges(pairs.waiting_call[waiting], peer, kind.astype(np.int64), known.astype(np.int64))
    return edges.chosen(kind != Edge.HEAD).joined(_open_ended_edges(evidence, heads, pairs))


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

    So does, for all that anybody knows, a batch of which only the closing entry is left. An edge to
    each of them is right for finding circles (one has no way out only if none of them has), and the
    findings know that no single one of them is at fault.
    """
    waiting_call: list[int] = []
    rank: list[int] = []
    asking = pairs.waiting_call[(pairs.waiting_call >= 0) & (pairs.peer < 0) & ~pairs.sending]
    own = np.arange(heads.n_collective, len(heads))
    for each in np.union1d(asking, own[~np.isin(own, pairs.waiting_call)]).tolist():
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
