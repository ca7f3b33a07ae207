"""Read gigabytes of logs and keep what the rules know, whose it is and when it was.

An Aho-Corasick automaton over the rules' anchors (ahocorasick_rs) finds the few lines worth
looking at; only those are decoded and matched. Nothing is decided here: see `failure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path

from unhang.errors import InputError, UnhangError
from unhang.logs.elastic import ENTRY_ANCHOR, Entry, entry_of
from unhang.logs.facts import FACT_ANCHORS, fact_of
from unhang.logs.following import follows
from unhang.logs.prefixes import Line, parse_line
from unhang.logs.rules import RULES, Rule
from unhang.logs.sources import LogSource, chunks, open_log
from unhang.logs.tracebacks import HEADER, Traceback, TracebackReader, is_chain, user_frame
from unhang.model import UNKNOWN_RANK, Fact, Frame, LogEvent, LogKind, Note
from unhang.telltale import without_secrets

__all__ = ["FileScanner", "LogScan", "normalise", "scan_logs"]

MAX_EVENTS = 200_000
MAX_FACTS = 100_000
MAX_TEXT = 600
LOOK_BACK = 12
"""Lines above a line without a stamp in which one is looked for."""
LOOKED_AT = 4_096
"""Bytes by which text is told from what is none."""
OPEN_LIMIT = 5_000
"""Lines of other streams after which a traceback that never ended is given up."""

Progress = Callable[[int], None]


@dataclass(slots=True)
class LogScan:
    """What was found in all logs together.

    Attributes:
        events: In order of reading; repeated messages of one rank are one event with a count.
        facts: What NCCL said of itself, per rank, each once; an ordered set.
        ranks: All ranks that any recognised line named.
        bytes_read: Size of what was read, decompressed.
    """

    events: list[LogEvent] = field(default_factory=list)
    facts: dict[Fact, None] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    bytes_read: int = 0


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


@lru_cache(maxsize=1)
def _automaton() -> tuple[
    Callable[[bytes], list[tuple[int, int, int]]], tuple[tuple[Rule, ...], ...]
]:
    """The search function and, per anchor, the rules that it announces (in table order)."""
    from ahocorasick_rs import BytesAhoCorasick

    by_anchor: dict[bytes, list[Rule]] = {HEADER.encode(): []}
    for rule in RULES:
        for anchor in rule.anchors:
            by_anchor.setdefault(anchor.encode(), []).append(rule)
    for anchor in (*FACT_ANCHORS, ENTRY_ANCHOR):
        by_anchor.setdefault(anchor.encode(), [])
    search = BytesAhoCorasick(list(by_anchor))
    return (
        lambda data: search.find_matches_as_indexes(data, overlapping=True),
        tuple(tuple(rules) for rules in by_anchor.values()),
    )


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
    seen: dict[tuple[int, str, str], int] = field(default_factory=dict)
    last_stamp: tuple[int, bool] = (0, False)
    entry: Entry | None = None
    here: tuple[bytes, int] = (b"", 0)
    full: bool = False

    def feed(self, data: bytes) -> None:
        """Take the next block of whole lines."""
        self._block(data)
        self.found.bytes_read += len(data)

    def close(self) -> None:
        """End of the log: tracebacks that are still open are cut off here."""
        for key in list(self.open):
            self._close(key, self.open.pop(key).feed("<end of the log>"), Line(""))

    def _block(self, data: bytes) -> None:
        search, rules = _automaton()
        position = 0
        for start, end, wanted in _candidates(data, search(data), rules):
            position = self._through(data, position, start)
            self.line_number += data.count(b"\n", position, start)
            line = parse_line(data[start:end], self.year)
            if ENTRY_ANCHOR in line.text:
                self._enter(line, data, start)
            self.here = (data, start)
            self._candidate(self._claimed(line), wanted)
            self.line_number += 1
            position = end
        position = self._through(data, position, len(data))
        self.line_number += data.count(b"\n", position)

    def _through(self, data: bytes, position: int, stop: int) -> int:
        """Walk line by line while tracebacks are open; returns where it stopped."""
        while position < stop and self.open:
            end = data.find(b"\n", position, stop) + 1 or stop
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
        self.found.ranks.add(self.entry.rank)
        self.pid_ranks.setdefault((line.host, self.entry.pid), self.entry.rank)
        last = self.found.events[-1] if self.found.events else None
        if last and last.code == _BLAMES and "blamed" not in last.fields:
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

    def _key(self, line: Line) -> tuple[int, int, str]:
        return (line.rank, line.local_rank, line.host)

    def _candidate(self, line: Line, wanted: tuple[Rule, ...]) -> None:
        key = self._key(line)
        if HEADER in line.text:
            reader = self.open.setdefault(key, TracebackReader())
            reader.lines += 1
            self.idle = 0
            return
        if self._feed(line):
            return
        self._match(line, wanted, None)

    def _feed(self, line: Line) -> bool:
        """Give the line to the open traceback of its stream; False if there is none."""
        key = self._key(line)
        reader = self.open.get(key)
        self.idle += 1
        if reader is None:
            if self.idle > OPEN_LIMIT:
                self.open.clear()
            return False
        self.idle = 0
        done = reader.feed(line.text)
        if done is not None:
            del self.open[key]
            self._close(key, done, line)
        return True

    def _close(self, key: tuple[int, int, str], done: Traceback | None, line: Line) -> None:
        wanted = _wanted(line.text)
        if done is None or not done.frames:
            self._match(line, wanted, done)
            return
        self._match(replace(line, rank=key[0], local_rank=key[1], host=key[2]), wanted, done)

    def _match(self, line: Line, wanted: tuple[Rule, ...], traceback: Traceback | None) -> None:
        if not line.text or is_chain(line.text):
            return
        fact = fact_of(line.text)
        if fact is not None and len(self.found.facts) < MAX_FACTS:
            self.found.facts[replace(fact, rank=self._rank(line)[0])] = None
        for rule in wanted:
            match = rule.search(line.text)
            if match:
                self._event(rule, match, line, traceback)
                return

    def _rank(self, line: Line) -> tuple[int, bool]:
        """Whose line it is, and whether that is only its rank on its node."""
        known = self.pid_ranks.get((line.host, line.pid), -1) if line.pid >= 0 else -1
        for rank in (line.rank, self.source.rank, known):
            if rank >= 0:
                return rank, False
        for rank in (line.local_rank, self.source.local_rank):
            if rank >= 0:
                return rank, True
        return UNKNOWN_RANK, False

    def _event(
        self, rule: Rule, match: re.Match[str], line: Line, traceback: Traceback | None
    ) -> None:
        if rule.code in _NAMES_ITS_RANK and line.rank < 0 and match["rank"] is not None:
            line = replace(line, rank=int(match["rank"]))
            if line.pid >= 0:
                self.pid_ranks[line.host, line.pid] = line.rank
        rank, local = self._rank(line)
        if rank >= 0:
            self.found.ranks.add(rank)
        if line.time_ns:
            self.last_stamp = (line.time_ns, line.zoned)
        events, text = self.found.events, line.text[:MAX_TEXT]
        seen = (rank, rule.code, normalise(text))
        if seen in self.seen:
            index = self.seen[seen]
            events[index] = replace(events[index], count=events[index].count + 1)
            return
        if len(events) >= MAX_EVENTS:
            self._say_full()
            return
        self.seen[seen] = len(events)
        frames = traceback.frames if traceback else ()
        time_ns, zoned = self.last_stamp if line.time_ns else self._stamp_before()
        fields = self._fields(match, frames, local=local)
        if zoned:
            fields["clock"] = "utc"
        events.append(
            LogEvent(
                code=rule.code,
                kind=_kind(rule, line.text, frames),
                rank=rank,
                text=without_secrets(text),
                source=f"{self.source.path}:{self.line_number}",
                time_ns=time_ns,
                order=len(events),
                host=line.host,
                fields={key: without_secrets(value) for key, value in fields.items()},
            )
        )

    def _stamp_before(self) -> tuple[int, bool]:
        """A line without a stamp stands right behind the last one that had one."""
        data, start = self.here
        above = (parse_line(raw, self.year) for raw in lines_above(data, start, LOOK_BACK))
        stamps = ((line.time_ns, line.zoned) for line in above if line.time_ns)
        self.last_stamp = next(stamps, self.last_stamp)
        return self.last_stamp

    def _fields(
        self, match: re.Match[str], frames: Sequence[Frame], *, local: bool
    ) -> dict[str, str]:
        """What the rule read out of the line, where it was raised, and what the path tells."""
        fields = {key: value for key, value in match.groupdict().items() if value is not None}
        site = user_frame(tuple(frames))
        if site:
            fields |= {"file": site.file, "line": str(site.line), "function": site.function}
        if local:
            fields["rank_is"] = "local"
        if self.source.attempt:
            fields["attempt"] = self.source.attempt
        return fields

    def _say_full(self) -> None:
        if not self.full:
            self.full = True
            text = f"only the first {MAX_EVENTS:,} different messages are kept"
            self.found.notes.append(Note("warning", self.source.path, text))


def _kind(rule: Rule, text: str, frames: Sequence[Frame]) -> LogKind:
    """What a message is; an exception of which no rule knows the words may still follow."""
    if rule.code == ANY_EXCEPTION and follows(text, frames):
        return "consequence"
    return rule.kind


ANY_EXCEPTION = "UH793"
"""The rule for exceptions of which no other rule knows the message."""

_BLAMES = "UH723"
"""The headline below which the launcher's summary says whom torchelastic blames."""

_NAMES_ITS_RANK = frozenset({"UH702", "UH714", "UH738", "UH739"})
"""Rules whose field "rank" is the rank that writes the line, not one that it speaks of."""


def _candidates(
    data: bytes, hits: list[tuple[int, int, int]], rules: tuple[tuple[Rule, ...], ...]
) -> Iterator[tuple[int, int, tuple[Rule, ...]]]:
    """Lines with at least one anchor: (start, end, rules in table order)."""
    line_end = -1
    start = 0
    wanted: set[int] = set()
    order = _rule_order()
    for anchor, position, _ in sorted(hits, key=lambda hit: hit[1]):
        if position >= line_end:
            if line_end >= 0:
                yield start, line_end, tuple(RULES[i] for i in sorted(wanted))
            start = data.rfind(b"\n", 0, position) + 1
            line_end = data.find(b"\n", position) + 1 or len(data)
            wanted = set()
        wanted |= {order[rule.code] for rule in rules[anchor]}
    if line_end >= 0:
        yield start, line_end, tuple(RULES[i] for i in sorted(wanted))


def _wanted(text: str) -> tuple[Rule, ...]:
    """The rules that may match a line that was put together from several, in table order."""
    search, rules = _automaton()
    order = _rule_order()
    found = {order[rule.code] for anchor, _, _ in search(text.encode()) for rule in rules[anchor]}
    return tuple(RULES[i] for i in sorted(found))


def lines_above(data: bytes, start: int, most: int) -> Iterator[bytes]:
    """The lines above a position, nearest first."""
    for _ in range(most):
        if start <= 0:
            return
        above = data.rfind(b"\n", 0, start - 1) + 1
        yield data[above:start]
        start = above


@lru_cache(maxsize=1)
def _rule_order() -> dict[str, int]:
    return {rule.code: i for i, rule in enumerate(RULES)}


_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)*")


def normalise(text: str) -> str:
    """The message without its numbers and addresses, for folding equal messages over ranks."""
    return _VARIABLE.sub("#", text)
