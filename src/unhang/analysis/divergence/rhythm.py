"""What a rank has always called next, and this time did not.

Programs are loops. Where ranks wait for each other in a circle and two sides are all there is, the
order of the steps before tells who left it: a call that followed another one every time, and that
the rank passed over this time. It is a habit and no proof: a program may change its mind.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from unhang.analysis.divergence.programs import RankPrograms
from unhang.analysis.state.columns import Ints

__all__ = ["Break", "break_of"]

_LEAST_TIMES = 2
_MOST_ROWS = 4096


class Break(Struct, frozen=True):
    """Where a rank left its own order.

    Attributes:
        rank: Index of the rank.
        usual: Row of the call that it used to make, when it last did.
        instead: Row of the call that it made this time.
        after: Row of the call before that.
        times: How often the usual call has followed.
    """

    rank: int
    usual: int
    instead: int
    after: int
    times: int


def break_of(programs: RankPrograms, rank: int) -> Break | None:
    """The first place in its last turn of the loop where a rank left its own order; or None."""
    head = int(programs.situation.heads.row[rank])
    rows = _own_rows(programs, head)
    if rows is None:
        return None
    keys = _keys(programs, rows)
    at_head = int(np.searchsorted(rows, head))
    turns = np.flatnonzero(keys[:at_head] == keys[at_head])
    for at in range(int(turns[-1]) + 1 if len(turns) else at_head, len(rows)):
        before = np.flatnonzero(keys[: at - 1] == keys[at - 1]) + 1 if at else keys[:0]
        if len(before) < _LEAST_TIMES or keys[at] == keys[before[-1]]:
            continue
        if (keys[before] == keys[before[-1]]).all():
            return Break(rank, int(rows[before[-1]]), int(rows[at]), int(rows[at - 1]), len(before))
    return None


def _own_rows(programs: RankPrograms, head: int) -> Ints | None:
    """The calls of a rank, by its head; None where its dump leaves finished ones out."""
    evidence = programs.situation.evidence
    if head < 0:
        return None
    dump = evidence.case.dumps[int(evidence.case.calls.dump[head])]
    programs.ask(int(programs.situation.evidence.ranks.index_of([dump.rank])[0]))
    if dump.active_only:
        return None
    rows = np.arange(max(dump.start, head - _MOST_ROWS), min(dump.stop, head + _MOST_ROWS))
    closing = evidence.names.closing[evidence.case.calls.name[rows]]
    kept: Ints = rows[~closing | (rows == head)]
    return kept


def _keys(programs: RankPrograms, rows: Ints) -> Ints:
    """A number for each call: equal where group, operation, peer, sizes and line are."""
    calls = programs.situation.evidence.case.calls
    columns = [calls.group[rows], calls.name[rows], calls.signature[rows], calls.stack[rows]]
    _, keys = np.unique(np.stack(columns), axis=1, return_inverse=True)
    return np.asarray(keys, np.int64).reshape(-1)
