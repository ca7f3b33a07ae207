"""Sends and receives that have ended, or that no rank can wait for, though they still look open.

Gloo shows an end only to a rank that waits for it: a receive that was posted ahead looks open until
then, wherever its rank stands. Gloo's send and receive meet before any data go, so the end of one
side is, but for moments, that of the other. What a program has let go of without waiting blocks
no rank. Neither is what a rank waits in.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unhang.analysis.matching.segments import (
    Segments,
    is_whole,
    met_by_anyone,
    open_exchanges,
    segments_of,
    taken,
)
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.index import Evidence
from unhang.bounds import MOST_OPEN_TAGS
from unhang.spans import union, without


def with_unseen_ends(evidence: Evidence) -> Evidence:
    """Take as finished what Gloo has in flight by its own word and not in truth."""
    opened = open_exchanges(evidence)
    opened = opened[taken(evidence, opened)]
    if not len(opened):
        return evidence
    ended, let_go = _ended_there(evidence, opened), _let_go(evidence, opened)
    over = union(ended, let_go)
    finished = evidence.finished.copy()
    finished[over] = True
    return replace(
        evidence,
        finished=finished,
        open_rows=without(evidence.open_rows, over),
        unseen_ends=np.setxor1d(ended, let_go, assume_unique=True),
    )


def _ended_there(evidence: Evidence, opened: Ints) -> Ints:
    """Calls whose counterpart by number was seen to end.

    Tags may let calls meet in another order. So of each segment no more are taken than the other
    side has finished beyond this one, and none where either side's first calls are not there to be
    counted, or where a receive from any source may have been the one that met.
    """
    table = segments_of(evidence, opened)
    other = table.other[table.segment]
    whole = _whole_segments(evidence, table)
    at = np.flatnonzero(np.isin(table.row, opened) & (other >= 0))
    at = at[whole[table.segment[at]] & whole[other[at]]]
    at = at[~met_by_anyone(evidence, table, at)]
    segment, other = table.segment[at], other[at]
    wanted = at - table.first[segment]
    there = wanted < table.length[other]
    at, segment, other, wanted = at[there], segment[there], other[there], wanted[there]
    ended = evidence.finished[table.row[table.first[other] + wanted]]
    at, segment, other = at[ended], segment[ended], other[ended]
    nth = np.arange(len(at)) - np.searchsorted(segment, segment)
    found: Ints = table.row[at[nth < table.finished[other] - table.finished[segment]]]
    return np.sort(found)


def _whole_segments(evidence: Evidence, table: Segments) -> Bools:
    """Segments that are there from the first call on, by the dump that they are in."""
    case = evidence.case
    whole = np.zeros(len(case.dumps), np.bool_)
    whole[[dump.index for dump in evidence.dumps if is_whole(dump)]] = True
    found: Bools = whole[case.calls.dump[table.row[table.first]]]
    return found


def _let_go(evidence: Evidence, opened: Ints) -> Ints:
    """Calls that their dump does not count among those for whose end a program may wait.

    It lists the newest of these: what is older than a full list is not known.
    """
    parts: list[Ints] = [np.zeros(0, np.int64)]
    for dump in evidence.dumps:
        if dump.open_tags is not None:
            rows = opened[slice(*np.searchsorted(opened, (dump.start, dump.stop)).tolist())]
            ids = np.asarray(evidence.case.calls.record_id[rows], np.int64)
            listed = np.asarray([number for number, _ in dump.open_tags], np.int64)
            oldest = listed.min() if len(listed) >= MOST_OPEN_TAGS else 0
            unlisted = rows[~np.isin(ids, listed) & (ids >= oldest)]
            parts.append(unlisted)
    return np.sort(np.concatenate(parts))
