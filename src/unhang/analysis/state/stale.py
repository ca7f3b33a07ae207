"""Dumps that are older than their peers': snapshots of an earlier moment prove nothing of now.

A call that cannot finish before all members have called it, finished on one rank and never made by
another, is impossible within one moment. With a recorder that tells completion from device events
it follows that the other's dump is older. On Gloo, "retired" is also set when a call failed, so it
may as well mean that the call timed out: evidence of a failure decides between the two.

torch writes no time into its files, but some show it: NCCL's recorder asks the device at the
dump, and writes the answer into the copy that it dumps. A call that had started and not finished,
or finished and not been retired, carries that very moment.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import NEVER, Known, Standing
from unhang.case import Dump
from unhang.model import Note, State
from unhang.spans import distinct, highest, lowest, union

_ASKING_NS = 100_000_000
"""One dump asks the device about all of its calls within this time."""


class Moment(Struct, frozen=True, eq=False):
    """The case as of one moment.

    Attributes:
        evidence, standing: With failed calls open again, and nothing known of outdated ranks.
        outdated: Indices of ranks whose dumps are older than their peers'.
        notes: What was taken for what.
    """

    evidence: Evidence
    standing: Standing
    outdated: Ints
    notes: tuple[Note, ...] = ()


def same_moment(evidence: Evidence, standing: Standing) -> Moment:
    """Find the dumps that do not belong to the same moment, and calls that only seem finished."""
    gave_up_in = _ended_in(evidence, standing)
    evidence, standing = _reopened(evidence, standing, *gave_up_in)
    notes = _failure_notes(reopened=bool((gave_up_in[0] < NEVER).any()))
    behind = behind_peers(evidence, standing)
    if not len(behind):
        return Moment(evidence, standing, behind, notes)
    failed = failed_ranks(evidence)
    channel = standing.keys[behind] % standing.n_channels
    truthful = evidence.truthful
    owner = standing.keys // standing.n_channels
    by_failure = ~truthful[channel % len(evidence.backends)] & np.isin(
        channel, standing.keys[failed[owner]] % standing.n_channels
    )
    least = np.where(
        np.isin(np.arange(evidence.n_channels), channel[by_failure]),
        _least(evidence, standing),
        NEVER,
    )
    evidence, standing = _reopened(evidence, standing, least, failed)
    notes = notes or _failure_notes(reopened=bool(by_failure.any()))
    outdated = distinct(owner[behind[~by_failure]])
    if not len(outdated):
        return Moment(evidence, standing, outdated, notes)
    known = np.where(np.isin(owner, outdated), Known.UNKNOWN, standing.known)
    by_rank = standing.by_rank.copy()
    by_rank[outdated] = Known.UNKNOWN
    return Moment(
        evidence,
        replace(standing, known=known, by_rank=by_rank),
        outdated,
        (*notes, *_outdated_notes(evidence, outdated)),
    )


def made_ns(evidence: Evidence) -> Ints:
    """When each dump of the case was made, as it says or shows; 0 where it does neither."""
    made = np.zeros(max(len(evidence.case.dumps), 1), np.int64)
    showing = [each for each in evidence.dumps if _shows(each)]
    made[[each.index for each in showing]] = _asked_ns(evidence, showing)
    for dump in evidence.dumps:
        if dump.time_ns:
            made[dump.index] = dump.time_ns
    return made


def newest_ns(evidence: Evidence) -> Ints:
    """When the newest call of each dump was made; it was written no earlier."""
    newest = np.zeros(max(len(evidence.case.dumps), 1), np.int64)
    starts, stops = [d.start for d in evidence.dumps], [d.stop for d in evidence.dumps]
    places = [dump.index for dump in evidence.dumps]
    newest[places] = highest(evidence.case.calls.created_ns, starts, stops)
    return newest


def written_ns(evidence: Evidence) -> Ints:
    """When the file of each dump was written; 0 where unknown, or clocks do not agree."""
    written = np.zeros(max(len(evidence.case.dumps), 1), np.int64)
    newest = newest_ns(evidence).tolist()
    for dump in evidence.dumps:
        if 0 < dump.written_ns < newest[dump.index]:
            return np.zeros_like(written)
        written[dump.index] = dump.written_ns if newest[dump.index] > 0 else 0
    return written


def _shows(dump: Dump) -> bool:
    return dump.backend == "nccl" and dump.reported_by == "torch" and not dump.time_ns


def _asked_ns(evidence: Evidence, dumps: Sequence[Dump]) -> Ints:
    """When the device was asked for each dump; 0 where its calls do not agree about it."""
    calls, last = evidence.case.calls, evidence.batches.last
    running = np.flatnonzero(calls.state == State.STARTED)
    fresh = np.flatnonzero((calls.state == State.COMPLETED) & ~calls.retired)
    running, fresh = (rows[last[rows] == rows] for rows in (running, fresh))
    rows = np.r_[running, fresh]
    asked = np.r_[calls.started_ns[running], calls.completed_ns[fresh]]
    order = np.argsort(rows, kind="stable")
    rows, asked = rows[order], asked[order]
    spans = np.array([(each.start, each.stop) for each in dumps], np.int64).reshape(-1, 2)
    begins, ends = np.searchsorted(rows, spans.T)
    first, newest = lowest(asked, begins, ends), highest(asked, begins, ends)
    return np.where((first > 0) & (newest - first <= _ASKING_NS), newest, 0)


def behind_peers(evidence: Evidence, standing: Standing) -> Ints:
    """Rows of `standing` whose rank never made a call that could not finish without it."""
    channel = standing.keys % standing.n_channels
    furthest = np.full(evidence.n_channels, -1, np.int64)
    np.maximum.at(furthest, channel, standing.last_sync)
    behind = (standing.reach < furthest[channel]) & (standing.known >= Known.INFERRED)
    return np.flatnonzero(behind)


def failed_ranks(evidence: Evidence, *, ended: bool = False) -> Bools:
    """Indices of ranks that say themselves that one of their calls failed.

    Args:
        evidence: With what dumps and logs say.
        ended: Only those that ended by it: by their dumps, or, where these are of the moment of the
            failure, by how their processes ended.
    """
    failed = np.zeros(max(len(evidence.ranks), 1), np.bool_)
    lost = {each.rank for each in evidence.case.samples if each.lost_ns and each.exit_status}
    for owner, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        by_it = _ended_by_it(dump)  # and by a call from C++, whose failure is not noted
        if dump.failures:
            by_it = by_it or not ended or dump.rank in lost
        failed[owner] |= by_it
    if ended:
        return failed
    loud = [event.rank for event in evidence.case.log_events if event.role == "consequence"]
    indices = evidence.ranks.index_of(loud)
    failed[indices[indices >= 0]] = True
    return failed


def _ended_in(evidence: Evidence, standing: Standing) -> tuple[Ints, Bools]:
    """Calls of Gloo in which ranks gave up and ended, where some member left nothing at all.

    No rank is seen to be behind there. But a call that raised because a peer did not come, or was
    gone, has not finished, and it is the last one of its rank.

    Returns:
        Per channel the call before that, `NEVER` for none; and which ranks gave up.
    """
    gave_up, last_row = failed_ranks(evidence, ended=True), np.full(len(evidence.ranks) + 1, -1)
    owner, channel = standing.keys // standing.n_channels, standing.keys % standing.n_channels
    np.maximum.at(last_row, owner, standing.last_row)
    furthest = np.full(evidence.n_channels, -1, np.int64)
    np.maximum.at(furthest, channel, standing.reach)
    gave_up_there = gave_up[owner] & (standing.last_row == last_row[owner])
    least = np.full(evidence.n_channels, NEVER)
    for each in distinct(channel[gave_up_there & (standing.reach == furthest[channel])]).tolist():
        gloo = not evidence.truthful[each % len(evidence.backends)]
        if gloo and not np.isin(evidence.members(each), evidence.owner).all():
            least[each] = furthest[each] - 1
    return least, gave_up


def _least(evidence: Evidence, standing: Standing) -> Ints:
    """Per channel, the last call of the member that is known to have come least far."""
    least = np.full(evidence.n_channels, NEVER)
    sure = standing.known >= Known.INFERRED
    np.minimum.at(least, standing.keys[sure] % standing.n_channels, standing.reach[sure])
    return least


def _reopened(
    evidence: Evidence, standing: Standing, least: Ints, failed: Bools
) -> tuple[Evidence, Standing]:
    """Take back that calls of ranks that failed have finished, from those after `least` on."""
    owner, channel = standing.keys // standing.n_channels, standing.keys % standing.n_channels
    touched = (standing.reach > least[channel]) & failed[owner]
    if not touched.any():
        return evidence, standing
    open_from = np.where(
        touched, np.minimum(standing.open_from, least[channel] + 1), standing.open_from
    )
    finished = evidence.finished.copy()
    rows = [
        _rows_after(evidence, int(owner[key]), int(channel[key]), int(least[channel[key]]))
        for key in np.flatnonzero(touched).tolist()
    ]
    reopened = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    finished[reopened] = False
    opened = union(evidence.open_rows, reopened)
    last_sync = np.where(
        touched, np.minimum(standing.last_sync, least[channel]), standing.last_sync
    )
    return (
        replace(evidence, finished=finished, open_rows=opened),
        replace(standing, open_from=open_from, last_sync=last_sync),
    )


def _ended_by_it(dump: Dump) -> bool:
    """Whether its last exception is the failure of a call for want of a peer."""
    if not dump.exception:
        return False
    from unhang.logs.following import follows

    return follows(dump.exception, dump.exception_stack)


def _rows_after(evidence: Evidence, owner: int, channel: int, seq: int) -> Ints:
    found = []
    for index, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        if index == owner:
            span = slice(dump.start, dump.stop)
            wanted = evidence.collective[span] & (evidence.channel(span) == channel)
            wanted &= evidence.case.calls.seq[span] > seq
            found.append(np.flatnonzero(wanted) + dump.start)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _failure_notes(*, reopened: bool) -> tuple[Note, ...]:
    if not reopened:
        return ()
    text = (
        "Calls that Gloo marks as retired, and that not all members are known to have made, are "
        "taken as failed: the ranks report failures."
    )
    return (Note("info", "completion", text),)


def _outdated_notes(evidence: Evidence, outdated: Ints) -> tuple[Note, ...]:
    from unhang.wording import rank_phrase

    text = (
        f"The dumps of {rank_phrase(evidence.ranks.named(outdated))} are older than those of their "
        "peers, which finished calls that need all members and that these dumps lack."
    )
    return (Note("warning", "time of dumps", text),)
