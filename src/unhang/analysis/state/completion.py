"""What "finished" means, recorder by recorder. Nothing else in the analysis reads raw states.

- NCCL and its relatives: the state or the time of completion; "retired" without it means that the
  call timed out. Members of a batch stay "scheduled": they follow the batch's closing entry. A call
  whose host has not come back from NCCL looks completed (its event was never recorded, and a device
  says of such an event that it has passed): the counters of its group do not have it yet.
- Gloo: "retired" (its states never change). It is also set after a failure, so a failed call is
  recognised elsewhere (see `unhang.analysis.state.progress`).
- Our own recorder's entries: "retired" or completed.
- torch's hook (from 2.14): the state, noticed about a second late; but members of a batch look
  completed as soon as they are made (`unproven_rows`).
- Recorders that never mark completion: nothing is known, and what all members have made is taken as
  finished, with a note.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.ops import PARTS, Demand, Names, demand_of
from unhang.analysis.state.recorders import Recorders, flags_of, recorder_of
from unhang.batches import Batches
from unhang.case import JOINED_BY_ENTRIES, ORIGIN_UNHANG, Calls, Case, Dump
from unhang.model import DumpStatus, Frame, Note, State
from unhang.spans import union
from unhang.wording import count_of

_UNEVEN = frozenset({"ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced"})
_COALESCED = frozenset({
    "coalesced", "allreduce_coalesced", "allgather_into_tensor_coalesced",
    "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced",
})  # fmt: skip
_MEMBERS = PARTS | _COALESCED - {"coalesced"}

IN_PARTS = _UNEVEN | _COALESCED | PARTS
"""Operations of collective calls that are made of several."""

_WAITING = frozenset({"send", "recv"})
_C10D = "torch/distributed/distributed_c10d.py"

_BLIND_ROWS = 8
_MOST_INSIDE = 64
"""Ranks that stand inside the library; more would be no hang of one."""


def finished_rows(
    case: Case,
    dumps: Sequence[Dump],
    names: Names,
    recorders: Recorders,
    batches: Batches,
) -> tuple[Bools, list[Note]]:
    """Tell for every row whether its call has finished."""
    calls = case.calls
    done = np.asarray(calls.state == State.COMPLETED)
    done |= calls.completed_ns > 0
    retires = flags_of(recorders, lambda recorder: recorder.ends_by_retiring)
    if retires.any():
        done |= calls.retired & retires[names.backend][calls.name]
    own = calls.origin == ORIGIN_UNHANG
    if own.any():
        done |= own & calls.retired
    done &= calls.state != State.FAILED
    done[_not_launched(case, names, recorders, batches, done)] = False
    done[_ended_too_early(case, dumps, recorders, batches, done)] = False
    done |= batches.closed & done[batches.last]
    done[_left_by_slow_parts(case, dumps, done)] = True
    done[_counted_as_over(case, dumps, names, recorders, batches, done)] = True
    notes = _left_open(case, dumps, names, recorders, batches, done)
    return done, [*notes, *_blind(case, dumps, names, recorders, batches, done)]


def _not_launched(
    case: Case, names: Names, recorders: Recorders, batches: Batches, done: Bools
) -> Ints:
    """Calls that look completed though their host is still inside the library's enqueue.

    No watchdog has retired them, and their numbers are above what their group has enqueued. Each is
    the last of its lane, behind a call that was retired: so one did look. Where calls of a lane are
    P2P, the counters mix two kinds of numbers and tell nothing (`mixing`).
    """
    calls, status = case.calls, case.group_status
    counted = flags_of(recorders, lambda recorder: recorder.counts_calls)[names.backend][calls.name]
    rows = np.flatnonzero(done & ~calls.retired & counted & (calls.group >= 0))
    if not len(rows) or not len(status):
        return np.zeros(0, np.int64)
    lane, at, known = _counters_of(case, rows)
    above = known & (calls.seq[rows] > status.last_enqueued[at])
    rows = rows[above & ~np.isin(lane[rows], lane[mixing(calls, batches.p2p)])][:_MOST_INSIDE]
    return np.asarray([r for r in rows.tolist() if _is_last_and_watched(calls, lane, r)], np.int64)


def _counters_of(case: Case, rows: Ints) -> tuple[Ints, Ints, Bools]:
    """The lane (dump and group) of every call; for some, the counters of theirs, if there are."""
    calls, status = case.calls, case.group_status
    width = len(case.groups) + 1
    lane = np.asarray(calls.dump, np.int64) * width + calls.group
    counted = np.asarray(status.dump, np.int64) * width + status.group
    order = np.argsort(counted, kind="stable")
    at: Ints = order[np.minimum(np.searchsorted(counted[order], lane[rows]), len(order) - 1)]
    known: Bools = counted[at] == lane[rows]
    return lane, at, known


def _counted_as_over(
    case: Case,
    dumps: Sequence[Dump],
    names: Names,
    recorders: Recorders,
    batches: Batches,
    done: Bools,
) -> Ints:
    """Collectives that a dump of unfinished calls still has though their group's counter passed.

    The members of a coalesced call stay "scheduled" for ever, and its closing entry, which would
    tell, is finished and left out: at the end of a dump no gap in its numbers shows that, so one
    without any finished call is taken as such. All other calls are there because they have not
    ended, whatever is counted: of calls on several tensors some end at once (`_ended_too_early`).
    Where calls of a lane are P2P, the counters tell nothing (`mixing`); and a call that failed is
    counted, too, and retired.
    """
    calls, status, active = case.calls, case.group_status, np.zeros(max(len(case.dumps), 1), bool)
    active[[d.index for d in dumps if d.active_only or not done[d.start : d.stop].any()]] = True
    counted = flags_of(recorders, lambda recorder: recorder.counts_calls)[names.backend]
    rows = np.flatnonzero(~done)
    rows = rows[active[calls.dump[rows]] & counted[calls.name[rows]] & (calls.group[rows] >= 0)]
    member = np.asarray([*(name.op in _MEMBERS for name in case.names), False])[calls.name[rows]]
    member &= ~batches.closed[rows] & ~batches.p2p[rows] & (calls.seq[rows] >= 0)
    rows = rows[member & ~calls.retired[rows]]
    if not len(rows) or not len(status):
        return np.zeros(0, np.int64)
    lane, at, known = _counters_of(case, rows)
    passed = known & (status.joined_by[at] == JOINED_BY_ENTRIES)
    passed &= calls.seq[rows] <= status.last_completed[at]
    found: Ints = rows[passed & ~np.isin(lane[rows], lane[mixing(calls, batches.p2p)])]
    return found


def mixing(calls: Calls, p2p: Bools) -> Bools:
    """Calls that show that their group's counters mix numbers of collectives and of exchanges.

    NCCL writes the number of whichever kind came last. A collective call says by its own P2P number
    how many sends and receives its rank had made before: a dump of unfinished calls, or a ring
    that is full, has left them out.
    """
    found: Bools = p2p | (calls.p2p_seq > 0)
    return found


def _left_by_slow_parts(case: Case, dumps: Sequence[Dump], done: Bools) -> Ints:
    """Parts of calls on uneven tensors that a dump of unfinished calls has without their end.

    torch makes such a call of one part a rank, which stay "scheduled", and one entry that closes
    them: were it unfinished, it would stand behind them. A dump that was cut may have lost it.
    """
    calls = case.calls
    active = np.zeros(max(len(case.dumps), 1), np.bool_)
    active[[d.index for d in dumps if d.active_only or d.status is not DumpStatus.OK]] = True
    opened = np.flatnonzero(~done)
    part = np.asarray([*(name.op in PARTS for name in case.names), False])[calls.name[opened]]
    end = np.asarray([*(name.op in _UNEVEN for name in case.names), False])[calls.name[opened]]
    rows = opened[part & active[calls.dump[opened]]]

    def key(rows: Ints) -> list[tuple[int, ...]]:
        columns = calls.dump[rows], calls.group[rows], calls.seq[rows]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    closed = set(key(opened[end]))
    return rows[np.asarray([each not in closed for each in key(rows)], np.bool_)]


def _is_last_and_watched(calls: Calls, lane: Ints, row: int) -> bool:
    same = np.flatnonzero(lane == lane[row])
    return bool(same[-1] == row and (len(same) == 1 or calls.retired[same[-2]]))


def _ended_too_early(
    case: Case, dumps: Sequence[Dump], recorders: Recorders, batches: Batches, done: Bools
) -> Ints:
    """Calls on several tensors at once that cannot have finished, since a member has not come.

    They say "completed" at once (seen on torch 2.8 to 2.13, where nothing is asynchronous): the
    event is recorded on another stream than they run on. So it is believed only as long as
    no rank's whole dump lacks the call, and its members agree or a later call has ended.
    """
    calls, early = case.calls, IN_PARTS - PARTS
    uneven = np.asarray([*(name.op in early for name in case.names), False])[calls.name]
    uneven &= ~batches.p2p
    rows = np.flatnonzero(done & uneven & (calls.seq >= 0) & (calls.group >= 0))
    if not len(rows):
        return rows
    marking = [dump for dump in dumps if recorder_of(recorders, dump).marks_ends]
    least = _made_by_all(case, marking)
    lacking: Ints = rows[calls.seq[rows] > least[calls.group[rows]]]
    return union(lacking, _unlike_before_open(case, batches, done, rows))


def _unlike_before_open(case: Case, batches: Batches, done: Bools, rows: Ints) -> Ints:
    """Of these calls, those that members made unlike, between what has ended and what is open."""
    calls, rows = case.calls, np.flatnonzero(np.isin(batches.last, rows))
    single = (calls.seq >= 0) & (calls.group >= 0) & ~batches.p2p
    ended, opened = (np.full(len(case.groups) + 1, -1, np.int64) for _ in range(2))
    plain, left = single & done, single & ~done[batches.last]
    plain[rows] = False
    np.maximum.at(ended, calls.group[plain], calls.seq[plain])
    np.maximum.at(opened, calls.group[left], calls.seq[left])
    seq, group = calls.seq[rows], calls.group[rows]
    place = np.stack([calls.group, calls.seq, batches.last - np.arange(len(calls))]).T
    made: dict[tuple[tuple[int, ...], Demand], list[int]] = defaultdict(list)
    for row in rows[(seq > ended[group]) & (seq < opened[group])].tolist():
        signature = case.signatures[int(calls.signature[row])]
        demand = demand_of(case.names[int(calls.name[row])], signature)
        made[tuple(place[row].tolist()), demand].append(row)
    sides = Counter((at, demand.family) for at, demand in made)
    unlike = [r for (at, d), own in made.items() if sides[at, d.family] > 1 for r in own]
    return np.asarray([*unlike, *batches.last[unlike].tolist()], np.int64)


def _made_by_all(case: Case, dumps: Sequence[Dump]) -> Ints:
    """Per group: the last collective that no rank's whole dump lacks."""
    calls, groups = case.calls, len(case.groups) + 1
    reached = np.full(len(case.dumps) * groups, -1, np.int64)
    lane = np.asarray(calls.dump, np.int64) * groups + calls.group
    np.maximum.at(reached, lane, calls.seq)
    least = np.full(groups, np.iinfo(np.int64).max)
    for dump in dumps:
        if dump.status is DumpStatus.OK and not dump.active_only:
            for group in dump.group_ids:
                least[group] = min(least[group], reached[dump.index * groups + group])
    return least


def _left_open(
    case: Case,
    dumps: Sequence[Dump],
    names: Names,
    recorders: Recorders,
    batches: Batches,
    done: Bools,
) -> list[Note]:
    """Close sends and receives of batches that nothing closes and that prove nothing, in place.

    Members never leave the state "scheduled". A dump of unfinished calls holds those of every batch
    in the ring and leaves the closing entries of finished ones out. A dump that was cut short may
    have lost one; and a batch that a CUDA graph captured has none. Only the last call of a thread
    may still be inside its batch. Where no rank batches, such a call is in flight; so is one behind
    which its thread recorded another call at once, where the closing entry would have to be.
    """
    calls = case.calls
    partial = np.zeros(max(len(case.dumps), 1), np.bool_)
    partial[[d.index for d in dumps if d.active_only or d.status is not DumpStatus.OK]] = True
    sees = flags_of(recorders, lambda recorder: recorder.sees_exchanges_end)
    closing = sees[names.backend][calls.name]  # others have no batches: what is open there is open
    rows = np.flatnonzero(~done & batches.p2p & ~batches.closed & closing)
    idle, newest = _counted(case, rows)
    newest &= np.bincount(batches.last[rows], minlength=1)[batches.last[rows]] == 1
    batching = _batching(names, batches, calls, rows) or bool(idle.any())
    lost = partial[calls.dump[rows]] & batching & ~newest
    lost &= ~_unclosed(calls, batches, rows)
    lost |= _gone_on(calls, batches, rows)
    over = rows[lost]
    done[over] = True
    if not len(over):
        return []
    text = (
        f"{len(over)} sends and receives without the entry that closes their batch are taken as "
        "finished: dumps of unfinished calls keep the members of finished batches, and those "
        "that a CUDA graph captured never get one."
    )
    return [Note("info", "completion", text)]


def _batching(names: Names, batches: Batches, calls: Calls, rows: Ints) -> bool:
    """Whether sends and receives are batched at all: one is closed, or several share a launch."""
    closing = bool((names.closing[calls.name] & batches.p2p).any())
    return closing or bool((batches.last[rows] != rows).any())


def _unclosed(calls: Calls, batches: Batches, rows: Ints) -> Bools:
    """Whether the next record of a launch's thread is another call, so that nothing closed it."""
    last = batches.last[rows]
    after = np.minimum(last + 1, max(len(calls) - 1, 0))
    follows = (calls.dump[after] == calls.dump[last]) & (calls.thread[last] >= 0)
    follows &= calls.thread[after] == calls.thread[last]
    found: Bools = follows & (calls.record_id[after] == calls.record_id[last] + 1)
    return found


def _counted(case: Case, rows: Ints) -> tuple[Bools, Bools]:
    """Of sends and receives: whether their lane's counters have nothing in flight, or just them.

    What is there all the same was launched in a batch, and is finished: alone, it would have been
    left out. In flight are those above the last completed number, up to the newest, if they are
    the last of their lane: an open batch would still have its closing entry, and an open
    collective call would stand behind them. Collectives and exchanges have numbers of their own:
    where the completed one is that of the last collective before, nothing is known.
    """
    calls, status = case.calls, case.group_status
    if not len(rows) or not len(status):
        return np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    lane, at, known = _counters_of(case, rows)
    known &= status.joined_by[at] == JOINED_BY_ENTRIES
    number, enqueued, completed = calls.p2p_seq, status.last_enqueued[at], status.last_completed[at]
    ends = np.full(int(lane.max()) + 1, -1, np.int64)
    np.maximum.at(ends, lane, np.arange(len(lane)))
    last = ends[lane[rows]]
    newest = known & np.isin(last, rows) & (number[last] == enqueued) & (number[rows] > completed)
    newest &= (number[rows] > 0) & (enqueued - number[rows] == last - rows)
    idle = known & (enqueued == completed) & (calls.seq[last] != completed)
    return idle & (completed > 0), newest


def _gone_on(calls: Calls, batches: Batches, rows: Ints) -> Bools:
    """Whether calls stand in a batch of several that was never closed, and their thread went on."""
    several = np.zeros(len(calls), np.bool_)
    numbered = rows[calls.p2p_seq[rows] > 0]
    several[batches.last[numbered[batches.last[numbered] != numbered]]] = True
    after = np.minimum(batches.last[rows] + 1, max(len(calls) - 1, 0))
    went_on = (calls.dump[after] == calls.dump[rows]) & (after > batches.last[rows])
    found: Bools = several[batches.last[rows]] & went_on
    return found


def unproven_rows(
    case: Case, names: Names, recorders: Recorders, batches: Batches, done: Bools
) -> Ints:
    """Sends and receives that count as finished though only their being made is shown.

    The thread that issues a batch gets its members back as completed: so they have all "ended"
    before the next call of their rank was made. A wait that was seen to end later is one, and so is
    one of a call that waits by itself.
    """
    sees = flags_of(recorders, lambda recorder: recorder.sees_exchanges_end)
    if sees.all():
        return np.zeros(0, np.int64)
    calls = case.calls
    rows = np.flatnonzero(done & batches.p2p & ~sees[names.backend][calls.name])
    marks = flags_of(recorders, lambda recorder: recorder.marks_ends)
    rows = rows[~(marks[names.backend][calls.name[rows]] & _waits_itself(case, rows))]
    after = np.minimum(rows + 1, max(len(calls) - 1, 0))
    last = (after == rows) | (calls.dump[after] != calls.dump[rows])
    found: Ints = rows[last | (calls.completed_ns[rows] <= calls.created_ns[after])]
    return found


def _waits_itself(case: Case, rows: Ints) -> Bools:
    """Whether calls were made by torch's `send` or `recv`, which are in no batch, by their stacks.

    Either calls `isend` or `irecv`, as a batch does; these are the innermost frames.
    """
    stacks = case.stacks
    waits = np.asarray(
        [
            frame.function in _WAITING and frame.file.endswith(_C10D)
            for frame in (*stacks.frames, Frame("", "", 0))
        ],
        np.bool_,
    )
    if not waits.any():
        return np.zeros(len(rows), np.bool_)
    second = np.append(stacks.offsets[:-1] + 1, 0)  # the last one is that of no stack
    there = np.append(second[:-1] < stacks.offsets[1:], False)
    frame = np.where(there, stacks.frame_ids[np.where(there, second, 0)], -1)
    found: Bools = waits[frame][case.calls.stack[rows]]
    return found


def _blind(
    case: Case,
    dumps: Sequence[Dump],
    names: Names,
    recorders: Recorders,
    batches: Batches,
    done: Bools,
) -> list[Note]:
    """Take as finished what all members have made where the recorder marks no end.

    One that takes all members and that only some have made cannot have ended; of all others
    nothing is known.
    """
    calls = case.calls
    suspects = [
        dump
        for dump in dumps
        if not dump.active_only
        and not recorder_of(recorders, dump).knows_ends
        and (dump.stop - dump.start >= _BLIND_ROWS or dump.recorder)
        and not done[dump.start : dump.stop].any()
    ]
    if not suspects:
        return []
    least = _made_by_all(case, suspects)
    for dump in suspects:
        rows = slice(dump.start, dump.stop)
        made = (calls.seq[rows] <= least[calls.group[rows]]) | batches.p2p[rows]
        made |= ~names.synchronising[calls.name[rows]]
        done[rows] = made & (calls.state[rows] != int(State.FAILED))
    text = (
        f"The recorder of {count_of(len(suspects), 'dump')} never marks a call as finished: the "
        "calls that all members have made are taken as finished."
    )
    return [Note("warning", "completion", text)]
