"""Tell which recorder of torch's wrote a dump, by what it shows: the format's version does not say.

From 2.14 on torch records most backends through a hook. It learns of an end when that has been
noticed, so that a call's start and end are one moment, and a call is never seen "started". Of a
backend that tells it of no end it retires each call as soon as it is issued.
"""

from __future__ import annotations

from unhang.case import AT_ISSUE, BY_HOOK, ORIGIN_UNHANG
from unhang.ingest.columns.decoded import Decoded
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.model import State
from unhang.spans import distinct

_RECORDS_ITSELF = frozenset({"nccl", "gloo"})
"""Backends that torch records from inside, whose retired calls may be ones that timed out."""

_FEW = 8


def mark_of(decoded: Decoded, shared: Dictionaries) -> str:
    """The mark for `Dump.recorder`; "" where the rows show none of either kind."""
    if _took_time(decoded):
        return ""
    own = decoded.column("origin") != ORIGIN_UNHANG
    state, completed_ns = decoded.column("state")[own], decoded.column("completed_ns")[own]
    ended = completed_ns > 0
    if ended.any():
        at_once = decoded.column("started_ns")[own][ended] == completed_ns[ended]
        return BY_HOOK if at_once.all() and not (state == State.STARTED).any() else ""
    retired, named = decoded.column("retired")[own], decoded.column("name")[own]
    if not len(retired) or not retired.all() or not (state == State.SCHEDULED).all():
        return ""
    names = list(shared.names)
    backends = {names[number].rpartition(":")[0] for number in distinct(named).tolist()}
    counted = any(status.enqueued >= 0 and status.completed < 0 for status in decoded.statuses)
    return AT_ISSUE if counted and "" not in backends and not backends & _RECORDS_ITSELF else ""


def _took_time(decoded: Decoded) -> bool:
    """Whether one of the first calls started before it ended, which no hook sees.

    So it is in nearly all dumps, and looking at all their calls takes longer than numbering them.
    """
    keys = "origin", "started_ns", "completed_ns"
    rows = zip(*(decoded.column(key)[:_FEW].tolist() for key in keys), strict=True)
    return any(origin != ORIGIN_UNHANG and 0 < ended != started for origin, started, ended in rows)
