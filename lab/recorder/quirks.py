"""What torch's versions record differently of one call: its numbers, sizes and dtypes.

As seen in real dumps (tests/data/nccl); versions between released ones follow the older one.
"""

from __future__ import annotations

from collections.abc import Iterable

from lab.model.job import Shapes
from lab.recorder.recording import at_least
from lab.simulate.engine import Record

_SLOW = frozenset({"_broadcast_oop", "_reduce_oop"})


def is_slow_part(record: Record) -> bool:
    """Whether a record is one of the calls that torch makes of one on uneven tensors."""
    return record.member and record.issue.op in _SLOW


def numbers_of(calls: Iterable[Record], version: str) -> dict[int, tuple[int, int]]:
    """Collective and P2P number of each record, by its identity.

    Up to 2.1 a batch takes a number of the collectives, and one more for each collective in it; up
    to 1.4 there is no other kind of number.
    """
    if at_least(version, "2.2"):
        return {id(record): (record.seq, record.p2p_seq) for record in calls}
    apart = at_least(version, "2.1")
    counters: dict[int, list[int]] = {}
    found: dict[int, tuple[int, int]] = {}
    launch: dict[int, tuple[int, int]] = {}
    for record in calls:
        counter = counters.setdefault(record.issue.group, [0, 0])
        own = (record.seq, record.p2p_seq)
        if not (record.member or record.closing):
            counter[1 if apart and record.issue.is_p2p else 0] += 1
        elif launch.get(record.issue.group) != own:
            counter[0] += 1
            launch[record.issue.group] = own
        if record.member and not record.issue.is_p2p:
            counter[0] += 1
        found[id(record)] = (counter[0], counter[1])
    return found


def sizes_of(record: Record, version: str) -> tuple[Shapes, Shapes, str]:
    """Shapes of inputs and outputs, and the dtype, as a version records them."""
    issue = record.issue
    if record.closing:
        return (), (), issue.dtype
    if at_least(version, "2.2"):
        return issue.inputs, issue.outputs, issue.dtype
    if issue.op in ("gather", "scatter", "all_to_all"):  # lists came later
        return issue.inputs[:1], issue.outputs[:1], issue.dtype
    dtype = "Byte" if issue.op == "all_reduce_barrier" else issue.dtype
    return issue.inputs, issue.outputs, dtype
