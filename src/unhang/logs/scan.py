"""Read gigabytes of logs and keep what the rules know, whose it is and when it was.

An Aho-Corasick automaton over the rules' anchors (ahocorasick_rs) finds the few lines worth
looking at; only those are decoded and matched. Nothing is decided here: see `failure`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from msgspec.structs import replace as changed

from unhang.errors import InputError, UnhangError
from unhang.logs.elastic import ENTRY_ANCHOR, SummaryEntry, entry_of
from unhang.logs.files import LogSource, chunks, open_log
from unhang.logs.following import follows
from unhang.logs.keeping import (
    ANY_ERROR,
    ANY_EXCEPTION,
    MAX_RANKS,
    EventBook,
    LogScan,
    claims_nothing,
)
from unhang.logs.lines.anchors import candidates, lines_above, wanted_by
from unhang.logs.lines.ending import TAIL, troubled
from unhang.logs.lines.prefixes import Line, parse_line
from unhang.logs.lines.signs import ENOUGH, StepLine, goes_on, looks_like_a_job, step_lines
from unhang.logs.lines.tracebacks import HEADER, RECORDED, Traceback, TracebackReader, is_chain
from unhang.logs.lines.wrappers import LAST_ERROR, wrapped_in
from unhang.logs.nccl_facts import fact_of, interfaces_taken
from unhang.logs.rules import LogRule
from unhang.logs.rules.endings import ELASTIC_BLAMES
from unhang.logs.rules.program import UNEXPLAINED_ERROR, UNHANDLED_EXCEPTION
from unhang.logs.rules.xids import role_of_xid
from unhang.model import UNKNOWN_RANK, Frame, LogEvent, LogRole, Note, NoteLevel
from unhang.stacks.ownership import shown_frame
from unhang.telltale import without_secrets

__all__ = ["FileScanner", "scan_logs"]

MAX_TEXT = 600
MAX_WHOLE_TEXT = 2_400
"""Length of a message that tells both sides of a difference."""
LOOK_BACK = 12
"""Lines above a line without a stamp in which one is looked for."""
STEPS_WINDOW = 1 << 20
"""Bytes at the end of a log in which steps are looked for that take a failure back."""
MANY_STEPS = 10
"""Different steps that must follow a failure of no known rank before it is taken back."""
LOOKED_AT = 4_096
"""Bytes by which text is told from what is none."""
BELOW, BELOW_LINES = 4_096, 64
"""How far below a message its continuation is looked for."""
OPEN_LIMIT = 5_000
"""Lines of other streams after which a traceback that never ended is given up."""

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
                scanner = FileScanner(source, found, _year_of(source.path))
                for number, block in enumerate(chunks(stream)):
                    if not number and not _is_text(block):
                        raise InputError("it is no text")
                    scanner.feed(block)
                    if progress:
                        progress(len(block))
                scanner.close()
        except (OSError, EOFError, UnhangError) as error:  # noqa: PERF203 - one bad log is a note
            reason = error.message if isinstance(error, UnhangError) else str(error)
            found.notes.append(Note("error", source.path, f"could not be read: {reason}"))
    found.notes += interfaces_taken(found.facts)
    return found


def _is_text(block: bytes) -> bool:
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
    line_number: int = 1
    open: dict[tuple[int, int, str], TracebackReader] = field(default_factory=dict)
    idle: int = 0
    pid_ranks: dict[tuple[str, int], int] = field(default_factory=dict)
    last_stamp: tuple[int, bool] = (0, False)
    entry: SummaryEntry | None = None
    here: tuple[bytes, int] = (b"", 0)
    looked: int = 0
    recognised: bool = False
    end: int = 0
    last_error: int = 0
    tail: bytes = b""
    offset: int = 0
    kept: EventBook = field(init=False)

    def __post_init__(self) -> None:
        """Keep its events with those of the other logs."""
        self.kept = EventBook(self.source.path, self.found)

    def feed(self, data: bytes) -> None:
        """Take the next block of whole lines."""
        self._block(data)
        self.found.bytes_read += len(data)

    def close(self) -> None:
        """End of the log: tracebacks that are still open are cut off here."""
        for key in list(self.open):
            self._close(key, self.open.pop(key).feed("<end of the log>"), Line(""))
        self.kept.counted()
        self._took_back()
        self._tail()
        if self.recognised or self.kept.seen:
            self.found.recognised = True
        else:
            read = self.line_number > 1
            text = "was not recognised as the log of a job" if read else "is empty"
            level: NoteLevel = "info" if self.source.kept else "warning"
            self.found.notes.append(Note(level, self.source.path, text))

    def _block(self, data: bytes) -> None:
        position = self.looked = 0
        self.last_error = 0
        for start, end, wanted in candidates(data):
            position = self._through(data, position, start)
            self.line_number += data.count(b"\n", position, start)
            line = parse_line(data[start:end], self.year)
            if ENTRY_ANCHOR in line.text:
                self._enter(line, data, start)
            self.here = (data, start)
            self.end = end
            self._candidate(self._claimed(line), wanted)
            self.line_number += 1
            position = end
        position = self._through(data, position, len(data))
        self.line_number += data.count(b"\n", position)
        self._after(data)

    def _after(self, data: bytes) -> None:
        """What the block tells besides messages: that this is a job's log, and that it went on."""
        self.kept.counted()
        self.recognised = self.recognised or looks_like_a_job(data)
        if self.kept.open_errors and goes_on(data, self.last_error):
            self.kept.went_on()
        self.tail = (
            (self.tail + data)[-STEPS_WINDOW:] if len(data) < STEPS_WINDOW else data[-STEPS_WINDOW:]
        )
        self.offset += len(data)

    def _took_back(self) -> None:
        """Take back the causes after which their own ranks counted further steps.

        Others may count a step or two after a rank has failed, so that a cause of which the rank is
        not known needs many more.
        """
        if not self.kept.causes:
            return
        begin = self.offset - len(self.tail)
        first = max(min(self.kept.causes.values()) - begin, 0)
        steps = list(step_lines(self.tail, first))
        whose: dict[int, int] = {}
        for index, end in self.kept.causes.items():
            if self._counted_on(steps, whose, self.found.events[index].rank, end - begin):
                self.kept.take_back(index)

    def _counted_on(
        self, steps: Sequence[StepLine], whose: dict[int, int], rank: int, end: int
    ) -> bool:
        """Whether a rank counted enough different steps behind a place of the log's end.

        Args:
            steps: The lines at its end that count steps.
            whose: Their ranks, as far as they were asked for, by where the lines begin.
            rank: Of it, or -1 for anybody.
            end: The place.
        """
        after: set[bytes] = set()
        for start, stop, step in steps[bisect_left(steps, (end,)) :]:
            if rank >= 0 and start not in whose:
                whose[start] = self._named(parse_line(self.tail[start:stop], self.year))[0]
            if rank < 0 or whose[start] == rank:
                after.add(step)
            if len(after) >= (ENOUGH if rank >= 0 else MANY_STEPS):
                return True
        return False

    def _tail(self) -> None:
        """Keep what the last lines say of trouble, where nothing else told of any."""
        if self.kept.tells_of_trouble():
            return
        last = self.tail[-TAIL:]
        for start, end in troubled(last):
            if goes_on(last, end):
                return
            line = parse_line(last[start:end], self.year)
            number = self.line_number - last.count(b"\n", start)
            whole = _WHOLE_LINE.match(line.text)
            known = _first(wanted_by(line.text), line.text)
            if whole and not known and line.level not in ("I", "D"):
                self._event(UNEXPLAINED_ERROR, whole, line, None, number)

    def _through(self, data: bytes, position: int, stop: int) -> int:
        """Walk line by line while tracebacks are open; returns where it stopped."""
        marks = self._marks()
        while position < stop and self.open:
            end = data.find(b"\n", position, stop) + 1 or stop
            self.end = end
            if marks and data.startswith(_RANKS, position) and not data.startswith(marks, position):
                self._idle()
            else:
                self._feed(self._claimed(parse_line(data[position:end], self.year)))
            self.line_number += 1
            position = end
        return position

    def _enter(self, line: Line, data: bytes, start: int) -> None:
        """Begin an entry of the launcher's summary: who it is about stands above."""
        above = [parse_line(raw).text for raw in lines_above(data, start, LOOK_BACK)]
        self.entry = entry_of(above, line, self.line_number)
        if self.entry is None:
            return
        if self._rank(self.entry.claim(line))[0] >= 0:
            self.found.ranks.add(self.entry.rank)
        self.pid_ranks.setdefault((line.host, self.entry.pid), self.entry.rank)
        last = self.found.events[-1] if self.found.events else None
        if last and last.code == ELASTIC_BLAMES.code and "blamed" not in last.fields:
            told = {"blamed": str(self.entry.rank), "exitcode": self.entry.exit_code}
            self.found.events[-1] = replace(last, fields={**last.fields, **told})

    def _claimed(self, line: Line) -> Line:
        """The line as one of the rank whose entry in the summary it belongs to."""
        entry = self.entry
        if entry is None:
            return line
        if entry.owns(line, self.line_number):
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
        key = self._key(line)
        if HEADER in line.text and RECORDED not in line.text:
            reader = self.open.setdefault(key, TracebackReader())
            reader.mark = _mark(*self.here)
            reader.lines += 1
            reader.ignored = reader.ignored or any(
                b"Exception ignored in" in raw for raw in lines_above(*self.here, 1)
            )
            self.idle = 0
            return
        if self._feed(line):
            return
        self._match(line, wanted, None)

    def _feed(self, line: Line) -> bool:
        """Give the line to the open traceback of its stream; False if there is none."""
        key = self._key(line)
        reader = self.open.get(key)
        if reader is None:
            return self._idle()
        self.idle = 0
        done = reader.feed(line.text)
        if done is not None:
            del self.open[key]
            self._close(key, done, line)
        return True

    def _close(self, key: tuple[int, int, str], done: Traceback | None, line: Line) -> None:
        if done is None or done.ignored:
            return
        if done.frames:
            line = changed(line, rank=key[0], local_rank=key[1], host=key[2])
        if self._match(line, wanted_by(line.text), done) or is_chain(line.text):
            return
        # An exception without a message, or a traceback whose end was lost, is an error as well.
        if done.exception.endswith(("Error", "Exception")):
            self._match(
                changed(line, text=f"{done.exception}: (no message)"), (UNHANDLED_EXCEPTION,), done
            )
        else:
            text = f"{HEADER}: {line.text or 'cut off here'}"
            self._match(changed(line, text=text), (UNEXPLAINED_ERROR,), done)

    def _match(self, line: Line, wanted: tuple[LogRule, ...], traceback: Traceback | None) -> bool:
        """Make events of what a line wraps and of itself; False where no rule knows any of it."""
        if not line.text or is_chain(line.text):
            return False
        self._fact(line)
        hits = [(line, _first(wanted, line.text))]
        for text in wrapped_in(self._paired(line)):
            hits.insert(0, (changed(line, text=text), _first(wanted_by(text), text)))
        known: set[str] = set()
        for part, hit in sorted(hits, key=lambda hit: hit[0] is line):
            if hit and hit[0].code not in (ANY_ERROR, *known):
                known.add(hit[0].code)
                self._event(*hit, part, traceback)
        return bool(known) or self._marked(line, hits[-1][1], traceback)

    def _marked(
        self, line: Line, hit: tuple[LogRule, re.Match[str]] | None, traceback: Traceback | None
    ) -> bool:
        """An error by its own mark, of which no rule knows the words."""
        if hit is None and line.level in ("E", "F"):
            whole = _WHOLE_LINE.match(line.text)
            hit = (UNEXPLAINED_ERROR, whole) if whole else None
        if hit is not None:
            self._event(*hit, line, traceback)
        return hit is not None

    def _fact(self, line: Line) -> None:
        fact = fact_of(line.text)
        if fact is not None:
            self.kept.state(replace(fact, rank=self._rank(line)[0]))

    def _paired(self, line: Line) -> str:
        """The line, with the next one of the log where this only says that an error follows."""
        if not line.text.rstrip().endswith(LAST_ERROR):
            return line.text
        data, start = self.here
        begin = data.find(b"\n", start) + 1
        end = data.find(b"\n", begin) + 1 or len(data)
        below = parse_line(data[begin:end], self.year) if begin else Line("")
        return line.text + below.text if self._key(below) == self._key(line) else line.text

    def _rank(self, line: Line) -> tuple[int, bool]:
        """Whose line it is, and whether that is only its rank on its node."""
        rank, local = self._named(line)
        if rank < 0 or rank in self.found.ranks:
            return rank, local
        if len(self.found.ranks) >= MAX_RANKS:
            self.kept.say(f"only the first {MAX_RANKS:,} ranks are told apart; others are nobody's")
            return UNKNOWN_RANK, False
        return rank, local

    def _named(self, line: Line) -> tuple[int, bool]:
        known = self.pid_ranks.get((line.host, line.pid), -1) if line.pid >= 0 else -1
        for rank in (line.rank, self.source.rank, known):
            if rank >= 0:
                return rank, False
        for rank in (line.local_rank, self.source.local_rank):
            if rank >= 0:
                return rank, True
        return UNKNOWN_RANK, False

    def _event(
        self,
        rule: LogRule,
        match: re.Match[str],
        line: Line,
        traceback: Traceback | None,
        number: int = 0,
    ) -> None:
        line = self._told(rule, match, line)
        rank, local = self._rank(line)
        if rank >= 0:
            self.found.ranks.add(rank)
        if line.time_ns:
            self.last_stamp = (line.time_ns, line.zoned)
        if claims_nothing(rule):
            self.last_error = self.end
        text = line.text[: MAX_TEXT if rule.blames == "writer" else MAX_WHOLE_TEXT]

        def make(order: int) -> LogEvent:
            frames = traceback.frames if traceback else ()
            time_ns, zoned = self.last_stamp if line.time_ns else self._stamp_before()
            fields = {**self._fields(match, frames, local=local), **self._below(rule)}
            if zoned:
                fields["clock"] = "utc"
            return LogEvent(
                code=rule.code,
                role=_role(rule, fields, line.text, frames),
                rank=rank,
                text=without_secrets(text),
                source=f"{self.source.path}:{number or self.line_number}",
                time_ns=time_ns,
                order=order,
                host=line.host,
                fields={key: without_secrets(value) for key, value in fields.items()},
            )

        self.kept.keep(rule, rank, text, self.offset + self.end, make)

    def _below(self, rule: LogRule) -> dict[str, str]:
        """What the lines right below a message add to it."""
        if not rule.below:
            return {}
        data, start = self.here
        begin = data.find(b"\n", start) + 1
        if data.find(rule.below_mark.encode(), begin, begin + BELOW) < 0:
            return {}
        below = data[begin : begin + BELOW].split(b"\n", BELOW_LINES)[:BELOW_LINES]
        lines = (parse_line(raw).text for raw in below)
        found = re.search(rule.below, "\n".join(lines))
        return {k: v for k, v in found.groupdict().items() if v is not None} if found else {}

    def _told(self, rule: LogRule, match: re.Match[str], line: Line) -> Line:
        """The line with the rank that its own words tell of who writes it."""
        if not match.re.groupindex:
            return line
        told = match.groupdict()
        if rule.rank_writes and line.rank < 0 and told.get("rank"):
            if line.pid >= 0:
                self.pid_ranks[line.host, line.pid] = int(told["rank"])
            return changed(line, rank=int(told["rank"]))
        if self._named(line)[0] < 0 and told.get("local_rank"):
            return changed(line, local_rank=int(told["local_rank"]))
        return line

    def _stamp_before(self) -> tuple[int, bool]:
        """A line without a stamp stands right behind the last one that had one."""
        data, start = self.here
        unseen = lines_above(data, start, LOOK_BACK, self.looked)
        above = (parse_line(raw, self.year) for raw in unseen)
        stamps = ((line.time_ns, line.zoned) for line in above if line.time_ns)
        self.last_stamp = next(stamps, self.last_stamp)
        self.looked = start
        return self.last_stamp

    def _fields(
        self, match: re.Match[str], frames: Sequence[Frame], *, local: bool
    ) -> dict[str, str]:
        """What the rule read out of the line, where it was raised, and what the path tells."""
        fields = {key: value for key, value in match.groupdict().items() if value is not None}
        site = shown_frame(tuple(frames))
        if site:
            fields |= {"file": site.file, "line": str(site.line), "function": site.function}
        if local:
            fields["rank_is"] = "local"
        if self.source.attempt:
            fields["attempt"] = self.source.attempt
        return fields


def _mark(data: bytes, start: int) -> bytes:
    """What stands before the header of a traceback, where it is the mark of its rank alone."""
    found = _RANK_MARK.match(data, start)
    return found[1] if found else b""


def _role(rule: LogRule, fields: Mapping[str, str], text: str, frames: Sequence[Frame]) -> LogRole:
    """What a message is; an exception of which no rule knows the words may still follow."""
    if "xid" in fields:
        return role_of_xid(int(fields.get("before", fields["xid"])))
    if rule.code == ANY_EXCEPTION and follows(text, frames):
        return "consequence"
    return rule.role


def _first(wanted: tuple[LogRule, ...], text: str) -> tuple[LogRule, re.Match[str]] | None:
    """The first rule that matches: a specific one stands before a general one."""
    return next(((rule, match) for rule in wanted if (match := rule.search(text))), None)


_WHOLE_LINE = re.compile(".*")
_RANKS = (b"[rank", b"[default")
_RANK_MARK = re.compile(
    rb"((?:\[(?:rank|default)\d{1,6}\]: ?)*\[(?:rank|default)\d{1,6}\]:) ?Traceback"
)
