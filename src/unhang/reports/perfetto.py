"""Calls in time for Perfetto and chrome://tracing: a process a rank, a track a group.

Arrows go from the rank that came last to a collective to those that had waited for it. The format
is the JSON of Chrome's trace viewer ("Trace Event Format"), which Perfetto reads. Calls that have
not finished last until the newest sign of life, and say so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from unhang.case import Case
from unhang.picture import Bar, Picture
from unhang.report import Report
from unhang.reports.json import sayable_json
from unhang.reports.look import Look
from unhang.wording import printable

__all__ = ["render"]

_US = 1000.0
_INSTANT_US = 1.0
_LATE_MS = 1.0
"""Nobody has waited for somebody who came this little later."""

_ALL_WAIT = ("all", "barrier", "reduce_scatter")
"""Beginnings of operations that end for nobody before the last has come."""


def render(
    report: Report,
    case: Case | None = None,
    look: Look | None = None,
    picture: Picture | None = None,
) -> str:
    """Return the trace; without a picture it has no event."""
    del case, look
    bars = picture.bars if picture is not None else ()
    start = min((bar.begin_ms for bar in bars), default=0.0)
    groups = {name: number for number, name in enumerate(dict.fromkeys(b.group for b in bars), 1)}
    met = _met(bars)
    events = [*_tracks(report, bars, groups), *_slices(bars, met, groups, start)]
    events += _arrows(met, groups, start)
    other = {"verdict": report.summary, "status": report.status}
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}
    return json.dumps(sayable_json(document), separators=(",", ":")) + "\n"


def _tracks(
    report: Report, bars: Iterable[Bar], groups: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Name processes and their tracks; culprits stand first."""
    status = {each.rank: each.status for each in report.ranks}
    for rank in sorted({bar.rank for bar in bars}):
        name = f"rank {rank} {status.get(rank, '')}".strip()
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": name}}
        order = rank if status.get(rank) != "culprit" else -1
        place = {"sort_index": order}
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_sort_index", "args": place}
    for rank, group in sorted({(bar.rank, bar.group) for bar in bars}):
        args = {"name": printable(group)}
        tid = groups[group]
        yield {"ph": "M", "pid": rank, "tid": tid, "name": "thread_name", "args": args}


def _met(bars: Iterable[Bar]) -> dict[int, list[Bar]]:
    """Calls by the collective that they are of."""
    met: dict[int, list[Bar]] = defaultdict(list)
    for bar in bars:
        if bar.meeting >= 0:
            met[bar.meeting].append(bar)
    return met


def _slices(
    bars: Iterable[Bar], met: dict[int, list[Bar]], groups: dict[str, int], start: float
) -> Iterator[dict[str, Any]]:
    for bar in bars:
        length = max((_end_ms(bar, met.get(bar.meeting, [bar])) - bar.begin_ms) * _US, _INSTANT_US)
        yield {
            "ph": "X",
            "pid": bar.rank,
            "tid": groups[bar.group],
            "ts": round((bar.begin_ms - start) * _US, 3),
            "dur": round(length, 3),
            "name": printable(bar.label),
            "cat": bar.state,
            "args": {"state": bar.state, "end_recorded": bar.end_ms is not None},
        }


def _end_ms(bar: Bar, own: Iterable[Bar]) -> float:
    """Where a call is drawn to end: where it did, or as late as is known.

    An open one lasts until the newest sign of life. One that has finished, nobody knows when, has
    lasted until the last of its collective came, if it is of those in which all wait for all.
    """
    if bar.end_ms is not None:
        return bar.end_ms
    if bar.state == "open":
        return max(bar.begin_ms, 0.0)
    waits = bar.label.lstrip("_").startswith(_ALL_WAIT)
    return max(each.begin_ms for each in own) if waits else bar.begin_ms


def _arrows(
    met: dict[int, list[Bar]], groups: dict[str, int], start: float
) -> Iterator[dict[str, Any]]:
    """Flows from who came last to those who waited; they end in the slices of these."""
    number = 0
    for own in met.values():
        last = max(own, key=lambda bar: (bar.begin_ms, bar.rank))
        for bar in own:
            late = last.begin_ms - bar.begin_ms
            if late < _LATE_MS or _end_ms(bar, own) < last.begin_ms:
                continue
            number += 1
            moment = round((last.begin_ms - start) * _US, 3)
            common = {"name": "waited for", "cat": "late", "id": number, "ts": moment}
            yield {"ph": "s", "pid": last.rank, "tid": groups[last.group], **common}
            yield {"ph": "f", "bp": "e", "pid": bar.rank, "tid": groups[bar.group], **common}
