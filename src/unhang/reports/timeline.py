"""Calls over time, bounded: what the HTML page draws as bars, one lane a rank.

Times are those of each rank's own host and are not corrected. Where a recorder does not tell when a
call ended (Gloo), the call is a tick, not a bar of invented length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unhang.case import Case
from unhang.model import State
from unhang.report import Report
from unhang.wording import printable

__all__ = ["Lanes", "lanes"]

MAX_RANKS = 32
MAX_CALLS_OF_A_RANK = 100


@dataclass(frozen=True, slots=True)
class Lanes:
    """The drawn calls as equally long columns.

    Attributes:
        ranks: Lanes from top to bottom.
        lane: Index in `ranks`.
        begin_s: Start in seconds before the newest sign of life (negative).
        length_s: 0 for a tick.
        kind: "finished", "tick" or "waiting".
        words: What the pointer shows.
        left_out: What is not drawn, in words, or "".
    """

    ranks: tuple[int, ...]
    lane: tuple[int, ...]
    begin_s: tuple[float, ...]
    length_s: tuple[float, ...]
    kind: tuple[str, ...]
    words: tuple[str, ...]
    left_out: str


def lanes(case: Case, report: Report) -> Lanes | None:
    """Choose and measure what is drawn; None where no call has a time."""
    calls = case.calls
    timed = np.flatnonzero(calls.created_ns > 0)
    if not len(timed):
        return None
    ranks = _chosen_ranks(np.unique(calls.rank[timed]).tolist(), report)
    rows = _last_calls(case, timed, ranks)
    end_ns = _newest_ns(case)
    begin = calls.created_ns[rows]
    waiting = ~(calls.retired[rows] | np.isin(calls.state[rows], (State.COMPLETED, State.FAILED)))
    done = np.where(waiting, end_ns, np.maximum(calls.completed_ns[rows], begin))
    place = {rank: index for index, rank in enumerate(ranks)}
    kinds = np.where(waiting, "waiting", np.where(calls.completed_ns[rows] > 0, "finished", "tick"))
    return Lanes(
        tuple(ranks),
        tuple(place[rank] for rank in calls.rank[rows].tolist()),
        tuple(((begin - end_ns) / 1e9).round(6).tolist()),
        tuple((np.maximum(done - begin, 0) / 1e9).round(6).tolist()),
        tuple(kinds.tolist()),
        tuple(_words(case, row) for row in rows.tolist()),
        _left_out(len(np.unique(calls.rank[timed])), len(ranks), len(timed), len(rows)),
    )


def _chosen_ranks(present: Sequence[int], report: Report) -> list[int]:
    """Culprits first, then every n-th of the others, so that both ends are there."""
    if len(present) <= MAX_RANKS:
        return list(present)
    culprits = [rank for rank in report.culprits if rank in set(present)][: MAX_RANKS // 2]
    others = [rank for rank in present if rank not in set(culprits)]
    step = len(others) / (MAX_RANKS - len(culprits))
    picked = [others[int(index * step)] for index in range(MAX_RANKS - len(culprits))]
    return sorted({*culprits, *picked})


def _last_calls(case: Case, timed: npt.NDArray[np.int64], ranks: Iterable[int]) -> Any:  # noqa: ANN401 - row numbers
    of_rank = case.calls.rank[timed]
    return np.concatenate([timed[of_rank == rank][-MAX_CALLS_OF_A_RANK:] for rank in ranks])


def _newest_ns(case: Case) -> int:
    newest = [int(case.calls.created_ns.max()), int(case.calls.completed_ns.max())]
    return max([*newest, *(dump.time_ns for dump in case.dumps)])


def _words(case: Case, row: int) -> str:
    call = case.call(row)
    number = call.p2p_seq if call.is_p2p else call.seq
    words = f"{call.name.op} #{number} of {call.group.label}"
    site = f" at {call.frames[0].file}:{call.frames[0].line}" if call.frames else ""
    return printable(words + site, 160)


def _left_out(ranks: int, drawn: int, calls: int, shown: int) -> str:
    parts = []
    if drawn < ranks:
        parts.append(f"{drawn} of {ranks:,} ranks")
    if shown < calls:
        parts.append(f"the last {MAX_CALLS_OF_A_RANK} calls of each")
    return f"Drawn: {', '.join(parts)}." if parts else ""
