"""Sends and receives that look finished, and cannot be: what they meet was never made.

Where a recorder shows of exchanges only that they were made (torch's hook: members of a batch read
completed as soon as they are issued), they are counted: the n-th send from one rank to another
meets the n-th receive there. One that nothing meets has not ended, and its rank waits in it.

Counting needs a beginning that both sides have: their first calls, or the last collective of the
group that both have finished. Whatever was made before that, its device had done by then.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unhang.analysis.matching.segments import Segments, met_by_anyone, segments_of, whole_ranks
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Standing
from unhang.model import DumpStatus
from unhang.spans import union, without

__all__ = ["with_unproven_ends"]


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
    at = np.flatnonzero(unmet)
    return np.sort(table.row[at[~met_by_anyone(evidence, table, at)]])


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
