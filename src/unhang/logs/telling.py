"""Make events of lines: by which rule, whose line it is, when it was written, what else it tells.

A line that wraps another one is judged by what it wraps; an error with words that no rule knows
is kept by its own mark. Nothing is decided here: see `failure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from msgspec.structs import replace as changed

from unhang.logs.communicators import AMONG
from unhang.logs.files import LogSource
from unhang.logs.following import follows
from unhang.logs.keeping import (
    ANY_ERROR,
    ANY_EXCEPTION,
    IN_THREAD,
    MAX_RANKS,
    WAITED_FOR,
    EventBook,
    LogScan,
    Seen,
    claims_nothing,
)
from unhang.logs.lines.anchors import lines_above, wanted_by
from unhang.logs.lines.nccl_facts import fact_of
from unhang.logs.lines.prefixes import Line, parse_line
from unhang.logs.lines.signs import gets_on
from unhang.logs.lines.tracebacks import HEADER, Traceback, is_chain
from unhang.logs.lines.wrappers import LAST_ERROR, wrapped_in
from unhang.logs.repeats import KnownLine
from unhang.logs.rules import LogRule
from unhang.logs.rules.base import compiled
from unhang.logs.rules.known import ENDED_BY_SIGNAL, UNEXPLAINED_ERROR, UNHANDLED_EXCEPTION
from unhang.logs.rules.xids import role_of_xid
from unhang.model import UNKNOWN_RANK, Frame, LogEvent, LogRole
from unhang.stacks.ownership import shown_frame, under
from unhang.telltale import without_secrets

MAX_TEXT = 600
MAX_WHOLE_TEXT = 2_400
"""Length of a message that tells both sides of a difference."""
LOOK_BACK = 12
"""Lines above a line without a stamp in which one is looked for."""
BELOW, BELOW_LINES = 4_096, 64
"""How far below a message its continuation is looked for."""

ABOVE = "above"
"""Field of an abort: the line above it that no rule knows."""
ABOVE_LINES = 4

_WHOLE_LINE = re.compile(".*")


@dataclass(slots=True)
class Spot:
    """Where the scan is: changed in place for each line that is looked at.

    Attributes:
        data: The block.
        start, end: Where the line begins and ends in it.
        number: Of the line in its log.
        offset: Where the block begins in its log.
        looked: Down to here stamps were looked for.
        last_error: Where the last message that claims nothing ends.
    """

    data: bytes = b""
    start: int = 0
    end: int = 0
    number: int = 1
    offset: int = 0
    looked: int = 0
    last_error: int = 0


@dataclass(slots=True)
class Teller:
    """Makes events of the lines of one log, and keeps them with those of the others."""

    source: LogSource
    found: LogScan
    year: int
    spot: Spot = field(default_factory=Spot)
    pid_ranks: dict[tuple[str, int], int] = field(default_factory=dict)
    last_stamp: tuple[int, bool] = (0, False)
    unread: bytes = b""
    made: list[tuple[LogRule, Seen]] = field(default_factory=list)
    kept: EventBook = field(init=False)

    def __post_init__(self) -> None:
        """Keep its events with those of the other logs."""
        self.kept = EventBook(self.source.path, self.found)

    def tell(self, line: Line, wanted: tuple[LogRule, ...], traceback: Traceback | None) -> bool:
        """Make events of what a line wraps and of itself; False where no rule knows any of it."""
        self.made.clear()
        if not line.text or is_chain(line.text):
            return False
        self._fact(line)
        hit = first_of(wanted, line.text)
        known: set[str] = set()
        for text in reversed(tuple(wrapped_in(self._paired(line)))):
            inner = first_of(wanted_by(text), text)
            if inner and inner[0].code not in (ANY_ERROR, *known):
                known.add(inner[0].code)
                self.event(*inner, changed(line, text=text), traceback)
        if hit and hit[0].code not in (ANY_ERROR, *known):
            known.add(hit[0].code)
            self.event(*hit, line, traceback)
        return bool(known) or self._marked(line, hit, traceback)

    def tell_end(self, line: Line, done: Traceback) -> None:
        """An exception without a message, or a traceback that lost its end, is an error as well."""
        if done.exception and done.frames and under(done.frames[0].file, "torch/multiprocessing/"):
            return  # A parent passes on what its child raised: that stands below.
        if done.exception.endswith(("Error", "Exception")):
            text, rule = f"{done.exception}: (no message)", UNHANDLED_EXCEPTION
        elif done.exception == "SystemExit" and done.frames:  # Python itself prints none for it
            text, rule = f"SystemExit: {done.message or 0}", UNHANDLED_EXCEPTION
        else:
            text, rule = f"{HEADER}: {line.text or 'cut off here'}", UNEXPLAINED_ERROR
        self.tell(changed(line, text=text), (rule,), done)

    def tell_unexplained(self, line: Line, number: int) -> None:
        """Keep a line that no rule knows as an error."""
        whole = _WHOLE_LINE.match(line.text)
        if whole:
            self.event(UNEXPLAINED_ERROR, whole, line, None, number)

    def rank_of(self, line: Line) -> tuple[int, bool]:
        """Whose line it is, and whether that is only its rank on its node."""
        rank, local = self.named(line)
        if rank < 0 or rank in self.found.ranks:
            return rank, local
        if self.has_no_room(rank):
            self.kept.say(f"more than {MAX_RANKS:,} ranks: lines of the others belong to no rank")
            return UNKNOWN_RANK, False
        return rank, local

    def has_no_room(self, rank: int) -> bool:
        """Whether it is one rank too many."""
        ranks = self.found.ranks
        return len(ranks) >= MAX_RANKS and rank not in ranks

    def named(self, line: Line) -> tuple[int, bool]:
        """The rank that a line, its log, or its process tells."""
        if line.rank >= 0:
            return line.rank, False
        known = self.pid_ranks.get((line.host, line.pid), -1) if line.pid >= 0 else -1
        for rank in (self.source.rank, known, self._numbered(line)):
            if rank >= 0:
                return rank, False
        for rank in (line.local_rank, self.source.local_rank):
            if rank >= 0:
                return rank, True
        return UNKNOWN_RANK, False

    def _numbered(self, line: Line) -> int:
        """The rank of its process by a number in a communicator, where nothing else tells."""
        process = (line.host, line.pid)
        if max(line.rank, self.source.rank, self.pid_ranks.get(process, -1)) >= 0 or line.pid < 0:
            return UNKNOWN_RANK
        return self.found.communicators.rank_of(process)

    def event(
        self,
        rule: LogRule,
        match: re.Match[str],
        line: Line,
        traceback: Traceback | None,
        number: int = 0,
        told: Mapping[str, str] | None = None,
        role: LogRole | None = None,
    ) -> None:
        """Keep what a rule knows of a line.

        Args:
            rule: That matched.
            match: Its match.
            line: The line, or the text that it wraps.
            traceback: That the line ends, if any.
            number: Of the line, where that is not where the scan is.
            told: What else is known of it, as fields.
            role: Of the message, where that is known.
        """
        line = self._told(rule, match, line)
        rank, local = self.rank_of(line)
        # Where its parent waited is not where a spawned process ended.
        spawned = match.groupdict().get("spawned")
        frames = traceback.frames if traceback and not spawned else ()

        def fields_of() -> dict[str, str]:
            fields = {**self._fields(rule, match, frames, local=local), **self._below(rule, line)}
            fields |= told or {}
            if traceback and traceback.thread and rule is UNHANDLED_EXCEPTION:
                fields[IN_THREAD] = traceback.thread
            if line.rank < 0 <= rank and not local and self._numbered(line) == rank:
                fields[AMONG] = str(self.found.communicators.size)
            if rule is ENDED_BY_SIGNAL and (above := self._above(line)):
                fields[ABOVE] = above
            return fields

        def role_of(fields: Mapping[str, str]) -> LogRole:
            return role or _role(rule, fields, line.text, frames)

        own = line if line.rank == rank else changed(line, rank=rank)
        self._keep(rule, own, fields_of, role_of, number)

    def alike(self, kind: KnownLine, line: Line) -> Seen | None:
        """Keep what a line tells that another rank said before; None where it says other things."""
        self.made.clear()
        match = kind.rule.search(line.text)
        if match is not None:
            self.event(kind.rule, match, line, None, role=kind.role)
        return self.made[0][1] if self.made else None

    def _keep(
        self,
        rule: LogRule,
        line: Line,
        fields_of: Callable[[], dict[str, str]],
        role_of: Callable[[Mapping[str, str]], LogRole],
        number: int,
    ) -> None:
        """Keep a message: the rank of the line is the one that it counts for."""
        if line.rank >= 0:
            self.found.ranks.add(line.rank)
        if line.time_ns:
            self.last_stamp, self.unread = (line.time_ns, line.zoned), b""
        if claims_nothing(rule):
            self.spot.last_error = self.spot.end
        text = line.text[: MAX_TEXT if rule.blames == "writer" else MAX_WHOLE_TEXT]

        def make(order: int) -> LogEvent:
            time_ns, zoned = self.last_stamp if line.time_ns else self._stamp_before()
            said = _harmless(text)
            fields = fields_of()
            for key, value in fields.items():
                if said != text or value not in text:  # What is part of it was looked at with it.
                    fields[key] = _harmless(value)
            if zoned:
                fields["clock"] = "utc"
            return LogEvent(
                code=rule.code,
                role=role_of(fields),
                rank=line.rank,
                text=said,
                source=f"{self.source.path}:{number or self.spot.number}",
                time_ns=time_ns,
                order=order,
                host=line.host,
                fields=fields,
            )

        whose = line.rank if line.rank >= 0 else line.host
        seen = self.kept.keep(rule, whose, text, self.spot.offset + self.spot.end, make)
        self.made.append((rule, seen))

    def _marked(
        self, line: Line, hit: tuple[LogRule, re.Match[str]] | None, traceback: Traceback | None
    ) -> bool:
        """An error by its own mark, with words that no rule knows."""
        if hit is None and line.level in ("E", "F"):
            whole = _WHOLE_LINE.match(line.text)
            hit = (UNEXPLAINED_ERROR, whole) if whole else None
        if hit is not None:
            self.event(*hit, line, traceback)
        return hit is not None

    def _fact(self, line: Line) -> None:
        fact = fact_of(line.text)
        if fact is not None:
            self.kept.state(replace(fact, rank=self.rank_of(line)[0]))

    def _paired(self, line: Line) -> str:
        """The line, with the next one of the log where this only says that an error follows."""
        if not line.text.rstrip().endswith(LAST_ERROR):
            return line.text
        data = self.spot.data
        begin = data.find(b"\n", self.spot.start) + 1
        end = data.find(b"\n", begin) + 1 or len(data)
        below = parse_line(data[begin:end], self.year) if begin else Line("")
        same = (below.rank, below.local_rank, below.host) == (line.rank, line.local_rank, line.host)
        return line.text + below.text if same else line.text

    def _below(self, rule: LogRule, line: Line) -> dict[str, str]:
        """What the lines right below a message, of whom wrote it, add to it."""
        if not rule.below:
            return {}
        data = self.spot.data
        begin = data.find(b"\n", self.spot.start) + 1
        if data.find(rule.below.mark.encode(), begin, begin + BELOW) < 0:
            return {}
        below = data[begin : begin + BELOW].split(b"\n", BELOW_LINES)[:BELOW_LINES]
        lines = (parse_line(raw) for raw in below)
        whose = (line.rank, line.local_rank)
        same = (each.text for each in lines if (each.rank, each.local_rank) == whose)
        found = re.search(rule.below.pattern, "\n".join(same))
        return {k: v for k, v in found.groupdict().items() if v is not None} if found else {}

    def _above(self, line: Line) -> str:
        """The last line of its process above an abort that no rule knows: it may say why."""
        for raw in lines_above(self.spot.data, self.spot.start, ABOVE_LINES):
            above = parse_line(raw, self.year)
            whose = (above.rank, above.local_rank, above.host)
            if whose != (line.rank, line.local_rank, line.host) or not above.text.strip():
                continue
            known = wanted_by(above.text) or above.level in ("I", "W", "D") or gets_on(raw)
            return "" if known else above.text[:MAX_TEXT]
        return ""

    def _told(self, rule: LogRule, match: re.Match[str], line: Line) -> Line:
        """The line with the rank that its own words tell of who writes it."""
        if not match.re.groupindex:
            return line
        told = match.groupdict()
        if told.get("nranks") and line.pid >= 0:
            place = (line.host, line.pid), told.get("device") or ""
            self.found.communicators.add(*place, int(told["nranks"]), int(told["rank"]))
        elif rule.rank_writes and line.rank < 0 and told.get("rank"):
            if line.pid >= 0:
                self.pid_ranks[line.host, line.pid] = int(told["rank"])
            return changed(line, rank=int(told["rank"]))
        local = told.get("local_rank") or told.get("spawned")
        if self.named(line)[0] < 0 and local:
            return changed(line, local_rank=int(local))
        return line

    def _stamp_before(self) -> tuple[int, bool]:
        """A line without a stamp stands right behind the last one that had one."""
        spot = self.spot
        if spot.looked >= spot.start - 1 and not self.unread:  # Nothing stands between.
            spot.looked = spot.end
            return self.last_stamp
        above = (*lines_above(spot.data, spot.start, LOOK_BACK, spot.looked), self.unread)
        lines = (parse_line(raw, self.year) for raw in above)
        stamps = ((line.time_ns, line.zoned) for line in lines if line.time_ns)
        self.last_stamp, self.unread = next(stamps, self.last_stamp), b""
        spot.looked = spot.end  # This line has none.
        return self.last_stamp

    def _fields(
        self, rule: LogRule, match: re.Match[str], frames: Sequence[Frame], *, local: bool
    ) -> dict[str, str]:
        """What the rule read out of the line, where it was raised, and what the path tells."""
        fields = {key: value for key, value in match.groupdict().items() if value is not None}
        if rule.waits:
            waited = _waited_for(rule, match)
            rows = {row for row, _ in rule.waits}
            fields = {key: value for key, value in fields.items() if key not in rows}
            fields |= {WAITED_FOR: waited} if waited else {}
        site = shown_frame(tuple(frames)) if frames else None
        if site:
            fields |= {"file": site.file, "line": str(site.line), "function": site.function}
        if local:
            fields["rank_is"] = "local"
        if self.source.attempt:
            fields["attempt"] = self.source.attempt
        return fields


@lru_cache(maxsize=1_024)
def _harmless(text: str) -> str:
    """A text without secrets: of a job in which all ranks shout, it is the same for most."""
    return without_secrets(text)


def _waited_for(rule: LogRule, match: re.Match[str]) -> str:
    """What the writer waited for, where the rule says that it did: of what its pattern found."""
    return rule.waited_for(match) if rule.waits and match.re == compiled(rule.pattern) else ""


def _role(rule: LogRule, fields: Mapping[str, str], text: str, frames: Sequence[Frame]) -> LogRole:
    """What a message is; an exception with words that no rule knows may still follow."""
    if "xid" in fields:
        return role_of_xid(int(fields.get("before", fields["xid"])), mild="mild" in fields)
    if rule.code == ANY_EXCEPTION and follows(text, frames):
        return "consequence"
    return rule.role


def first_of(wanted: tuple[LogRule, ...], text: str) -> tuple[LogRule, re.Match[str]] | None:
    """The first rule that matches: a specific one stands before a general one."""
    for rule in wanted:
        match = rule.search(text)
        if match:
            return rule, match
    return None
