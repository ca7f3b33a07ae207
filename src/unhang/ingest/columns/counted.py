"""Counters (`pg_status`) that cannot be: more calls than a window that lacks none shows.

NCCL records a call before it counts it (in 634 counters of real dumps none is above the last call).
Between reading its entries and its counters a dump may miss a few calls, not as many as there were.
"""

from __future__ import annotations

import numpy as np

from unhang.case import ORIGIN_UNHANG
from unhang.ingest.columns.decoded import Decoded, Status
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.spans import distinct


def refuse_impossible(decoded: Decoded, shared: Dictionaries) -> None:
    """Take such counters away, and note it; in place."""
    most = 2 * decoded.count
    far = [s for s in decoded.statuses if max(s.enqueued, s.started, s.completed) > most]
    if not far or not _shows_all(decoded) or not _by_nccl(decoded, shared):
        return
    decoded.statuses = tuple(
        Status(each.pg_id, -1, -1, -1) if each in far else each for each in decoded.statuses
    )
    decoded.remarks.append(
        f"its counters of {len(far)} groups are refused: they count up to "
        f"{max(max(s.enqueued, s.started, s.completed) for s in far):,} calls, and all of its "
        f"{decoded.count:,} calls are there"
    )


def _shows_all(decoded: Decoded) -> bool:
    """Whether a dump holds every call from the first on, as far as its own words go."""
    if not decoded.count or decoded.truncated or decoded.window is not None:
        return False
    own = decoded.column("record_id")[decoded.column("origin") != ORIGIN_UNHANG]
    return bool(len(own) and own[0] == 0 and (np.diff(own) == 1).all())


def _by_nccl(decoded: Decoded, shared: Dictionaries) -> bool:
    """Others count what they do not record: Gloo its exchanges, torch's hook captured calls."""
    names, used = list(shared.names), distinct(decoded.column("name")).tolist()
    return {names[number].rpartition(":")[0] for number in used} == {"nccl"}
