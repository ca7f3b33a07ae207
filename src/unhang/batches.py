"""Which entries were launched together: the batches of a case, found by position.

torch closes a batch (`batch_isend_irecv`, `_coalescing_manager`) with an entry of its own, which
alone has the true state: sends and receives stay "scheduled" (pytorch#137969). It ends the calls
directly before it of the same group and thread under the same numbers. Its own `is_p2p` says
nothing: ProcessGroupNCCL writes False behind sends and receives, other recorders write True.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unhang.case import Calls, IntArray
from unhang.model import OpName
from unhang.spans import distinct

Bools = npt.NDArray[np.bool_]

_CLOSING_SUFFIX = "coalesced"
_NOT_CLOSING = frozenset({
    "allreduce_coalesced", "all_reduce_coalesced", "all_gather_into_tensor_coalesced",
    "allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced",
})  # fmt: skip
_POINT_TO_POINT = frozenset({"send", "recv", "recv_any_source", "recvanysource"})


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """What was launched together.

    Attributes:
        last: Per row, the last row of its launch: the closing entry where there is one, the row
            itself for a call of no batch.
        closed: Per row: its launch ends with a closing entry.
        p2p: Per row: a send, a receive, or the closing entry of a batch of them.
    """

    last: IntArray
    closed: Bools
    p2p: Bools

    def ends(self, rows: IntArray) -> Bools:
        """Whether rows are the last of launches of several, of which others are among them too.

        The closing entry of a batch is no call of its own, unless it is all that was recorded: from
        torch 2.14 on NCCL records nothing else of coalesced collectives.
        """
        ends, at, size = np.unique(self.last[rows], return_inverse=True, return_counts=True)
        found: Bools = (ends[at] == rows) & (size[at] > 1)
        return found


def is_closing(name: OpName) -> bool:
    """Whether an entry closes a batch: NCCL's "coalesced" and "ALLGATHER_coalesced" entries."""
    op = name.op.lower()
    return op.endswith(_CLOSING_SUFFIX) and op not in _NOT_CLOSING


def _is_point_to_point(name: OpName) -> bool:
    return name.op.lower() in _POINT_TO_POINT


def find_batches(calls: Calls, names: Sequence[OpName]) -> Batches:
    """Find the launches of all calls.

    Args:
        calls: Calls of one case or one dump, each dump's in program order.
        names: What `calls.name` points into.
    """
    closes, exchanges = _flags(names, is_closing), _flags(names, _is_point_to_point)
    last, closed = np.arange(len(calls)), np.zeros(len(calls), np.bool_)
    if not (closes.any() or exchanges.any() or calls.is_p2p.any()):  # most jobs' calls
        return Batches(last, closed, closed.copy())
    closing = closes[calls.name]
    p2p = (calls.is_p2p & ~closing) | exchanges[calls.name]
    rows, lane = _in_lanes(calls, closing | p2p)
    if not len(rows):
        return Batches(last, closed, p2p)
    first = _first_of_launch(calls, rows, lane, closing[rows], p2p[rows])
    ends = np.r_[np.flatnonzero(first)[1:], len(rows)] - 1
    end = ends[np.cumsum(first) - 1]
    last[rows], closed[rows] = rows[end], closing[rows[end]]
    ending = np.flatnonzero(closing[rows])
    lone = first[ending]
    p2p[rows[ending]] = np.where(
        lone, _lone_p2p(calls, rows, lane, ending), p2p[rows[np.maximum(ending - 1, 0)]]
    )
    return Batches(last, closed, p2p)


def _flags(names: Sequence[OpName], holds: Callable[[OpName], bool]) -> Bools:
    return np.asarray([*map(holds, names), False], np.bool_)


def _in_lanes(calls: Calls, marked: Bools) -> tuple[IntArray, IntArray]:
    """Rows of groups that batch or exchange, lane by lane, and their lanes.

    A lane is what one thread of one rank called in one group: there, a batch stands together.
    """
    if not marked.any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    groups, threads = int(calls.group.max()) + 2, int(calls.thread.max()) + 2
    place = calls.dump.astype(np.int64) * groups + calls.group + 1
    rows = np.flatnonzero(np.isin(place, distinct(place[marked])))
    lane = place[rows] * threads + calls.thread[rows] + 1
    order = np.argsort(lane, kind="stable")
    return rows[order], lane[order]


def _first_of_launch(
    calls: Calls, rows: IntArray, lane: IntArray, closing: Bools, p2p: Bools
) -> Bools:
    """Where a launch begins: another lane, number or kind, or behind a closing entry."""
    first = np.ones(len(rows), np.bool_)
    seq, number = calls.seq[rows], calls.p2p_seq[rows]
    before, after = slice(None, -1), slice(1, None)
    first[after] = (lane[after] != lane[before]) | closing[before]
    first[after] |= (seq[after] != seq[before]) | (number[after] != number[before])
    first[after] |= (p2p[after] != p2p[before]) & ~closing[after]
    first[after] |= (seq[after] < 0) & (number[after] < 0)
    return first


def _lone_p2p(calls: Calls, rows: IntArray, lane: IntArray, ending: IntArray) -> Bools:
    """Whether closing entries without members close sends and receives.

    Old formats write no members of a batch of collectives, which takes a new collective number;
    sends and receives take none. At the start of a window members may have been lost.
    """
    at, before = rows[ending], np.maximum(ending - 1, 0)
    follows = (ending > 0) & (lane[before] == lane[ending])
    raised = calls.seq[at] > calls.seq[rows[before]]
    lost = (calls.p2p_seq[at] > 0) & (calls.record_id[at] > 0)
    found: Bools = calls.is_p2p[at] | np.where(follows, ~raised, lost)
    return found
