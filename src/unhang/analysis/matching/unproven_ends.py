"""Sends and receives that look finished, and cannot be: what they meet was never made.

torch's hook shows of exchanges only that they were made: members of a batch read completed as soon
as they are issued. So they are counted: the n-th send from one rank to another meets the n-th
receive there. One that nothing meets has not ended, and its rank waits in it. Nor has one whose
counterpart its peer made behind a collective that it made before it, and that ends on neither: each
stands in front of what the other waits for.

Counting needs a beginning that both sides have: their first calls, or the last collective of the
group that both have finished. Whatever was made before that, its device had done by then. Of a peer
without a dump nothing can be counted: who made nothing behind an exchange with it, and lacks a call
in which others wait, is taken to wait for it.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unhang.analysis.matching.segments import Segments, met_by_anyone, segments_of, whole_ranks
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Stage, Standing
from unhang.model import DumpStatus
from unhang.spans import union, without

_MOST_OPEN = 256
"""Calls that are looked at for who lacks them."""


def with_unproven_ends(evidence: Evidence, standing: Standing) -> Evidence:
    """Take as open what only looks finished."""
    if not len(evidence.unproven):
        return evidence
    rows = _behind(evidence, standing, evidence.unproven)
    unmet = _unmet(evidence, standing, rows)
    finished = evidence.finished.copy()
    finished[unmet] = False
    unmet = unmet[evidence.counts[evidence.case.calls.dump[unmet]]]
    return replace(
        evidence,
        finished=finished,
        open_rows=union(evidence.open_rows, unmet),
        unproven=without(rows, unmet),
    )


def _behind(evidence: Evidence, standing: Standing, rows: Ints) -> Ints:
    """Of these rows, those that no finished collective of their group has come after."""
    at = standing.at(evidence.owner_of(rows), evidence.channel(rows))
    if not len(standing.keys):
        return rows
    last = np.where(at >= 0, standing.last_sync[at], -1)
    found: Ints = rows[evidence.case.calls.seq[rows] >= last]
    return found


def _unmet(evidence: Evidence, standing: Standing, rows: Ints) -> Ints:
    """Of these rows, the ones that nothing meets, by each way to count both sides that there is."""
    table = segments_of(evidence, rows)
    if not len(table.row):
        return table.row
    whole, since, anchored = _beginnings(evidence, standing, table)
    unmet = np.isin(table.row, rows) & (whole | anchored)[table.segment]
    unmet &= _beyond(evidence, table, np.zeros(len(whole), np.int64)) | ~whole[table.segment]
    unmet &= _beyond(evidence, table, since) | ~anchored[table.segment]
    mine = np.isin(table.row, rows)
    other = _counterparts(evidence, table, whole, since, anchored)
    other = np.where(mine[other], other, -1)  # one that was seen to end has met its own
    unmet |= mine & _contrary(evidence, table, other)
    unmet = _held_behind(evidence, standing, table, mine & (other >= 0), other, unmet)
    unmet |= mine & _last_with_silent(evidence, standing, table)
    at = np.flatnonzero(unmet)
    return np.sort(table.row[at[~met_by_anyone(evidence, table, at)]])


def _contrary(evidence: Evidence, table: Segments, other: Ints) -> Bools:
    """Per call: an open collective stands between it and its counterpart, in whose way both are."""
    opened = evidence.open_rows[evidence.collective[evidence.open_rows]]
    found = np.zeros(len(table.row), np.bool_)
    if not len(opened):
        return found
    calls, dumps = evidence.case.calls, evidence.case.dumps
    starts, stops = (np.asarray([getattr(d, end) for d in dumps]) for end in ("start", "stop"))
    names = evidence.channel(opened) * (calls.seq[opened].max() + 1) + calls.seq[opened]
    at = np.flatnonzero(other >= 0)
    mine, theirs = table.row[at], table.row[other[at]]
    after = np.searchsorted(opened, mine), np.searchsorted(opened, stops[calls.dump[mine]])
    begins = starts[calls.dump[theirs]]
    before = np.searchsorted(opened, begins), np.searchsorted(opened, theirs)
    for n in np.flatnonzero((after[0] < after[1]) & (before[0] < before[1])).tolist():
        behind, ahead = (names[begin[n] : end[n]] for begin, end in (after, before))
        if np.isin(behind, ahead).any():
            found[at[n]] = found[other[at[n]]] = True
    return found


def _held_behind(
    evidence: Evidence,
    standing: Standing,
    table: Segments,
    candidates: Bools,
    other: Ints,
    unmet: Bools,
) -> Bools:
    """Add calls whose counterpart stands behind one that is held, where nothing else holds them.

    So it is where their rank has gone on to a collective that all members have made and that does
    not end: had the exchange ended, nothing would be in its way.
    """
    dump, last = evidence.case.calls.dump[table.row], _last_joined(evidence, standing)
    wanted, batch = candidates & (table.row < last[dump]), _batches(evidence)
    while True:
        first = np.full(len(evidence.case.dumps) + 1, len(batch) - 1)
        np.minimum.at(first, dump[unmet], table.row[unmet])
        held = wanted & ~unmet & (batch[first[dump[other]]] < batch[table.row[other]])
        if not held.any():
            return unmet
        unmet = unmet | held
        unmet[other[held]] = True


def _last_with_silent(evidence: Evidence, standing: Standing, table: Segments) -> Bools:
    """Per call: it is with a rank without a dump, and in the last batch of its own rank.

    Only where that rank lacks a call in which others wait: a job that is idle may end so, too.
    """
    silent = (table.peer >= 0) & ~_seen(evidence)[table.peer]
    if not silent.any():
        return silent
    batch, stops = _batches(evidence), np.asarray([d.stop for d in evidence.case.dumps])
    silent &= batch[table.row] == batch[stops[evidence.case.calls.dump[table.row]] - 1]
    lacking = np.zeros(max(len(evidence.ranks), 1), np.bool_)
    opened = evidence.open_rows[evidence.collective[evidence.open_rows]]
    for call in {_call_of(evidence, row) for row in opened[:_MOST_OPEN].tolist()}:
        members = evidence.members(call[0])
        lacking[members[standing.stages(members, *call)[0] == Stage.NOT_CALLED]] = True
    found: Bools = silent & lacking[table.owner]
    return found


def _batches(evidence: Evidence) -> Ints:
    """Per row, a number that sends and receives share which may be of one batch; and the highest.

    Those that one line has made in one group, one after the other: the hook closes no batch.
    """
    calls, stacks = evidence.case.calls, evidence.case.stacks
    callers: dict[bytes, int] = {}
    spans = zip(stacks.offsets[:-1].tolist(), stacks.offsets[1:].tolist(), strict=True)
    caller = [
        callers.setdefault(stacks.frame_ids[begin + 1 : end].tobytes(), len(callers))
        for begin, end in spans
    ]
    by = np.asarray([*caller, -1], np.int64)[calls.stack]
    apart = np.ones(len(calls) + 1, np.bool_)
    alike = ~evidence.collective[1:] & ~evidence.collective[:-1] & (by[1:] == by[:-1])
    for column in (calls.dump, calls.group):
        alike &= column[1:] == column[:-1]
    apart[1:-1] = ~alike
    return np.cumsum(apart)


def _last_joined(evidence: Evidence, standing: Standing) -> Ints:
    """Per dump: the row of its first open collective, if all members have made it; else -1."""
    opened = evidence.open_rows[evidence.collective[evidence.open_rows]]
    calls = evidence.case.calls
    opened = opened[(calls.seq[opened] >= 0) & (calls.group[opened] >= 0)]
    dumps, at = np.unique(calls.dump[opened], return_index=True)
    found, known = np.full(len(evidence.case.dumps) + 1, -1, np.int64), {}
    for dump, row in zip(dumps.tolist(), opened[at].tolist(), strict=True):
        call = _call_of(evidence, row)
        if call not in known:
            members = evidence.members(call[0])
            stage = standing.stages(members, *call)[0]
            known[call] = bool(np.isin(stage, (Stage.OPEN, Stage.FINISHED)).all())
        found[dump] = row if known[call] else -1
    return found


def _call_of(evidence: Evidence, row: int) -> tuple[int, int]:
    """Channel and number of a call."""
    rows = np.asarray([row])
    return int(evidence.channel(rows)[0]), int(evidence.case.calls.seq[row])


def _counterparts(
    evidence: Evidence, table: Segments, whole: Bools, since: Ints, anchored: Bools
) -> Ints:
    """Per call: the position of the one that meets it by number; -1 where none does, or can tell.

    Counted from their first calls, or from the last collective that both sides have finished.
    """
    since = np.where(whole, 0, since)
    counted = evidence.case.calls.seq[table.row] >= since[table.segment]
    counted &= (whole | anchored)[table.segment]
    made = np.bincount(table.segment, weights=counted, minlength=len(table.first))
    nth = np.cumsum(counted) - np.r_[0, np.cumsum(made)][table.segment]
    there = np.where(table.other >= 0, made[table.other], 0)
    begins = table.first + table.length - made
    at = begins[table.other[table.segment]] + nth - 1
    return np.where(counted & (nth <= there[table.segment]), at, -1).astype(np.int64)


def _beyond(evidence: Evidence, table: Segments, since: Ints) -> Bools:
    """Per call: its side has made more by then than the other, counted from these collectives."""
    counted = evidence.case.calls.seq[table.row] >= since[table.segment]
    made = np.bincount(table.segment, weights=counted, minlength=len(table.first))
    nth = np.cumsum(counted) - np.r_[0, np.cumsum(made)][table.segment]
    there = np.where(table.other >= 0, made[table.other], 0)
    found: Bools = counted & (nth > there[table.segment])
    return found


def _beginnings(
    evidence: Evidence, standing: Standing, table: Segments
) -> tuple[Bools, Ints, Bools]:
    """Per segment, for both of its sides.

    Returns:
        Whether they are there from their first calls on; the last collective that they have
        finished; whether they are there from that one on.
    """
    owner, peer = table.owner[table.first], table.peer[table.first]
    seen, whole = _seen(evidence), whole_ranks(evidence)
    both = (peer >= 0) & seen[owner] & seen[peer]
    first, since = _collectives(evidence, standing, table)
    return both & whole[owner] & whole[peer], since, both & (since >= np.maximum(first, 0))


def _seen(evidence: Evidence) -> Bools:
    """Ranks with a dump that was read whole."""
    seen = np.zeros(max(len(evidence.ranks), 1), np.bool_)
    dumps = zip(evidence.owner.tolist(), evidence.dumps, strict=True)
    seen[[rank for rank, dump in dumps if dump.status is DumpStatus.OK]] = True
    return seen


def _collectives(evidence: Evidence, standing: Standing, table: Segments) -> tuple[Ints, Ints]:
    """Per segment: the first collective that both sides show, and the last both have finished."""
    channel = evidence.channel(table.row[table.first])
    none = np.full(len(channel), -1, np.int64)
    if not len(standing.keys):
        return none, none
    sides = [standing.at(r[table.first], channel) for r in (table.owner, table.peer)]
    first = [np.where(at >= 0, standing.first_seen[at], -1) for at in sides]
    last = [np.where(at >= 0, standing.last_sync[at], -1) for at in sides]
    return np.maximum(*first), np.minimum(*last)
