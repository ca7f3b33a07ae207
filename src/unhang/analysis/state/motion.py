"""Calls that had ended a moment before a dump was made: who made them was moving then.

NCCL's watchdog looks at all calls of its process ten times a second and retires those that have
ended. A call that has ended and is not retired did so within the last of its rounds, or the
watchdog stands still itself, as it does once it has seen an error. So the call must have been made
a moment before the dump, too: then its host was moving, whatever the watchdog does.

A dump of unfinished calls leaves such a call out. Its counters show it all the same: they name the
last call that was enqueued and the last one that was retired, and differ though nothing is open. A
watchdog that stands still shows this for ever; so the file must be of the time of the newest call.
"""

from __future__ import annotations

import numpy as np

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.stale import made_ns, newest_ns, written_ns
from unhang.model import State
from unhang.spans import distinct, without

_A_MOMENT_NS = 10**9
"""As long as a call is in flight rather than stuck, whatever the rhythm."""

_AT_THE_TIME_NS = 4 * 10**9
"""A file was written by then: under load up to 2.8 s after the newest call of a job that moved; who
asks, and a watchdog that has seen an error, mostly comes later. The margin
is thin: files of moving jobs lay up to 2.8 s behind, that of one remote error 3.8 s."""


def just_ended(evidence: Evidence) -> Ints:
    """Keys of `Standing` where a call had just ended: index of the rank and channel.

    Only dumps of torch's own recorder for NCCL tell; it asks the device as it dumps, and writes
    that moment into what it finds ended.
    """
    calls = evidence.case.calls
    asked = np.zeros(max(len(evidence.case.dumps), 1), np.bool_)
    asked[[d.index for d in evidence.dumps if d.backend == "nccl" and d.reported_by == "torch"]] = 1
    fresh = (calls.state == State.COMPLETED) & ~calls.retired & evidence.finished
    fresh &= (calls.created_ns > 0) & (calls.completed_ns - calls.created_ns < _A_MOMENT_NS)
    rows = np.flatnonzero(fresh & asked[calls.dump] & (calls.group >= 0))
    ended = evidence.owner_of(rows) * evidence.n_channels + evidence.channel(rows)
    return distinct(np.r_[ended, _counted_ends(evidence, asked)])


def all_just_called(evidence: Evidence) -> bool:
    """Whether every rank that left a dump had made a call a moment before.

    Where none of them waits, all hosts and devices were moving then, whatever a dump hides of its
    newest call, and though dumps of moving jobs are of moments that differ by some calls.
    """
    newest, made, written = newest_ns(evidence), made_ns(evidence), written_ns(evidence)
    since = np.where(made > 0, made, written) - newest
    fresh = (newest > 0) & (np.maximum(made, written) > 0) & (since < _A_MOMENT_NS)
    dumps = [dump.index for dump in evidence.dumps]
    owners = evidence.owner[fresh[dumps]] if dumps else evidence.owner
    return bool(dumps and np.isin(evidence.owner, owners).all())


def _counted_ends(evidence: Evidence, asked: Bools) -> Ints:
    """Keys where nothing is open and the call that was enqueued last has not been retired."""
    status, opened = evidence.case.group_status, evidence.open_rows
    newest = int(evidence.case.calls.created_ns.max(initial=0))
    owners, backends = np.full(len(asked), -1, np.int64), np.zeros(len(asked), np.int64)
    for owner, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        hides = dump.active_only or dump.start == dump.stop
        if hides and 0 < newest <= dump.written_ns < newest + _AT_THE_TIME_NS and asked[dump.index]:
            owners[dump.index] = owner
            backends[dump.index] = evidence.backends.index(dump.backend)
    differ = (status.last_enqueued != status.last_completed) & (status.last_completed >= 0)
    differ &= (owners[status.dump] >= 0) & (status.group >= 0)
    dumps, groups = status.dump[differ], np.asarray(status.group[differ], np.int64)
    keys = owners[dumps] * evidence.n_channels + groups * len(evidence.backends) + backends[dumps]
    held = evidence.owner_of(opened) * evidence.n_channels + evidence.channel(opened)
    found: Ints = without(keys, held)
    return found
