"""What "finished" means, recorder by recorder. Nothing else in the analysis reads raw states.

- NCCL and its relatives: the state or the time of completion; "retired" without it means that the
  call timed out. Members of a batch stay "scheduled": they follow the batch's closing entry.
- Gloo: "retired" (its states never change). It is also set after a failure, so a failed call is
  told from elsewhere (see `unhang.analysis.standing`).
- Our own recorder's entries: "retired" or completed.
- Recorders that never mark completion: nothing is known, and only the last call of each rank is
  taken as possibly open, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unhang.analysis.evidence import Bools, Ints, Names
from unhang.case import ORIGIN_UNHANG, Case, Dump
from unhang.model import DumpStatus, Note, State

__all__ = ["TRUTHFUL", "finished_rows"]

TRUTHFUL = frozenset(
    {"nccl", "ncclx", "nccl2", "nccl-lazy", "xccl", "rccl", "rcclx", "mccl", "hccl", "bccl"}
)
"""Backends whose recorder marks completion from device events."""

_BY_RETIREMENT = frozenset({"gloo"})
_BLIND_ROWS = 8


def finished_rows(
    case: Case,
    dumps: Sequence[Dump],
    names: Names,
    backends: Sequence[str],
    collective: Bools,
) -> tuple[Bools, list[Note]]:
    """Tell for every row whether its call has finished."""
    calls = case.calls
    done = np.asarray(calls.state == State.COMPLETED)
    done |= calls.completed_ns > 0
    if _BY_RETIREMENT & set(backends):
        retires = np.asarray([backend in _BY_RETIREMENT for backend in backends])
        done |= calls.retired & retires[names.backend][calls.name]
    own = calls.origin == ORIGIN_UNHANG
    if own.any():
        done |= own & calls.retired
    done &= calls.state != State.FAILED
    _follow_closing(case, names, collective, done)
    notes = _left_over(case, dumps, names, collective, done)
    return done, [*notes, *_blind(case, dumps, backends, done)]


def _follow_closing(case: Case, names: Names, collective: Bools, done: Bools) -> None:
    """Give members of a batch the state of the entry that closes it, in place.

    A batch is one rank's calls of one group under one number (of its own kind); the closing entry
    comes after its members. Other threads' calls may stand between them.
    """
    if not names.closing.any():
        return
    calls = case.calls
    closing = np.flatnonzero(names.closing[calls.name] & done)
    members = np.flatnonzero(~done)
    if not len(closing) or not len(members):
        return
    at = np.searchsorted(closing, members)
    for _ in range(4):  # threads of one process interleave a little, never by much
        within = at < len(closing)
        members, at = members[within], at[within]
        follows = _same_batch(case, collective, members, closing[at])
        done[members[follows]] = True
        members, at = members[~follows], at[~follows] + 1


def _same_batch(case: Case, collective: Bools, left: Ints, right: Ints) -> Bools:
    calls = case.calls
    number_left = np.where(collective[left], calls.seq[left], calls.p2p_seq[left])
    number_right = np.where(collective[right], calls.seq[right], calls.p2p_seq[right])
    same: Bools = (
        (calls.dump[left] == calls.dump[right])
        & (calls.group[left] == calls.group[right])
        & (collective[left] == collective[right])
        & (number_left == number_right)
        & (number_left >= 0)
    )
    return same


def _left_over(
    case: Case, dumps: Sequence[Dump], names: Names, collective: Bools, done: Bools
) -> list[Note]:
    """Close members of finished batches that a dump of unfinished calls still shows, in place.

    Members never leave the state "scheduled", so a dump of unfinished calls holds those of every
    batch in the ring, while the closing entry of a finished batch is left out. A dump that was cut
    short may have lost the closing entry too. Where nobody batches, such a call is in flight.
    """
    calls = case.calls
    partial = np.zeros(max(len(case.dumps), 1), np.bool_)
    partial[[d.index for d in dumps if d.active_only or d.status is not DumpStatus.OK]] = True
    closing = names.closing[calls.name] & ~collective
    rows = np.flatnonzero(~done & ~collective & partial[calls.dump] & ~closing)
    if not len(rows) or not (closing.any() or _share_numbers(case, rows)):
        return []
    ends = np.flatnonzero(closing)
    at = np.minimum(np.searchsorted(ends, rows), max(len(ends) - 1, 0))
    closed = (
        _same_batch(case, collective, rows, ends[at]) if len(ends) else np.zeros(len(rows), bool)
    )
    over = rows[~closed]
    done[over] = True
    if not len(over):
        return []
    text = (
        f"{len(over)} sends and receives without the entry that closes their batch are taken as "
        "finished: dumps of unfinished calls keep the members of finished batches."
    )
    return [Note("info", "completion", text)]


def _share_numbers(case: Case, rows: Ints) -> bool:
    """Whether neighbouring sends and receives stand under one number: batches are in use."""
    calls = case.calls
    left, right = rows[:-1], rows[1:]
    same = (calls.dump[left] == calls.dump[right]) & (calls.group[left] == calls.group[right])
    same &= (calls.p2p_seq[left] == calls.p2p_seq[right]) & (calls.p2p_seq[left] > 0)
    return bool(same.any())


def _blind(case: Case, dumps: Sequence[Dump], backends: Sequence[str], done: Bools) -> list[Note]:
    """Take all but the last call of a dump as finished where its recorder marks no completion."""
    suspects = [
        dump
        for dump in dumps
        if not dump.active_only
        and dump.stop - dump.start >= _BLIND_ROWS
        and (dump.backend or backends[0]) not in TRUTHFUL | _BY_RETIREMENT
        and not done[dump.start : dump.stop].any()
    ]
    for dump in suspects:
        done[dump.start : dump.stop - 1] = case.calls.state[dump.start : dump.stop - 1] != int(
            State.FAILED
        )
    if not suspects:
        return []
    text = (
        f"The recorder of {len(suspects)} dumps never marks a call as finished: all but the last "
        "call of each rank are taken as finished."
    )
    return [Note("warning", "completion", text)]
