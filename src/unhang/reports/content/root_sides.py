"""Which root each rank named in a call: what heartbeats add to dumps, where ranks disagree.

Recorders keep no roots. A rank's heartbeat has those of its last calls, by their numbers, and the
dump of a rank that stands in its last call tells which call such a number is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from unhang.case import Case
from unhang.model import ProcessSample

_Label: TypeAlias = tuple[int, int, str]
"""Group, number and operation of a call."""


def roots_apart(case: Case) -> dict[int, int]:
    """The root that a rank named, by row of `Case.calls`, where its peers named another one.

    Roots are ranks in the group.
    """
    looks = {sample.rank: sample for sample in case.samples if sample.roots}  # the newest look
    last = {rank: row for rank, look in looks.items() if (row := _last_row(case, look)) >= 0}
    calls = {looks[rank].last_call: _label(case, row) for rank, row in last.items()}
    found: defaultdict[_Label, dict[int, int]] = defaultdict(dict)
    for rank, look in looks.items():
        for number, root in look.roots:
            row = _row_of(case, rank, calls.get(number))
            if row >= 0:
                found[calls[number]][row] = root
    apart = (rows for rows in found.values() if len(set(rows.values())) > 1)
    return {row: root for rows in apart for row, root in rows.items()}


def _last_row(case: Case, look: ProcessSample) -> int:
    """The row of a rank's last call, where that had a root, and the rank is in it; else -1."""
    row = next(_rows(case, look.rank), -1)
    is_last = look.roots[0][0] == look.last_call
    inside = {f"{f.file}:{f.line}" for thread in look.threads for f in thread.frames}
    named = row >= 0 and case.names[int(case.calls.name[row])].op == look.last_op
    return row if is_last and named and look.last_site in inside else -1


def _row_of(case: Case, rank: int, label: _Label | None) -> int:
    """The row of a rank's call of this label; -1 where it has none."""
    if label is None:
        return -1
    return next((row for row in _rows(case, rank) if _label(case, row) == label), -1)


def _rows(case: Case, rank: int) -> Iterator[int]:
    """Rows of a rank, the newest first: what is looked for is among the last."""
    for dump in reversed(case.dumps):
        if dump.rank == rank:
            yield from reversed(range(dump.start, dump.stop))


def _label(case: Case, row: int) -> _Label:
    calls = case.calls
    return int(calls.group[row]), int(calls.seq[row]), case.names[int(calls.name[row])].op
