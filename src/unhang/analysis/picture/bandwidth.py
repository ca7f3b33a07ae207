"""How fast collectives moved their data, where the recorder has timed them on the device.

A rank that comes first to a collective is timed while it waits, too; so the shortest time of its
members is taken for the time that the data took, and only of collectives that all members timed.
Bandwidths are those that nccl-tests prints: data over time, and the same times the share of the
data that must cross a link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from unhang.analysis.state.ops import bytes_of
from unhang.case import Case
from unhang.picture import Rate
from unhang.wording import rank_phrase

_MOST, _FEWEST = 12, 3
_SLOW: Final = 0.8
"""A group is distinguished whose bandwidth is below this share of the middle of all."""

_LEAST_BYTES: Final = 1 << 16
"""Of less data the time is that of the start."""

Share: TypeAlias = Callable[[int], float]
_SHARES: Final[tuple[tuple[str, Share], ...]] = (
    ("all_reduce", lambda n: 2 * (n - 1) / n),
    ("all_gather", lambda n: (n - 1) / n),
    ("reduce_scatter", lambda n: (n - 1) / n),
    ("all_to_all", lambda n: (n - 1) / n),
    ("alltoall", lambda n: (n - 1) / n),
    ("broadcast", lambda _: 1.0),
)
"""By what an operation's name begins with: the share of its data that crosses each link."""


Timed: TypeAlias = tuple[int, int, float, float]
"""Group (index), bytes, time in ms and bus bandwidth of one collective."""


def rates(case: Case) -> tuple[Rate, ...]:
    """The operations that moved most data, by name of group, operation and about equal size."""
    found: dict[tuple[str, str, str], list[Timed]] = defaultdict(list)
    for group, name, signature, ms in _timed(case):
        op, size = case.names[name].op.lstrip("_"), bytes_of(case.signatures[signature])
        share = next((share for start, share in _SHARES if op.startswith(start)), None)
        if share is not None and size >= _LEAST_BYTES and not op.endswith("barrier"):
            own = case.groups[group]
            bus = size / ms / 1e6 * share(own.size)
            found[own.description or own.label, op, f"{size:.1e}"].append((group, size, ms, bus))
    parts = ((what, op, own) for (what, op, _), own in found.items() if len(own) >= _FEWEST)
    made = [_rate(case, what, op, own) for what, op, own in parts]
    made.sort(key=lambda each: -each.size * each.calls)
    return tuple(made[:_MOST])


def _timed(case: Case) -> Iterator[tuple[int, int, int, float]]:
    """Group, name, signature and shortest time in ms of each collective that all have timed."""
    calls = case.calls
    known = np.isfinite(calls.duration_ms) & (calls.duration_ms > 0) & ~calls.is_p2p
    rows = np.flatnonzero(known & (calls.seq >= 0))
    keys = np.stack([calls.group[rows], calls.seq[rows]])
    distinct, which, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    shortest = np.full(distinct.shape[1], np.inf)
    which = which.reshape(-1)
    np.minimum.at(shortest, which, calls.duration_ms[rows])
    first = np.zeros(distinct.shape[1], np.int64)
    first[which] = rows
    sizes = np.asarray([group.size for group in case.groups], np.int64)
    for at in np.flatnonzero(counts == sizes[distinct[0]]).tolist():
        row = first[at]
        yield int(calls.group[row]), int(calls.name[row]), int(calls.signature[row]), shortest[at]


def _rate(case: Case, what: str, op: str, timed: Sequence[Timed]) -> Rate:
    by_group: dict[int, list[float]] = defaultdict(list)
    for group, _, _, bus in timed:
        by_group[group].append(bus)
    medians = {group: float(np.median(own)) for group, own in by_group.items()}
    last = case.groups[min(medians, key=lambda group: medians[group])]
    bus_gb_s = float(np.median([bus for *_, bus in timed]))
    slow = min(medians.values()) < _SLOW * bus_gb_s
    return Rate(
        group=what,
        op=op,
        size=max(size for _, size, _, _ in timed),
        calls=len(timed),
        ms=round(float(np.median([ms for _, _, ms, _ in timed])), 3),
        bus_gb_s=round(bus_gb_s, 2),
        slowest=f"{last.label}, {rank_phrase(last.members)}" if slow else "",
        slowest_gb_s=round(min(medians.values()), 2),
    )
