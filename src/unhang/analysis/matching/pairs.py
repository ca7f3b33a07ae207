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

from unhang.analysis.matching.wait_graph import Edge, Edges
from unhang.analysis.state.columns import Bools, Ints, distinct
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Known, Standing
from unhang.model import DumpStatus, State

__all__ = ["Pairs", "met_by_tag", "pair_edges", "pair_links", "pair_up"]


_MAX_SOURCES = 1024
_UNORDERED = "gloo"
"""The backend that has calls in flight independently of each other, and matches them by tag."""


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
        taken: The backend has taken it and has it in flight, whatever stands before it.
        tag: By which its backend matches it; -1 where it does not, and where nobody knows.
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
        taken=_taken(evidence, rows),
        tag=_tags(evidence, rows),
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
    """The waiting call that each open call belongs to: its rank's head, or the same batch.

    What is in flight beside a head that is so itself is as good as in one batch with it: the end of
    none is seen before the program waits for it, and programs wait for all of them.
    """
    waiting_call, last = heads.waiting_call[owner], evidence.batches.last
    head = heads.row[owner]
    together = (last[head] == last[rows]) | (_taken(evidence, head) & _taken(evidence, rows))
    return np.where(together & (waiting_call >= heads.n_collective), waiting_call, -1)


def _taken(evidence: Evidence, rows: Ints) -> Bools:
    """Calls in flight by themselves; torch records no state of Gloo's, our own recorder does."""
    calls = evidence.case.calls
    taken: Bools = _unordered(evidence, rows) & (calls.state[rows] == State.STARTED)
    return taken


def _unordered(evidence: Evidence, rows: Ints) -> Bools:
    """Calls of a backend that has no order of calls."""
    unordered = np.asarray([backend == _UNORDERED for backend in evidence.backends], np.bool_)
    found: Bools = unordered[evidence.names.backend[evidence.case.calls.name[rows]]]
    return found


def _tags(evidence: Evidence, rows: Ints) -> Ints:
    """Tags of open calls (ascending rows), where they count and where a dump tells them."""
    tags = np.full(len(rows), -1, np.int64)
    for dump in evidence.dumps:
        if dump.open_tags:
            own = slice(*np.searchsorted(rows, (dump.start, dump.stop)).tolist())
            told, ids = dict(dump.open_tags), evidence.case.calls.record_id[rows[own]]
            tags[own] = [told.get(number, -1) for number in ids.tolist()]
    return np.where(_unordered(evidence, rows), tags, -1)


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
    known = np.where(queued, Known.SURE, known)
    edges = Edges(pairs.waiting_call[waiting], peer, kind.astype(np.int64), known.astype(np.int64))
    return edges.chosen(kind != Edge.HEAD).joined(_open_ended_edges(evidence, heads, pairs))


def met_by_tag(evidence: Evidence, pairs: Pairs, at: int) -> bool | None:
    """Whether an open call of the other side has the tag of a call; None where nobody knows.

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
    return None if (tags < 0).any() else bool((tags == pairs.tag[at]).any())


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
