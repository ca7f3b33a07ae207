"""What may hang although every call that was recorded has ended: it leaves no trace in the dumps.

Dumps in which nothing is open are those of a job that is idle, as long as an open call would be in
them. Three kinds are not: see `NoTrace`. Then the job may be idle, and nothing shows that it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import Enum, auto

import numpy as np

from unhang.analysis.state.completion import IN_PARTS
from unhang.analysis.state.index import Evidence
from unhang.case import Dump
from unhang.model import DumpStatus


class NoTrace(Enum):
    """Why a call that hangs would not show."""

    FIRST_CALLS = auto()
    """A rank is in its first step: no group of it has come to a second call. Whichever comes next
    may be the first of its group, which is recorded once the communicator is there."""
    PARTS = auto()
    """What a rank called last is made of several calls, whose end is recorded too early."""
    BATCHES = auto()
    """Batches count as ended once they are made, and dumps of unfinished calls leave them out."""


def no_trace_in(evidence: Evidence) -> tuple[NoTrace, list[int]] | None:
    """Why nothing can be concluded from dumps without an open call, and the ranks concerned.

    Args:
        evidence: Of a case in which every recorded call has ended.

    Returns:
        The first reason that holds of any rank, with those ranks (indices); None where a call that
        hangs would show.
    """
    reasons: dict[NoTrace, Callable[[Evidence, Dump], bool]] = {
        NoTrace.FIRST_CALLS: is_in_first_step,
        NoTrace.PARTS: _ends_in_parts,
        NoTrace.BATCHES: _leaves_batches_out,
    }
    if evidence.case.samples:  # where ranks stand, their stacks tell
        return None
    owners = list(zip(evidence.owner.tolist(), evidence.dumps, strict=True))
    for why, holds in reasons.items():
        if found := sorted({owner for owner, dump in owners if holds(evidence, dump)}):
            return why, found
    return None


def is_in_first_step(evidence: Evidence, dump: Dump) -> bool:
    """Whether no group of a rank has come to a second call, by a dump that would show it."""
    calls, status = evidence.case.calls, evidence.case.group_status
    if dump.status is not DumpStatus.OK or not evidence.recorder_of(dump).records_late:
        return False
    own = slice(dump.start, dump.stop)
    numbers = (calls.seq[own], calls.p2p_seq[own], status.last_enqueued[status.dump == dump.index])
    return int(np.concatenate(numbers).max(initial=0)) <= 1


def _ends_in_parts(evidence: Evidence, dump: Dump) -> bool:
    case, last = evidence.case, dump.stop - 1
    if dump.start == dump.stop or not evidence.recorder_of(dump).ends_parts_early:
        return False
    return bool(evidence.collective[last]) and case.names[case.calls.name[last]].op in IN_PARTS


def _leaves_batches_out(evidence: Evidence, dump: Dump) -> bool:
    kind = evidence.recorder_of(dump)
    return dump.active_only and kind.marks_ends and not kind.sees_exchanges_end


def may_be_in_a_batch(evidence: Evidence, absent: int, waiting: Sequence[int], group: int) -> bool:
    """Whether a rank that lacks a call may be in a batch, or have finished the call.

    So it is where its dump leaves both out and its counters, which count all that torch's hook has
    seen, are as far as those of a rank that waits in the call. In another group, where they are
    further than those of any other member: what it made there that member has not.

    Args:
        evidence: The case.
        absent: The rank (index).
        waiting: Ranks that wait.
        group: Of the call.
    """
    counters = _counters(evidence, hiding_only=True)
    mine = counters.get(absent, {})
    if any(mine.get(group, -1) >= counters.get(rank, {}).get(group, 0) for rank in waiting):
        return True
    return any(
        count > theirs.get(each, count)
        for each, count in mine.items()
        for theirs in counters.values()
        if each != group
    )


def least_far(
    evidence: Evidence, absent: Sequence[int], waiting: Sequence[int], group: int
) -> Sequence[int]:
    """Of several ranks that lack a call, those that wait for no other, as far as dumps can show it.

    Dumps that leave batches out prove that a rank did not make the call, and not that it waits in
    no batch for another of them. How far it has come, its counters tell: where those of all ranks
    in the call are equal, the rank with the least is the reason. Else no rank is named.

    Args:
        evidence: The case.
        absent: The ranks (indices).
        waiting: Ranks that wait in the call.
        group: Of the call.
    """
    if len(absent) == 1 or not exchanged_unseen(evidence, waiting, group):
        return absent
    counters = _counters(evidence, hiding_only=False)
    theirs, mine = ([counters.get(r, {}).get(group, -1) for r in own] for own in (waiting, absent))
    told = len(waiting) > 1 and len({*theirs}) == 1 and min(mine) >= 0
    return (absent[mine.index(min(mine))],) if told and mine.count(min(mine)) == 1 else ()


def exchanged_unseen(evidence: Evidence, waiting: Sequence[int], group: int) -> bool:
    """Whether dumps left sends and receives out that ranks (indices) made in a group."""
    calls, hides = evidence.case.calls, np.zeros(max(len(evidence.case.dumps), 1), np.bool_)
    hides[[dump.index for dump in evidence.dumps if _leaves_batches_out(evidence, dump)]] = True
    rows = evidence.open_rows[hides[calls.dump[evidence.open_rows]]]
    rows = rows[(calls.group[rows] == group) & np.isin(evidence.owner_of(rows), waiting)]
    return bool((calls.p2p_seq[rows] > 0).any())


def _counters(evidence: Evidence, *, hiding_only: bool) -> dict[int, dict[int, int]]:
    """How many calls each rank (index) has made in each group, by its counters, where known.

    Args:
        evidence: The case.
        hiding_only: Of dumps that leave batches out, and of no others.
    """
    dumps = zip(evidence.owner.tolist(), evidence.dumps, strict=True)
    owners = {
        d.index: owner for owner, d in dumps if not hiding_only or _leaves_batches_out(evidence, d)
    }
    status = evidence.case.group_status
    found: dict[int, dict[int, int]] = defaultdict(dict)
    known = np.isin(status.dump, list(owners)) & (status.group >= 0) & (status.last_enqueued >= 0)
    columns = (status.dump, status.group, status.last_enqueued)
    rows = zip(*(column[known].tolist() for column in columns), strict=True)
    for dump, group, count in rows:
        own = found[owners[dump]]
        own[group] = max(own.get(group, 0), count)
    return found
