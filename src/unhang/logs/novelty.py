"""Lines at the end of a log that a good run of the same job never wrote: what is new there.

Lines are compared by their shape: numbers, paths, addresses and quoted words aside. A library that
mines templates (drain3) finds more of what varies, and was left out: it costs 0.7 s at every start
and pins other libraries to releases of 2021. What a rule knows is reported by the rule, not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from unhang.errors import UnhangError
from unhang.kinds import Kind
from unhang.logs.files import LogSource, open_log
from unhang.logs.keeping import LogScan
from unhang.logs.lines.anchors import wanted_by
from unhang.logs.lines.ending import speaks_of_trouble
from unhang.logs.lines.prefixes import Line, parse_line
from unhang.logs.streams import rank_of
from unhang.model import LogEvent, Note
from unhang.regular import reason
from unhang.telltale import without_secrets

NEW_LINE: Final = Kind(
    "UH7050",
    "new-since-good-run",
    "evidence",
    "A line at the end of the log that the good run given with --baseline never wrote.",
    role="observation",
    actions=("Read it with the lines around it: a healthy run never prints it.",),
)

MAX_READ = 64 << 20
"""Bytes of a good run's log that are read: its first half and its last."""
MAX_SHAPES = 500_000
END = 1 << 20
"""Bytes at the end of a log in which what is new is looked for."""
MOST = 8
MAX_TEXT = 600

_VARYING = re.compile(
    r"'[^']*'|\"[^\"]*\"|(?:/[\w.@+-]+){2,}/?|\b0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|[-+]?\d[\d.,:eE+-]*"
)
_BAR = re.compile(r"\d%\||\bit/s\b|\bs/it\b")


def shape(text: str) -> str:
    """A line without what varies from run to run."""
    return _VARYING.sub("#", text).strip()


@dataclass(frozen=True, slots=True)
class GoodRun:
    """The shapes of all lines of a run that went well."""

    shapes: frozenset[str]


def read_good_run(
    sources: Iterable[LogSource], notes: list[Note], incidents: Iterable[LogSource] = ()
) -> GoodRun:
    """Read the logs of a good run; what is left out becomes a note.

    Args:
        sources: Logs of runs that went well.
        notes: Takes what is left out.
        incidents: Logs of runs that did not: each is read as far as it went well.
    """
    shapes: set[str] = set()
    for source, ended in (*((s, False) for s in sources), *((s, True) for s in incidents)):
        lines = (parse_line(raw) for raw in _parts(source, notes))
        for line in takewhile(_goes_well, lines) if ended else lines:
            if len(shapes) < MAX_SHAPES:
                shapes.add(shape(line.text))
    if len(shapes) >= MAX_SHAPES:
        notes.append(Note("warning", "baseline", f"only {MAX_SHAPES:,} different lines are kept"))
    return GoodRun(frozenset(shapes))


def _goes_well(line: Line) -> bool:
    """Whether a line tells of no trouble, neither by a rule nor by a mark of its own."""
    known = next((rule for rule in wanted_by(line.text) if rule.search(line.text)), None)
    bad = known is not None and not known.harmless and known.role not in ("noise", "hint")
    return not bad and line.level not in ("E", "F")


def _parts(source: LogSource, notes: list[Note]) -> Iterator[bytes]:
    """The lines of a log; of a very long one, of its beginning and its end."""
    try:
        with open_log(source.path) as stream:
            yield from stream.read(MAX_READ // 2).splitlines()
            last = b""
            while block := stream.read(MAX_READ // 2):
                cut = len(last) + len(block) > MAX_READ // 2
                last = (last + block)[-MAX_READ // 2 :]
                if cut:
                    notes.append(Note("warning", source.path, "its middle is not compared"))
            yield from last.splitlines()
    except (OSError, EOFError, UnhangError) as error:
        notes.append(Note("error", source.path, f"could not be read: {reason(error)}"))


@dataclass(slots=True)
class _Found:
    """A line of a new shape: where it stands first, and how often it comes."""

    line: Line
    rank: int
    source: str
    order: int
    count: int = 1

    @property
    def key(self) -> tuple[bool, int, int]:
        """How unusual it is: trouble first, then what is rare, then what came last."""
        bad = self.line.level in ("E", "F") or speaks_of_trouble(self.line.text.encode())
        return (not bad, self.count, -self.order)


def new_lines(sources: Sequence[LogSource], good: GoodRun, notes: list[Note]) -> list[LogEvent]:
    """The most unusual lines at the ends of logs that the good run never wrote, in their order."""
    found: dict[tuple[int, str], _Found] = {}
    for source in sources:
        for number, raw in _end(source, notes):
            line = parse_line(raw)
            form = shape(line.text)
            if not form.strip("# ") or form in good.shapes or _is_told(line.text):
                continue
            rank = rank_of(source, line)
            place = f"{source.path}:{number}" if number else source.path
            known = found.setdefault((rank, form), _Found(line, rank, place, len(found), count=0))
            known.count += 1
    chosen = sorted(found.values(), key=lambda each: each.key)[:MOST]
    return [_event(each) for each in sorted(chosen, key=lambda each: each.order)]


def add_new(scan: LogScan, sources: Sequence[LogSource], good: GoodRun) -> None:
    """Add what is new since a good run to what was found."""
    new = new_lines(sources, good, scan.notes)
    scan.events += [replace(event, order=event.order + len(scan.events)) for event in new]


def _end(source: LogSource, notes: list[Note]) -> Iterator[tuple[int, bytes]]:
    """The lines at the end of a log, with their numbers where the whole of it was read."""
    try:
        with open_log(source.path) as stream:
            data, lines = stream.read(END), 0
            while block := stream.read(END):
                keep = (data + block)[-END:]
                lines += (data + block)[:-END].count(b"\n") if len(data + block) > END else 0
                data = keep
    except (OSError, EOFError, UnhangError) as error:
        notes.append(Note("error", source.path, f"could not be read: {reason(error)}"))
        return
    yield from enumerate(data.splitlines(), lines + 1)


def _is_told(text: str) -> bool:
    """Whether a rule knows the line, or it is a frame of a traceback or a progress bar."""
    known = any(rule.search(text) for rule in wanted_by(text) if rule.trust != "C")
    return known or text.lstrip().startswith(('File "', "^^^", "~~~")) or bool(_BAR.search(text))


def _event(found: _Found) -> LogEvent:
    return LogEvent(
        code=NEW_LINE.code,
        role="hint",
        rank=found.rank,
        text=without_secrets(found.line.text[:MAX_TEXT]),
        source=found.source,
        time_ns=found.line.time_ns,
        order=found.order,
        host=found.line.host,
        count=found.count,
    )
