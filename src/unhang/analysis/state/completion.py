"""What "finished" means, recorder by recorder. Nothing else in the analysis reads raw states.

- NCCL and its relatives: the state or the time of completion; "retired" without it means that the
  call timed out. Members of a batch stay "scheduled": they follow the batch's closing entry.
- Gloo: "retired" (its states never change). It is also set after a failure, so a failed call is
  told from elsewhere (see `unhang.analysis.state.progress`).
- Our own recorder's entries: "retired" or completed.
- Recorders that never mark completion: nothing is known, and only the last call of each rank is
  taken as possibly open, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.ops import Names
from unhang.batches import Batches
from unhang.case import ORIGIN_UNHANG, Calls, Case, Dump
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
    batches: Batches,
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
    done |= batches.closed & done[batches.last]
    notes = _left_open(case, dumps, names, batches, done)
    return done, [*notes, *_blind(case, dumps, backends, done)]


def _left_open(
    case: Case, dumps: Sequence[Dump], names: Names, batches: Batches, done: Bools
) -> list[Note]:
    """Close sends and receives of batches that nothing closes and that prove nothing, in place.

    Members never leave the state "scheduled". A dump of unfinished calls holds those of every batch
    in the ring and leaves the closing entries of finished ones out; a dump that was cut short may
    have lost one; and a batch that a CUDA graph captured has none. Only the last call of a thread
    may still be inside its batch. Where nobody batches, such a call is in flight.
    """
    calls = case.calls
    partial = np.zeros(max(len(case.dumps), 1), np.bool_)
    partial[[d.index for d in dumps if d.active_only or d.status is not DumpStatus.OK]] = True
    rows = np.flatnonzero(~done & batches.p2p & ~batches.closed)
    lost = partial[calls.dump[rows]] & _batching(names, batches, calls, rows)
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


def _gone_on(calls: Calls, batches: Batches, rows: Ints) -> Bools:
    """Whether calls stand in a batch of several that was never closed, and their thread went on."""
    several = np.zeros(len(calls), np.bool_)
    numbered = rows[calls.p2p_seq[rows] > 0]
    several[batches.last[numbered[batches.last[numbered] != numbered]]] = True
    after = np.minimum(batches.last[rows] + 1, max(len(calls) - 1, 0))
    went_on = (calls.dump[after] == calls.dump[rows]) & (after > batches.last[rows])
    found: Bools = several[batches.last[rows]] & went_on
    return found


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
