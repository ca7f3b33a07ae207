"""Make torchcomms' dumps comparable: they look like torch's and mean something else.

Its FlightRecorderHook calls itself version 2.10, but counts `collective_seq_id` once per process
over all communicators and P2P, leaves `p2p_seq_id` at 0 and `is_p2p` false, names no peers, writes
no counters and always the same time-out (torchcomms at 59426ba, hooks/FlightRecorderHook). It
counts calls from 0, as records are; torch counts them from 1.
"""

from __future__ import annotations

import numpy as np

from unhang.case import BY_TORCHCOMMS
from unhang.ingest.columns.decoded import ROW_DTYPES, Decoded
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.spans import distinct

_TIMEOUT_MS = 600_000
_P2P = frozenset({"send", "recv", "batch_op_issue"})


def is_torchcomms(decoded: Decoded, shared: Dictionaries) -> bool:
    """Whether torchcomms wrote this: its marks together; none proves it alone."""
    if decoded.version != "2.10" or decoded.statuses or decoded.origin or not decoded.count:
        return False
    if decoded.column("is_p2p").any() or (decoded.column("p2p_seq") != 0).any():
        return False
    if (decoded.column("timeout_ms") != _TIMEOUT_MS).any():
        return False
    counts_everything = bool((np.diff(decoded.column("seq")) > 0).all())
    several_groups = len(distinct(decoded.column("pg"))) > 1
    as_recorded = bool((decoded.column("seq") == decoded.column("record_id")).all())
    shown = several_groups or as_recorded or bool(_p2p_rows(decoded, shared).any())
    return counts_everything and shown


def repair(decoded: Decoded, shared: Dictionaries) -> None:
    """Number the calls per group where the window starts at the first call; else unknown."""
    columns = {key: decoded.column(key) for key in ROW_DTYPES}
    p2p = _p2p_rows(decoded, shared)
    seq = np.full(decoded.count, -1, np.int64)
    if columns["record_id"][0] == 0:
        for group in distinct(columns["pg"]):
            rows = np.flatnonzero((columns["pg"] == group) & ~p2p)
            seq[rows] = np.arange(1, len(rows) + 1)
        decoded.remarks.append(
            "numbered the calls of each group from its start (torchcomms numbers all)"
        )
    else:
        decoded.remarks.append(
            "has no usable sequence numbers: torchcomms counts over all groups, and the first "
            "calls are gone"
        )
    columns["seq"], columns["is_p2p"] = seq, p2p
    columns["p2p_seq"] = np.full(decoded.count, -1, np.int64)
    columns["timeout_ms"] = np.full(decoded.count, -1, np.int64)
    decoded.take_rows(columns)
    decoded.reported_by, decoded.recorder = "torchcomms", BY_TORCHCOMMS


def _p2p_rows(decoded: Decoded, shared: Dictionaries) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    ids = [number for name, number in shared.names.items() if name.rpartition(":")[2] in _P2P]
    return np.isin(decoded.column("name"), ids)
