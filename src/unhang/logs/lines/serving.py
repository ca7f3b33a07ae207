"""Does a serving engine stand still? Told by the reports that it prints every few seconds.

vLLM, SGLang and others print their rates next to the number of their requests. Rates of zero while
requests are there, in every report up to the last one, are an engine that makes no token; a queue
that no process reads is one as well. It refuses to see a standstill in a single report, which may
come while a first long prompt is read, or in an engine without requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from unhang.logs.lines.signs import gets_on

REPORTS = 2
"""Reports of zero in a row: between them a whole interval passed without a token."""

_REPORT = re.compile(rb"(?i)(?<=throughput)|No available (?:shared memory broadcast )?block found")
_ENGINE = re.compile(rb"(?i)\bengine[ _](\d{1,6})\b|\b(DP\d{1,4}(?: TP\d{1,4})?)\b")
_RATE = re.compile(rb"(?i)throughput\b[^\d\n]{0,40}([\d.,]+)")
_RUNNING = re.compile(
    rb"(?i)(?:\brunning(?:[- _]req\w*)?|\bnum_(?:requests_)?running\w*)['\"]?[:=] ?(\d{1,9})\b"
)
_WAITING = re.compile(
    rb"(?i)(?:\b(?:waiting|pending|queue)(?:[- _]req\w*)?|\bnum_(?:requests_)?waiting\w*)"
    rb"['\"]?[:=] ?(\d{1,9})\b"
)


@dataclass(frozen=True, slots=True)
class Standstill:
    """An engine that stands: places are of its first report of zero.

    Attributes:
        start, end: Where that line begins and ends.
        running: Requests that it runs; -1 where only its queue tells.
        waiting: Requests that wait; 0 where nothing tells.
        reports: How often it said so.
    """

    start: int
    end: int
    running: int
    waiting: int
    reports: int


def standing_still(data: bytes) -> Standstill | None:
    """The engine that stands still at the end of a log, if one does; the one that stands longest.

    Args:
        data: The end of the log, of whole lines.
    """
    stands: dict[bytes, list[Standstill]] = {}
    end = 0
    for match in _REPORT.finditer(data):
        if match.start() < end:
            continue
        start = data.rfind(b"\n", 0, match.start()) + 1
        end = data.find(b"\n", match.end()) + 1 or len(data)
        _take(stands, data[start:end], start, end)
    found = [_whole(each) for engine, each in stands.items() if _stands(engine, each, data)]
    return min(found, key=lambda stand: stand.start, default=None)


_QUEUE = b"queue"


def _take(stands: dict[bytes, list[Standstill]], line: bytes, start: int, end: int) -> None:
    """Take one report: of zero, or one that takes back those before it."""
    rates = [float(rate.strip(b".,").replace(b",", b"") or 0) for rate in _rates(line)]
    if not rates:
        stands.setdefault(_QUEUE, []).append(Standstill(start, end, -1, 0, 1))
        return
    running, waiting = _count(_RUNNING, line), _count(_WAITING, line)
    engine = next(filter(None, (m[1] or m[2] for m in _ENGINE.finditer(line))), b"")
    if any(rates):
        stands.pop(_QUEUE, None)
    if any(rates) or running + waiting <= 0:
        stands.pop(engine, None)
    else:
        stands.setdefault(engine, []).append(Standstill(start, end, running, waiting, 1))


def _rates(line: bytes) -> list[bytes]:
    return [rate for rate in _RATE.findall(line) if rate.count(b".") <= 1 and rate.strip(b".,")]


def _count(pattern: re.Pattern[bytes], line: bytes) -> int:
    found = pattern.search(line)
    return int(found[1]) if found else 0


def _stands(engine: bytes, reports: list[Standstill], data: bytes) -> bool:
    """Whether it stands at the end: a queue that no process reads says so once a minute."""
    if engine == _QUEUE:
        return not gets_on(data[reports[-1].end :])
    return len(reports) >= REPORTS


def _whole(reports: list[Standstill]) -> Standstill:
    """The first report, with the requests of the last."""
    first, last = reports[0], reports[-1]
    return Standstill(first.start, first.end, last.running, last.waiting, len(reports))
