"""What recorders mean by what they write: one row of properties for each kind of recorder.

A kind is recognised by what its dumps show (`Dump.recorder`, set where they are read), else by its
backend. Everything else in the analysis asks for the property that it needs, never for a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Bools
from unhang.case import AT_ISSUE, BY_HOOK, BY_TORCHCOMMS, Case, Dump


class RecorderKind(Struct, frozen=True):
    """How the entries of one kind of recorder are read.

    Attributes:
        marks_ends: It marks a call as completed once its device has finished it.
        ends_by_retiring: What it has retired is finished.
        counts_calls: The counters of its groups are sequence numbers of calls.
        sees_exchanges_end: What it says of the end of sends and receives is true. Where it is not,
            they read completed, or retired, as soon as they are made.
        notices_ns: How late it may notice an end, beyond what any watchdog needs.
        records_late: It records a call once its communicator is there, which the first call of a
            group, or of a pair of its ranks, makes: one that stands in it leaves nothing.
        ends_parts_early: It may mark a call that is made of several as completed before it is.
    """

    marks_ends: bool = False
    ends_by_retiring: bool = False
    counts_calls: bool = False
    sees_exchanges_end: bool = True
    notices_ns: int = 0
    records_late: bool = False
    ends_parts_early: bool = False

    @property
    def knows_ends(self) -> bool:
        """Whether it can tell at all that a call has finished."""
        return self.marks_ends or self.ends_by_retiring


_DEVICE = RecorderKind(marks_ends=True, counts_calls=True, records_late=True, ends_parts_early=True)
"""NCCL's own and its relatives: device events."""

_HOST = RecorderKind(ends_by_retiring=True)
"""Gloo: states never change; its counters count sends and receives, too."""

_HOOK = RecorderKind(marks_ends=True, sees_exchanges_end=False, notices_ns=10**9)
"""torch's hook around any backend (from 2.14): members of a batch get a Work that is completed when
they are issued. `pg_status` holds `op_id`, which counts sends, receives and captured calls; ends
are looked for once a second (0.96 s late in dumps of torch 2.15)."""

_ISSUING = RecorderKind(sees_exchanges_end=False)
"""The hook around a backend that tells it of no end (MPI, UCC): retired as soon as issued."""

_TORCHCOMMS = RecorderKind(marks_ends=True, ends_by_retiring=True)
"""It asks for the end once, as it retires a call: what is retired and reads started is finished."""

_UNKNOWN = RecorderKind()

_BY_MARK = {BY_HOOK: _HOOK, AT_ISSUE: _ISSUING, BY_TORCHCOMMS: _TORCHCOMMS}
_BY_BACKEND = {
    **dict.fromkeys(("nccl", "ncclx", "xccl", "rccl", "rcclx", "mccl", "hccl", "bccl"), _DEVICE),
    **dict.fromkeys(("nccl2", "nccl-lazy", "nccl4py"), _HOOK),
    **dict.fromkeys(("mpi", "ucc"), _ISSUING),
    "gloo": _HOST,
}


_BY_HOOKS = frozenset({"2.10"})
"""The format that the hook has written; NCCL's own ones tell its version."""


Recorders: TypeAlias = Mapping[str, RecorderKind]
"""The kind of recorder behind each backend of a case, in the order of `Evidence.backends`."""


def recorders_of(case: Case, backends: Sequence[str]) -> Recorders:
    """The kind of recorder behind each backend of a case.

    A dump of unfinished calls shows no mark: its peers do, or the backend's name has to do.
    """
    shown = {dump.backend: _BY_MARK.get(dump.recorder) for dump in case.dumps if dump.recorder}
    named = {name: shown.get(name) or _BY_BACKEND.get(name, _UNKNOWN) for name in backends}
    return {name: _HOOK if _is_anybodys(case, name) else kind for name, kind in named.items()}


def _is_anybodys(case: Case, backend: str) -> bool:
    """Whether dumps are taken for NCCL's for want of a name, and are of torch's hook.

    They hold no call, which would name its backend, and no version of NCCL, which its own has.
    """
    own = [dump for dump in case.dumps if dump.backend == backend]
    empty = all(dump.start == dump.stop and not dump.comm_lib_version for dump in own)
    return backend == "nccl" and bool(own) and empty and all(d.version in _BY_HOOKS for d in own)


def recorder_of(recorders: Recorders, dump: Dump) -> RecorderKind:
    """The kind of recorder that a dump is of; one that names no backend is of the first."""
    return recorders.get(dump.backend) or next(iter(recorders.values()))


def flags_of(recorders: Recorders, holds: Callable[[RecorderKind], bool]) -> Bools:
    """Whether something holds of the recorder of each backend."""
    return np.asarray([holds(recorder) for recorder in recorders.values()], np.bool_)
