"""Numbers of torch up to 2.4, in which sends and receives took the numbers of collectives.

Every launch of a group counted there, so that ranks with other exchanges had other numbers for one
collective (seen in dumps of 2.3.1 and 2.4.1). Formats since 2.2 count the two kinds apart; here old
dumps are renumbered likewise. Where a ring has lost what came before, it is unknown how many of the
lost launches were exchanges: the numbers of such a group are taken away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unhang.batches import Batches
from unhang.case import Calls, Dump
from unhang.ingest.columns.decoded import Column
from unhang.spans import distinct

_COUNTED_APART = (2, 2)
_MAJOR_AND_MINOR = 2


def counted_apart(version: str) -> bool:
    """Whether a format numbers collectives apart from sends and receives."""
    numbers = version.split(".")
    if len(numbers) < _MAJOR_AND_MINOR or not all(part.isdecimal() for part in numbers[:2]):
        return False  # a list of entries tells no version
    return (int(numbers[0]), int(numbers[1])) >= _COUNTED_APART


def renumbered(calls: Calls, dumps: Sequence[Dump], batches: Batches) -> Calls:
    """Number collectives apart from sends and receives, in dumps of old formats.

    Args:
        calls: As recorded, each dump's in program order.
        dumps: Of the case.
        batches: Their launches.
    """
    old = np.zeros(max(len(dumps), 1), np.bool_)
    old[[d.index for d in dumps if d.backend == "nccl" and not counted_apart(d.version)]] = True
    if not old.any():
        return calls
    rows = np.flatnonzero(old[calls.dump] & (calls.seq >= 0))
    lane = calls.dump[rows].astype(np.int64) * (int(calls.group.max(initial=0)) + 2)
    lane += calls.group[rows] + 1
    mixed = np.isin(calls.group[rows], distinct(calls.group[rows[batches.p2p[rows]]]))
    rows, lane = rows[mixed], lane[mixed]
    if not len(rows):
        return calls
    order = np.argsort(lane, kind="stable")
    rows, lane = rows[order], lane[order]
    seq, p2p = calls.seq.copy(), calls.p2p_seq.copy()
    starts = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1]])
    for start, stop in zip(starts, np.r_[starts[1:], len(rows)], strict=True):
        _renumber(rows[start:stop], calls, batches, seq, p2p)
    return replace(calls, seq=seq, p2p_seq=p2p)


def _renumber(rows: Column, calls: Calls, batches: Batches, seq: Column, p2p: Column) -> None:
    """One group of one dump, in place."""
    raw, is_p2p = calls.seq[rows], batches.p2p[rows]
    new_launch = np.r_[True, batches.last[rows][1:] != batches.last[rows][:-1]]
    raised = np.r_[raw[0] > 0, raw[1:] > raw[:-1]]
    exchanges = np.cumsum(new_launch & is_p2p)
    taken = np.cumsum(new_launch & is_p2p & raised)
    p2p[rows] = np.where(is_p2p, exchanges, 0)
    seq[rows] = raw - taken if raw[0] <= 1 else -1
