"""Calls that had ended a moment before a dump was made: who made them was moving then.

NCCL's watchdog looks at all calls of its process ten times a second and retires those that have
ended. A call that has ended and is not retired did so within the last of its rounds, or the
watchdog stands still itself, as it does once it has seen an error. So the call must have been made
a moment before the dump, too: then its host was moving, whatever the watchdog does.
"""

from __future__ import annotations

import numpy as np

from unhang.analysis.state.columns import Ints, distinct
from unhang.analysis.state.index import Evidence
from unhang.model import State

__all__ = ["just_ended"]

_A_MOMENT_NS = 10**9
"""As long as a call is in flight rather than stuck, whatever the rhythm."""


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
    return distinct(evidence.owner_of(rows) * evidence.n_channels + evidence.channel(rows))
