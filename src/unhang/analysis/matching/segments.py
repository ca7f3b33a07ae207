"""Sends and receives side by side: who made how many to whom, and which of them have finished.

A segment is all sends, or all receives, from one rank to another in one group; its other segment is
what the peer made of the kind that meets them.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.index import Evidence
from unhang.case import Dump
from unhang.model import DumpStatus, State
from unhang.spans import distinct

_UNORDERED = "gloo"
"""The backend that has calls in flight independently of each other, and matches them by tag."""


class Segments(Struct, frozen=True, eq=False):
    """Sends and receives of the wanted pairs, sorted by (pair, direction, row).

    Attributes:
        row, owner, peer, sending: As of `Pairs`, per call.
        segment: Per call, the number of its segment.
        first, length: Per segment, the position of its first call, and how many it has.
        finished: Per segment, how many of them have finished.
        complete: Per segment, whether all exchanges of its rank in its group are there.
        other: Per segment, the one that meets it; -1 if there is none.
    """

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


def open_exchanges(evidence: Evidence) -> Ints:
    """Rows of unfinished sends and receives, ascending."""
    opened = evidence.open_rows[~evidence.collective[evidence.open_rows]]
    return opened[~evidence.names.closing[evidence.case.calls.name[opened]]]


def segments_of(evidence: Evidence, opened: Ints) -> Segments:
    """All sends and receives of the pairs that have something unfinished."""
    key, *_ = ends_of(evidence, opened)
    rows = np.flatnonzero(~evidence.collective) if len(opened) else opened
    rows = rows[_counts(evidence, rows)]
    every, owner, peer, sending = ends_of(evidence, rows)
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
    return Segments(
        row=rows,
        owner=owner,
        peer=peer,
        sending=sending,
        segment=segment,
        first=first,
        length=length,
        finished=finished.astype(np.int64),
        complete=shows_all(evidence, owner[first], evidence.channel(rows[first])),
        other=other,
    )


def _counts(evidence: Evidence, rows: Ints) -> Bools:
    """Rows of dumps that count, closing entries left out."""
    calls = evidence.case.calls
    counts: Bools = evidence.counts[calls.dump[rows]] & ~evidence.names.closing[calls.name[rows]]
    return counts


def ends_of(evidence: Evidence, rows: Ints) -> tuple[Ints, Ints, Ints, Bools]:
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


def whole_ranks(evidence: Evidence) -> Bools:
    """Ranks whose dumps show everything from the first call on."""
    complete = np.zeros(max(len(evidence.ranks), 1), np.bool_)
    for owner, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        complete[owner] = is_whole(dump)
    return complete


def shows_all(evidence: Evidence, owner: Ints, channel: Ints) -> Bools:
    """Whether all sends and receives of ranks (indices) in channels are there, from the first on.

    ProcessGroupNCCL never sees the end of members of batches: dumps of unfinished calls hold those
    that have ended, too. Where their numbers begin at 1 and none is left out, all are there.
    """
    found: Bools = np.append(whole_ranks(evidence), False)[owner]
    emptied = [each.active_only and each.dropped == 0 for each in evidence.case.dumps]
    calls = evidence.case.calls
    rows = np.flatnonzero(np.asarray(emptied, np.bool_)[calls.dump] & ~evidence.collective)
    rows = rows[_counts(evidence, rows) & (calls.p2p_seq[rows] > 0)]
    if found.all() or not len(rows):
        return found
    size = int(max(channel.max(initial=0), evidence.channel(rows).max())) + 1
    side = evidence.owner_of(rows) * size + evidence.channel(rows)
    each = np.unique(np.stack([side, calls.p2p_seq[rows]]), axis=1)
    sides, begins, numbers = np.unique(each[0], return_index=True, return_counts=True)
    gapless = sides[each[1][begins + numbers - 1] == numbers]
    found |= np.isin(owner * size + channel, gapless)
    return found


def is_whole(dump: Dump) -> bool:
    """Whether a dump shows everything from the first call on."""
    whole = dump.status is DumpStatus.OK and not dump.active_only
    return whole and dump.first_record_id <= 0 and dump.dropped == 0


def met_by_anyone(evidence: Evidence, table: Segments, at: Ints) -> Bools:
    """Whether the receiving rank of calls has received from any source in the same channel."""
    case = evidence.case
    anyone = [name.op.lower().startswith("recv") and name.src < 0 for name in case.names]
    if not any(anyone):
        return np.zeros(len(at), np.bool_)
    rows = np.flatnonzero(np.asarray(anyone)[case.calls.name])
    size = len(evidence.ranks)
    receiver = np.where(table.sending[at], table.peer[at], table.owner[at])
    keys = evidence.channel(table.row[at]) * size + receiver
    return np.isin(keys, evidence.channel(rows) * size + evidence.owner_of(rows))


def taken(evidence: Evidence, rows: Ints) -> Bools:
    """Calls in flight by themselves; torch records no state of Gloo's, our own recorder does."""
    calls = evidence.case.calls
    found: Bools = _unordered(evidence, rows) & (calls.state[rows] == State.STARTED)
    return found


def _unordered(evidence: Evidence, rows: Ints) -> Bools:
    """Calls of a backend that has no order of calls."""
    unordered = np.asarray([backend == _UNORDERED for backend in evidence.backends], np.bool_)
    found: Bools = unordered[evidence.names.backend[evidence.case.calls.name[rows]]]
    return found


def tags_of(evidence: Evidence, rows: Ints) -> Ints:
    """Tags of open calls (ascending rows), where they count and where a dump tells them."""
    tags = np.full(len(rows), -1, np.int64)
    for dump in evidence.dumps:
        if dump.open_tags:
            own = slice(*np.searchsorted(rows, (dump.start, dump.stop)).tolist())
            told, ids = dict(dump.open_tags), evidence.case.calls.record_id[rows[own]]
            tags[own] = [told.get(number, -1) for number in ids.tolist()]
    live = evidence.case.calls.state[rows] != State.FAILED
    return np.where(_unordered(evidence, rows) & live, tags, -1)
