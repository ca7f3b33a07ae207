"""Calls in time for Perfetto and chrome://tracing: a process a rank, a track a group.

Arrows go from the rank that came last to a collective to those that had waited for it. The format
is the JSON of Chrome's trace viewer ("Trace Event Format"), which Perfetto reads. Calls that have
not finished last until the newest sign of life, and say so. Calls of a group that a rank has in
flight at once lie on tracks of their own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from unhang.case import Case
from unhang.picture import Bar, Picture
from unhang.report import Report
from unhang.reports.json import sayable_json
from unhang.reports.look import Look
from unhang.wording import printable

_US = 1000.0
_INSTANT_US = 1
_LATE_MS = 1.0
"""No rank has waited for one that came this little later."""

_ALL_WAIT = ("all", "barrier", "reduce_scatter")
"""Beginnings of operations that end for no member before the last has come."""


class _Slice(NamedTuple):
    """A call as it is drawn.

    Attributes:
        begin_us, end_us: After the first call.
        track: Its number, from 0, among the tracks that its rank has for its group.
    """

    bar: Bar
    begin_us: int
    end_us: int
    track: int


def render(
    report: Report,
    case: Case | None = None,
    look: Look | None = None,
    picture: Picture | None = None,
) -> str:
    """Return the trace; without a picture it has no event."""
    del case, look
    slices = _placed(picture.bars if picture is not None else ())
    names = dict.fromkeys((each.bar.group, each.track) for each in slices)
    tids = {name: number for number, name in enumerate(sorted(names), 1)}
    events = [*_tracks(report, slices, tids), *_calls(slices, tids), *_arrows(slices, tids)]
    other = {"verdict": report.summary, "status": report.status}
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}
    return json.dumps(sayable_json(document), separators=(",", ":")) + "\n"


def _placed(bars: Sequence[Bar]) -> list[_Slice]:
    """Calls on tracks on which none overlaps another: Perfetto drops calls that do.

    Nor do they lie inside each other, because an arrow is bound to the innermost. Each lasts a
    microsecond more than is known, so that one that ends when the last comes is open then.
    """
    start = min((bar.begin_ms for bar in bars), default=0.0)
    met = _met(bars)
    ends: dict[tuple[int, str], list[int]] = defaultdict(list)
    found = []
    for bar in sorted(bars, key=lambda bar: bar.begin_ms):
        begin = round((bar.begin_ms - start) * _US)
        end = round((_end_ms(bar, met.get(bar.meeting, [bar])) - start) * _US)
        end = max(end, begin) + _INSTANT_US
        own = ends[bar.rank, bar.group]
        track = next((at for at, last in enumerate(own) if last <= begin), len(own))
        own[track : track + 1] = [end]
        found.append(_Slice(bar, begin, end, track))
    return found


def _met(bars: Iterable[Bar]) -> dict[int, list[Bar]]:
    """Calls by the collective that they are of."""
    met: dict[int, list[Bar]] = defaultdict(list)
    for bar in bars:
        if bar.meeting >= 0:
            met[bar.meeting].append(bar)
    return met


def _end_ms(bar: Bar, own: Iterable[Bar]) -> float:
    """Where a call is drawn to end: where it did, or as late as is known.

    An open one lasts until the newest sign of life. One that has finished at an unknown time has
    lasted until the last of its collective came, if it is of those in which all wait for all.
    """
    if bar.end_ms is not None:
        return bar.end_ms
    if bar.state == "open":
        return max(bar.begin_ms, 0.0)
    waits = bar.label.lstrip("_").startswith(_ALL_WAIT)
    return max(each.begin_ms for each in own) if waits else bar.begin_ms


def _tracks(
    report: Report, slices: Iterable[_Slice], tids: dict[tuple[str, int], int]
) -> Iterator[dict[str, Any]]:
    """Name processes and their tracks; culprits stand first."""
    status = {each.rank: each.status for each in report.ranks}
    for rank in sorted({each.bar.rank for each in slices}):
        name = f"rank {rank} {status.get(rank, '')}".strip()
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": name}}
        order = rank if status.get(rank) != "culprit" else -1
        place = {"sort_index": order}
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_sort_index", "args": place}
    for rank, group, track in sorted({(s.bar.rank, s.bar.group, s.track) for s in slices}):
        args = {"name": printable(group) + (f", at the same time: {track + 1}" if track else "")}
        tid = tids[group, track]
        yield {"ph": "M", "pid": rank, "tid": tid, "name": "thread_name", "args": args}


def _calls(slices: Iterable[_Slice], tids: dict[tuple[str, int], int]) -> Iterator[dict[str, Any]]:
    for bar, begin, end, track in slices:
        yield {
            "ph": "X",
            "pid": bar.rank,
            "tid": tids[bar.group, track],
            "ts": begin,
            "dur": end - begin,
            "name": printable(bar.label),
            "cat": bar.state,
            "args": {"state": bar.state, "end_recorded": bar.end_ms is not None},
        }


def _arrows(slices: Iterable[_Slice], tids: dict[tuple[str, int], int]) -> Iterator[dict[str, Any]]:
    """Flows from who came last to those who waited.

    Perfetto draws an arrow from the slice that begins first, whatever the flow says. So it ends in
    a slice of its own: from the moment at which the last came to the end of the call that waited.
    """
    met: dict[int, list[_Slice]] = defaultdict(list)
    for each in slices:
        if each.bar.meeting >= 0:
            met[each.bar.meeting].append(each)
    number = 0
    for own in met.values():
        last = max(own, key=lambda each: (each.begin_us, each.bar.rank))
        moment = last.begin_us
        source = {"pid": last.bar.rank, "tid": tids[last.bar.group, last.track], "ts": moment}
        for each in own:
            if moment - each.begin_us < _LATE_MS * _US or each.end_us <= moment:
                continue
            number += 1
            target = {"pid": each.bar.rank, "tid": tids[each.bar.group, each.track], "ts": moment}
            name = f"rank {last.bar.rank} has come"
            yield {"ph": "X", **target, "dur": each.end_us - moment, "name": name, "cat": "late"}
            common = {"name": "waited for", "cat": "late", "id": number}
            yield {"ph": "s", **source, **common}
            yield {"ph": "f", "bp": "e", **target, **common}
