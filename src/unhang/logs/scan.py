"""Read gigabytes of logs and keep what the rules know, whose it is and when it was.

An Aho-Corasick automaton over the rules' anchors (ahocorasick_rs) finds the few lines worth
looking at; only those are decoded and matched, and what a rank says again is only counted. What a
line tells is made in `telling`; nothing is decided here: see `failure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path

from msgspec.structs import replace as changed

from unhang.errors import InputError, UnhangError
from unhang.logs.aftermath import LogEnd
from unhang.logs.files import LogSource, chunks, open_log, source_of
from unhang.logs.keeping import LogScan, Seen, claims_nothing
from unhang.logs.lines.anchors import candidates, lines_above, wanted_by
from unhang.logs.lines.elastic import ENTRY_ANCHOR, SummaryEntry, entry_of
from unhang.logs.lines.nccl_facts import interfaces_taken
from unhang.logs.lines.prefixes import Line, parse_line, parse_plain
from unhang.logs.lines.signs import WINDOW, gets_on, goes_on, looks_like_a_job
from unhang.logs.lines.tracebacks import HEADER, RECORDED, Traceback, TracebackReader, is_chain
from unhang.logs.repeats import KnownLine, Marked, Repeats, repeat_of
from unhang.logs.rules import LogRule
from unhang.logs.rules.known import ELASTIC_BLAMES
from unhang.logs.telling import LOOK_BACK, Teller, first_of
from unhang.model import LogEvent, Note, NoteLevel
from unhang.regular import reason

LOOKED_AT = 4_096
"""Bytes that distinguish text from what is none."""
OPEN_LIMIT = 5_000
"""Lines of other streams after which a traceback that never ended is given up."""

GLANCE = 1 << 14
"""Bytes at the end of each block in which work is looked for; at the end of a log, `WINDOW`."""
_PASSED_ON = re.compile(
    rb"-- Process (?P<spawned>\d{1,5}) terminated with the following error:"
    rb"|\[Rank (?P<ranked>\d{1,6}) Error Snippet\]:"  # Ray Train
    rb"|Exception in thread (?P<thread>[^\n]{1,80}?):?\s*$"  # threading.excepthook
)
_RANKS = (b"[rank", b"[default")
_RANK_MARK = re.compile(
    rb"((?:\[(?:rank|default)\d{1,6}\]: ?){0,8}\[(?:rank|default)\d{1,6}\]:) ?Traceback"
)

Progress = Callable[[int], None]


def scan_logs(sources: Iterable[LogSource], progress: Progress | None = None) -> LogScan:
    """Scan logs with all rules.

    Args:
        sources: What to read, in this order. An unreadable one becomes a note.
        progress: Called with the number of bytes after each block.
    """
    found = LogScan()
    for source in sources:
        try:
            with open_log(source.path) as stream:
                blocks = chunks(stream)
                first = next(blocks, b"")
                if not is_text(first):
                    raise InputError("it is not text")
                scanner = FileScanner(source, found, _year_of(source.path))
                try:
                    for block in filter(None, chain([first], blocks)):
                        scanner.feed(block)
                        if progress:
                            progress(len(block))
                finally:
                    scanner.close()
        except (OSError, EOFError, UnhangError) as error:  # noqa: PERF203 - one bad log is a note
            why = f"could not be read: {reason(error)}"
            found.notes.append(Note("error", source.path, why))
    _settle(found)
    return found


def scan_texts(texts: Mapping[str, bytes]) -> LogScan:
    """Scan logs that are in memory, by where they are from: that may name the rank."""
    found = LogScan()
    for name, data in texts.items():
        scanner = FileScanner(source_of(name, name, len(data)), found, _year_of(name))
        scanner.feed(data)
        scanner.close()
    _settle(found)
    return found


def _settle(found: LogScan) -> None:
    """Say what can be said only when all has been read."""
    found.events[:] = found.communicators.settled(found.events)
    found.notes += interfaces_taken(found.facts)


def is_text(block: bytes) -> bool:
    """Whether a log begins like text; single bytes of other encodings do not matter."""
    text = block[:LOOKED_AT].decode("utf-8", "replace")
    odd = sum(
        not (char.isprintable() or char in "\t\n\r\x1b\b") or char == "\ufffd" for char in text
    )
    return odd * 4 <= len(text)


def _year_of(path: str) -> int:
    """Year of a log's last change: glog stamps have none."""
    try:
        return datetime.fromtimestamp(Path(path).stat().st_mtime, tz=timezone.utc).year
    except OSError:
        return datetime.now(tz=timezone.utc).year


@dataclass(slots=True)
class FileScanner:
    """Reads one log block by block: line numbers and the tracebacks that are still open.

    `feed` takes blocks of whole lines, also while the log still grows; `close` ends it.
    """

    source: LogSource
    found: LogScan
    year: int
    open: dict[tuple[int, int, str], TracebackReader] = field(default_factory=dict)
    idle: int = 0
    entry: SummaryEntry | None = None
    recognised: bool = False
    got_on: bool = False
    end: LogEnd = field(default_factory=LogEnd)
    repeats: Repeats = field(default_factory=Repeats)
    teller: Teller = field(init=False)

    def __post_init__(self) -> None:
        """Make events of its lines."""
        self.teller = Teller(self.source, self.found, self.year)

    def feed(self, data: bytes) -> None:
        """Take the next block of whole lines."""
        self._block(data)
        self.found.bytes_read += len(data)

    def close(self) -> None:
        """End of the log: tracebacks that are still open are cut off here."""
        kept = self.teller.kept
        for key in list(self.open):
            self._close(key, self.open.pop(key).feed("<end of the log>"), Line(""), ())
        kept.counted()
        self.end.take_back(self.teller)
        self.end.stand(self.teller)
        self.end.speak(self.teller)
        self.got_on = self.got_on or gets_on(self.end.data[-WINDOW:])
        self.found.got_on = self.found.got_on or self.got_on
        if self.recognised or self.got_on or kept.seen:
            self.found.recognised = True
        else:
            text = "does not look like the log of a job" if self.end.data else "is empty"
            level: NoteLevel = "info" if self.source.kept else "warning"
            self.found.notes.append(Note(level, self.source.path, text))

    def _block(self, data: bytes) -> None:
        spot = self.teller.spot
        spot.data, spot.last_error, spot.looked = data, 0, 0
        position = 0
        for start, end, wanted in candidates(data):
            if self.open:
                position = self._through(position, start)
            spot.number += data.count(b"\n", position, start)
            spot.start, spot.end = start, end
            if not self._again(data, start, end):
                self._look(data, start, end, wanted)
            spot.number += 1
            position = end
        if self.open:
            position = self._through(position, len(data))
        spot.number += data.count(b"\n", position)
        self._after(data)

    def _look(self, data: bytes, start: int, end: int, wanted: tuple[LogRule, ...]) -> None:
        """Decode and match a line that holds an anchor."""
        line = parse_plain(data[start:end], self.year)
        if ENTRY_ANCHOR in line.text:
            self._enter(line, data, start)
        claimed = self._claimed(line)
        self._candidate(claimed, wanted)
        if claimed is line and self.teller.made:
            self.repeats.learn(data, start, end, line, wanted, self.teller.made, self._first_made())

    def _first_made(self) -> LogEvent | None:
        """The only message of this line, if it is the first that says so."""
        kept, spot = self.teller.kept, self.teller.spot
        indices = [kept.seen.get(seen, -1) for _, seen in self.teller.made]
        event = self.found.events[indices[0]] if len(indices) == 1 and indices[0] >= 0 else None
        source = f"{self.source.path}:{spot.number}"
        return event if event is not None and event.source == source else None

    def _alike(self, marked: Marked, data: bytes, start: int, end: int) -> bool:
        """Tell what another rank said before, numbers aside; False where it may be news."""
        found = self.repeats.alike(marked)
        if found is None:
            return False
        kind, rank = found
        if (rank, kind.local_rank, "") in self.open:
            return False
        if self._of_no_rank(kind, rank, stamped=bool(marked.mark[2])):
            return True
        if marked.mark[2]:
            line = parse_plain(data[start:end], self.year)
        else:
            line = Line(data[marked.mark.end() : end].decode("ascii").rstrip("\r\n"), rank)
        if line.local_rank != kind.local_rank:
            line = changed(line, local_rank=kind.local_rank)
        seen = self.teller.alike(kind, line)
        if seen is None:
            return False
        self.repeats.count(marked, repeat_of(line, [(kind.rule, seen)]))
        if self.open:
            self._idle()
        return True

    def _of_no_rank(self, kind: KnownLine, rank: int, *, stamped: bool) -> bool:
        """Count what a rank said for which there is no room: such lines belong to no rank."""
        seen = ("", kind.rule.code, kind.said)
        if stamped or not self.teller.has_no_room(rank) or seen not in self.teller.kept.seen:
            return False
        self._counted(((kind.rule, seen),), claims_nothing(kind.rule))
        return True

    def _counted(self, made: Iterable[tuple[LogRule, Seen]], nothing: bool) -> None:  # noqa: FBT001
        spot = self.teller.spot
        for rule, seen in made:
            self.teller.kept.again(seen, rule, spot.offset + spot.end)
        if nothing:
            spot.last_error = spot.end
        if self.open:
            self._idle()

    def _again(self, data: bytes, start: int, end: int) -> bool:
        """Count a line that its rank said before, numbers aside; False where it may be news."""
        if self.entry is not None:
            return False
        marked = self.repeats.seen(data, start, end)
        if marked is None:
            return False
        known = self.repeats.known(marked)
        if known is None:
            return self._alike(marked, data, start, end)
        kept = self.teller.kept.seen
        if known.stream in self.open or any(seen not in kept for _, seen in known.made):
            return False
        if known.stamped:
            self.teller.unread = data[start:end]
        self._counted(known.made, known.claims_nothing)
        return True

    def _after(self, data: bytes) -> None:
        """What the block tells besides messages: that this is a job's log, and that it went on."""
        kept, spot = self.teller.kept, self.teller.spot
        kept.counted()
        self.recognised = self.recognised or looks_like_a_job(data)
        self.got_on = self.got_on or gets_on(data[-GLANCE:])
        if kept.open_errors and goes_on(data, spot.last_error):
            kept.went_on()
        self.end.add(data)
        spot.offset += len(data)

    def _through(self, position: int, stop: int) -> int:
        """Walk line by line while tracebacks are open; returns where it stopped."""
        spot, marks = self.teller.spot, self._marks()
        data = spot.data
        while position < stop and self.open:
            end = data.find(b"\n", position, stop) + 1 or stop
            spot.end = end
            if marks and data.startswith(_RANKS, position) and not data.startswith(marks, position):
                self._idle()
            else:
                self._feed(self._claimed(parse_plain(data[position:end], self.year)), None)
            spot.number += 1
            position = end
        return position

    def _enter(self, line: Line, data: bytes, start: int) -> None:
        """Begin an entry of the launcher's summary: who it is about stands above."""
        above = [parse_line(raw).text.rstrip() for raw in lines_above(data, start, LOOK_BACK)]
        self.entry = entry_of(above, line, self.teller.spot.number)
        if self.entry is None:
            return
        if self.teller.rank_of(self.entry.claim(line))[0] >= 0:
            self.found.ranks.add(self.entry.rank)
        self.teller.pid_ranks.setdefault((line.host, self.entry.pid), self.entry.rank)
        last = self.found.events[-1] if self.found.events else None
        if last and last.code == ELASTIC_BLAMES.code and "blamed" not in last.fields:
            told = {"blamed": str(self.entry.rank), "exitcode": self.entry.exit_code}
            self.found.events[-1] = replace(last, fields={**last.fields, **told})

    def _claimed(self, line: Line) -> Line:
        """The line as one of the rank whose entry in the summary it belongs to."""
        entry = self.entry
        if entry is None:
            return line
        if entry.owns(line, self.teller.spot.number):
            return entry.claim(line)
        # A traceback in the summary may be long; it ends where the indentation does.
        claimed = entry.claim(line)
        inside = entry.shares(line) and (line.text.startswith("  ") or not line.text)
        return claimed if inside and self._key(claimed) in self.open else line

    def _marks(self) -> tuple[bytes, ...]:
        """What every line of the open tracebacks begins with; nothing where one is not known."""
        marks = tuple(reader.mark for reader in self.open.values())
        return marks if all(marks) else ()

    def _idle(self) -> bool:
        """A line of a stream in which no traceback is open."""
        self.idle += 1
        if self.idle > OPEN_LIMIT:
            self.open.clear()
        return False

    def _key(self, line: Line) -> tuple[int, int, str]:
        return (line.rank, line.local_rank, line.host)

    def _candidate(self, line: Line, wanted: tuple[LogRule, ...]) -> None:
        self.teller.made.clear()
        if HEADER in line.text and RECORDED not in line.text:
            self._tell_before(line)
            self._open(line)
        elif not self._feed(line, wanted):
            self.teller.tell(line, wanted, None)

    def _tell_before(self, line: Line) -> None:
        """What stands in a line before the header of a traceback: terminals join lines."""
        before = line.text.partition(HEADER)[0]
        hit = first_of(wanted_by(before), before) if before.strip() else None
        if hit is not None and not claims_nothing(hit[0]):
            self.teller.tell(changed(line, text=before), (hit[0],), None)

    def _open(self, line: Line) -> None:
        """Begin a traceback of its stream."""
        here = self.teller.spot.data, self.teller.spot.start
        reader = self.open.setdefault(self._key(line), TracebackReader())
        reader.mark = _mark(*here)
        reader.lines += 1
        above = tuple(lines_above(*here, 1))
        reader.ignored = reader.ignored or any(b"Exception ignored in" in raw for raw in above)
        passed_on = next(filter(None, map(_PASSED_ON.search, above)), None)
        if passed_on and passed_on["spawned"]:
            reader.spawned = int(passed_on["spawned"])
        elif passed_on and passed_on["ranked"]:
            reader.ranked = int(passed_on["ranked"])
        elif passed_on:
            reader.thread = passed_on["thread"].decode("utf-8", "replace")
        self.idle = 0

    def _feed(self, line: Line, wanted: tuple[LogRule, ...] | None) -> bool:
        """Give the line to the open traceback of its stream; False if there is none."""
        key = self._key(line)
        reader = self.open.get(key)
        if reader is None:
            return self._idle()
        self.idle = 0
        done = reader.feed(line.text)
        if done is not None:
            del self.open[key]
            self._close(key, done, line, wanted)
        return True

    def _close(
        self,
        key: tuple[int, int, str],
        done: Traceback | None,
        line: Line,
        wanted: tuple[LogRule, ...] | None,
    ) -> None:
        if done is None or done.ignored:
            return
        if done.frames:
            local = key[1] if done.spawned < 0 else done.spawned
            rank = key[0] if done.ranked < 0 else done.ranked
            line = changed(line, rank=rank, local_rank=local, host=key[2])
        wanted = wanted_by(line.text) if wanted is None else wanted
        if not self.teller.tell(line, wanted, done) and not is_chain(line.text):
            self.teller.tell_end(line, done)
        self.teller.made.clear()


def _mark(data: bytes, start: int) -> bytes:
    """What stands before the header of a traceback, where it is the mark of its rank alone."""
    found = _RANK_MARK.match(data, start)
    return found[1] if found else b""
