"""Whether calls that are open are old, or as young as open calls usually are.

A healthy job that is dumped in mid-flight has open calls too. The age of one follows from
when its dump was made. Where the dump does not say so, by its file, which is never younger than the
dump: a file almost as old as the newest call in it shows that the job was moving, and one that was
copied proves nothing. That is weighed against how far apart such calls usually are. Below a second
a call is young whatever its rhythm, unless its host has gone on for longer than such calls usually
take, and it still was the next to finish. Where no finished call shows how long they take, a host
that was making calls until its dump was written shows no more than that it runs ahead. Of calls
that a host made ahead, each is as old as the end of the one before it (`unhang.turns`). Files that
are older than calls in them were written by another clock than the calls: then no file shows
anything.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.stale import made_ns, newest_ns, written_ns
from unhang.turns import begun_ns, turn_ns

_JUST_BEGUN_NS = 10**9
"""A call younger than this when its dump was made is in flight rather than stuck."""

_ROUND_NS = 10**8
"""NCCL's watchdog looks ten times a second: ends of calls are known no better."""

_WRITING_NS = 2 * 10**6
"""For each call in a dump, how long it may take to write it: those of moving jobs lay up to 4.5 s
behind their newest call (2,000 calls, six processes to a core), and up to 0.8 s with few calls.
Those of jobs that hang, with 31 calls, from 2.1 s on."""

_AHEAD_NS = 30 * 10**9
"""A host runs ahead of its device by no more than a step, and long ones take about as long. Dumps
of jobs that moved and of such whose device had stopped were alike when both were 2 to 4 s old. None
was recorded that moved and was older: between 4 and 30 s the number is caution, not measurement."""

_MOST_NS = 60 * 10**9
_LONGEST_NS = 240 * 10**9
_TURNS = 1.5
_TURNS_APART = 4


Column = TypeVar("Column", Bools, Ints)


class Ages(Struct, frozen=True):
    """How old the heads of ranks are.

    Attributes:
        waited_ns: Per rank, how long its head had been the next to finish when its dump was made;
            -1 unknown.
        young: Per rank: its head is no older than such calls usually are.
        old: Per rank: its head is known to be older.
        unproven: Per rank: its head is older by its file, while files of peers show young ones.
        stood: Per rank: while its head was the next to finish, its host has made calls for longer
            than such calls usually take.
        unpaced: Per rank: it looks so, but nothing shows how long such calls take, and its head is
            young: a host that runs ahead of its device looks the same.
        unnoticed: Per rank: its head was made so short a time before that its recorder may not have
            noticed its end yet.
        queued: Per rank: its host has made calls ahead, and its dump hides those that have ended:
            so its head may have become the next to finish at any time since.
        slowly: Per rank: its dump has so many calls that writing it may have taken most of the time
            by which its file is older than its head.
    """

    waited_ns: Ints
    young: Bools
    old: Bools
    unproven: Bools
    stood: Bools
    unpaced: Bools
    unnoticed: Bools
    queued: Bools
    slowly: Bools


def ages_of(evidence: Evidence, heads: Heads, outdated: Ints) -> Ages:
    """Weigh the age of every head.

    Args:
        evidence: The case.
        heads: Of all ranks.
        outdated: Ranks (indices) whose dumps are of an earlier moment than their peers'.
    """
    calls = evidence.case.calls
    waited = np.full(len(heads.row), -1, np.int64)
    at_most = waited.copy()
    ranks = np.flatnonzero(heads.row >= 0)
    rows = heads.row[ranks]
    paces = np.asarray([_pace(evidence, row) for row in rows.tolist()], np.int64).reshape(-1, 2)
    begun, dump = paces[:, 0], calls.dump[rows]
    for found, made in ((waited, made_ns(evidence)), (at_most, written_ns(evidence))):
        known = (made[dump] > 0) & (begun > 0)
        found[ranks[known]] = np.maximum(made[dump] - begun, 0)[known]
    turns = np.full(len(heads.row), -1, np.int64)
    turns[ranks] = paces[:, 1]
    usual = np.clip((_TURNS * turns).astype(np.int64), _JUST_BEGUN_NS, _MOST_NS)
    late = np.zeros(len(heads.row), np.int64)
    late[ranks] = _noticed_late_ns(evidence, rows)
    usual += late
    waited[_lost_the_head(evidence, heads)] = -1
    young = (waited >= 0) & (waited < usual)
    told = (waited < 0) & (at_most >= 0)
    at_least = np.full(len(heads.row), -1, np.int64)
    at_least[ranks] = np.where(begun > 0, newest_ns(evidence)[dump] - begun, -1)
    passed = at_least > _TURNS * np.maximum(turns, _ROUND_NS) + late
    hides = _hides_finished(evidence, heads)
    unpaced = passed & hides
    running = unpaced & _until_written(evidence, heads)
    stood = passed & ~running & (~unpaced | (at_least > _JUST_BEGUN_NS))
    # Elsewhere calls begin at the ends before them, which have been noticed as late.
    usual = np.where(stood, 0, _JUST_BEGUN_NS) + np.where(hides, late, 0)
    usual = np.maximum(usual, _TURNS * turns)
    most = _most_ns(evidence, heads)
    fresh = at_most < np.minimum(_AHEAD_NS, most)
    by_file = told & (at_most < np.minimum(usual, most))
    moving = (waited < 0) & _just_after(evidence, heads, turns, outdated)
    # Where a file shows that the job moved, those of more calls were written more slowly.
    at_most -= np.where(told, _by_head(evidence, heads, _slow_ns(evidence)), 0)
    slower = told & (turns > 0) & ~stood & (at_most < usual)
    young |= by_file | moving | running | (slower & by_file.any())
    unproven = told & (turns > 0) & ~young & by_file.any()
    old = (waited >= 0) & ~young
    unnoticed = _unnoticed(evidence, heads, late)
    stood &= ~young
    queued = hides & told & fresh & ~stood & _runs_ahead(evidence, heads)
    slowly = told & ~stood & ~hides & (at_most < np.minimum(usual, most))
    return Ages(waited, young, old, unproven, stood, unpaced & young, unnoticed, queued, slowly)


def _runs_ahead(evidence: Evidence, heads: Heads) -> Bools:
    """Per rank: behind its head there are calls of the same group that have not ended either."""
    opened = evidence.open_rows
    owners, channels = evidence.owner_of(opened), evidence.channel(opened)
    head = heads.row[owners]
    behind = evidence.collective[opened] & (head >= 0) & (opened != head)
    behind &= channels == evidence.channel(np.maximum(head, 0))
    found = np.zeros(len(heads.row), np.bool_)
    found[owners[behind]] = True
    return found


def _unnoticed(evidence: Evidence, heads: Heads, late: Ints) -> Bools:
    """Per rank: its recorder may not have seen the end of its head yet.

    The head was made so lately, or a peer's recorder has seen it end so lately. Where a file shows
    that, those of more calls were written more slowly.
    """
    made, calls = made_ns(evidence), evidence.case.calls
    moment = np.where(made > 0, made, written_ns(evidence))
    since = np.full(len(heads.row), _LONGEST_NS, np.int64)
    ranks = np.flatnonzero((heads.row >= 0) & (late > 0))
    rows = heads.row[ranks]
    begun = np.maximum(calls.created_ns[rows], _seen_to_end_ns(evidence, rows))
    moment = moment[calls.dump[rows]]
    since[ranks] = np.where((moment > 0) & (begun > 0), moment - begun, _LONGEST_NS)
    lately = since < _JUST_BEGUN_NS + late
    since -= _by_head(evidence, heads, _slow_ns(evidence))
    return lately | ((since < _JUST_BEGUN_NS + late) & lately.any())


def _seen_to_end_ns(evidence: Evidence, rows: Ints) -> Ints:
    """When the first peer's recorder saw the same collectives end; 0 where none did."""
    calls = evidence.case.calls
    alike = np.flatnonzero(np.isin(calls.seq, calls.seq[rows]))  # few of all calls
    seen = evidence.finished[alike] & evidence.collective[alike] & (calls.completed_ns[alike] > 0)
    ended = alike[seen]
    width = int(calls.seq.max(initial=0)) + 2
    place = evidence.channel(ended) * width + calls.seq[ended]
    wanted = evidence.channel(rows) * width + calls.seq[rows]
    wanted[~evidence.collective[rows]] = -1
    order = np.lexsort((calls.completed_ns[ended], place))
    at = np.searchsorted(place[order], wanted)
    there = at < len(order)
    first = ended[order[np.where(there, at, 0)]] if len(order) else rows
    there &= np.isin(wanted, place)
    return np.where(there, calls.completed_ns[first], 0)


def _noticed_late_ns(evidence: Evidence, rows: Ints) -> Ints:
    """How much older than they are calls may look, by the recorder that looks for their ends."""
    late = np.asarray([kind.notices_ns for kind in evidence.recorders.values()], np.int64)
    found: Ints = late[evidence.names.backend[evidence.case.calls.name[rows]]]
    return found


def _hides_finished(evidence: Evidence, heads: Heads) -> Bools:
    """Per rank: its dump shows no finished call, so that none shows how far apart calls are.

    It leaves them out, or its ring is full of calls that the host has made ahead.
    """
    dumps, done = evidence.case.dumps, evidence.finished
    hides = [each.active_only or not done[each.start : each.stop].any() for each in dumps]
    return _by_head(evidence, heads, np.asarray(hides, np.bool_)) | _lost_the_head(evidence, heads)


def _lost_the_head(evidence: Evidence, heads: Heads) -> Bools:
    """Per rank: calls have been lost from its ring before one that is open: those may be, too.

    What looks like the head then is any of the calls that its host has made ahead.
    """
    dumps, done = evidence.case.dumps, evidence.finished
    lost = [
        each.first_record_id > 0
        and not each.active_only
        and each.start < each.stop
        and not done[each.start]
        for each in dumps
    ]
    return _by_head(evidence, heads, np.asarray(lost, np.bool_))


def _slow_ns(evidence: Evidence) -> Ints:
    """How long each dump may have taken to write."""
    size = np.zeros(max(len(evidence.case.dumps), 1), np.int64)
    for dump in evidence.dumps:
        size[dump.index] = dump.stop - dump.start
    return _WRITING_NS * size


def _until_written(evidence: Evidence, heads: Heads) -> Bools:
    """Per rank: its host was making calls when its dump was written, as far as its file tells."""
    since = written_ns(evidence) - newest_ns(evidence)
    fresh = since < _JUST_BEGUN_NS + _slow_ns(evidence)
    return _by_head(evidence, heads, (since > 0) & fresh)


def _by_head(evidence: Evidence, heads: Heads, of_dumps: Column) -> Column:
    """What is true of the dump of each rank's head; False or 0 for ranks without one."""
    found = np.zeros(len(heads.row), of_dumps.dtype)
    ranks = np.flatnonzero(heads.row >= 0)
    found[ranks] = of_dumps[evidence.case.calls.dump[heads.row[ranks]]]
    return found


def _most_ns(evidence: Evidence, heads: Heads) -> Ints:
    """Per rank: no head as old as this is in flight, whatever the rhythm, as time-outs go."""
    timeout_ms = np.zeros(len(heads.row), np.int64)  # of ranks, some or all without a call
    timeout_ms[heads.row >= 0] = evidence.case.calls.timeout_ms[heads.row[heads.row >= 0]]
    known = timeout_ms > 0
    return np.where(known, np.minimum(timeout_ms * 10**6 // 2, _LONGEST_NS), _LONGEST_NS)


def _pace(evidence: Evidence, row: int) -> tuple[int, int]:
    """When a call began, and how far apart calls like it usually do on their rank; -1 unknown."""
    calls = evidence.case.calls
    dump = evidence.case.dumps[int(calls.dump[row])]
    told = dict(dump.window.turns).get(row - dump.start)
    if row == dump.start:
        return max(int(calls.created_ns[row]), 0), -1 if told is None else told
    lane = dump.start + np.flatnonzero(calls.group[dump.start : row + 1] == calls.group[row])
    begun = begun_ns(calls.created_ns[lane], calls.completed_ns[lane], calls.retired[lane])
    if dump.few_times or told is not None:
        return int(begun[-1]), -1 if told is None else told
    alike = (calls.name[lane] == calls.name[row]) & (calls.stack[lane] == calls.stack[row])
    alike[-1] = False
    return int(begun[-1]), turn_ns(begun[alike & evidence.finished[lane]])


def _just_after(evidence: Evidence, heads: Heads, turns: Ints, outdated: Ints) -> Bools:
    """Heads that began a few turns after dumps that the job has left behind since.

    Dumps that were written one after another while the job moved look like this; that it stopped
    for good within these few turns would be a coincidence. A recorder that takes a failed call for
    a finished one shows the same of a job that has failed.
    """
    found = np.zeros(len(heads.row), np.bool_)
    dumps = zip(evidence.owner.tolist(), evidence.dumps, strict=True)
    older = [dump for owner, dump in dumps if owner in outdated]
    if not older or not all(evidence.recorder_of(dump).marks_ends for dump in older):
        return found
    created = evidence.case.calls.created_ns
    left = [int(created[dump.start : dump.stop].max(initial=0)) for dump in older]
    ranks = np.flatnonzero((heads.row >= 0) & (turns > 0))
    if min(left) > 0:
        since = created[heads.row[ranks]] - min(left)
        found[ranks] = (since >= 0) & (since <= _TURNS_APART * turns[ranks])
    return found
