"""What is kept of the logs, within bounds: events, each once with a count, and what was cut.

It refuses to forget how a log ends: the newest unexplained error always has a place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from unhang.logs.communicators import Communicators
from unhang.logs.rules import LogRule, rule_of
from unhang.logs.rules.known import UNEXPLAINED_ERROR, UNHANDLED_EXCEPTION
from unhang.model import Fact, LogEvent, Note

MAX_EVENTS = 200_000
MAX_FACTS = 100_000
MAX_RANKS = 1 << 16
"""Ranks that logs may name; the lines of further ones belong to no rank."""
MAX_UNEXPLAINED = 1_000
"""Unexplained errors that are kept: the first ones, and always the newest."""

ANY_EXCEPTION = UNHANDLED_EXCEPTION.code
"""The rule for exceptions with a message that no other rule knows."""

ANY_ERROR = UNEXPLAINED_ERROR.code
"""The rule for errors by their mark, with a message that no other rule knows."""

IN_THREAD = "thread"
"""Field of an exception that ended a thread, not its process: the thread's name, or "?"."""

REPORTS = "reports"
"""Field of an engine that stands still: how many reports in a row say so."""

WAITED_FOR = "waited_for"
"""Field of an event whose writer only waited: for what."""

WENT_ON = "went_on"
"""Field of an event after which the job counted further steps."""

Seen: TypeAlias = tuple[int | str, str, str]
"""What makes messages the same: whose, by which rule, and the words without their numbers."""
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)*")


def normalise(text: str) -> str:
    """The message without its numbers and addresses, for folding equal messages over ranks."""
    return _VARIABLE.sub("#", text)


@dataclass(slots=True)
class LogScan:
    """What was found in all logs together.

    Attributes:
        events: In order of reading; repeated messages of one rank are one event with a count.
        facts: What NCCL said of itself, per rank, each once; an ordered set.
        ranks: All ranks that any recognised line named.
        bytes_read: Size of what was read, decompressed.
        recognised: In one log at least there was a known message, or the shape of a job's log.
        got_on: One log at least tells that work was done.
        left_open: A person wrote next to one that its job stands.
        ended_well: One log at least tells of a good end, or of a result.
        communicators: Numbers of processes in NCCL's communicators.
    """

    events: list[LogEvent] = field(default_factory=list)
    facts: dict[Fact, None] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    bytes_read: int = 0
    recognised: bool = False
    got_on: bool = False
    left_open: bool = False
    ended_well: bool = False
    communicators: Communicators = field(default_factory=Communicators)


def claims_nothing(rule: LogRule) -> bool:
    """Whether a message of it names no cause, so that it means nothing once the job went on."""
    claims = rule.trust != "C" and rule.role not in ("observation", "consequence")
    return not claims and not rule.harmless


@dataclass(slots=True)
class EventBook:
    """Keeps the events of one log in what is found in all of them."""

    path: str
    found: LogScan
    seen: dict[Seen, int] = field(default_factory=dict)
    open_errors: set[int] = field(default_factory=set)
    causes: dict[int, int] = field(default_factory=dict)
    unexplained: list[Seen] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    more: dict[int, int] = field(default_factory=dict)

    def keep(
        self, rule: LogRule, whose: int | str, text: str, end: int, make: Callable[[int], LogEvent]
    ) -> Seen:
        """Keep a message: a new event, or one more of those that say the same.

        Args:
            rule: That knows it.
            whose: The rank that wrote it, or the host where no rank is known.
            text: What is compared, numbers aside.
            end: Where its line ends, in bytes from the beginning of the log.
            make: The event, given its place in the order of reading.

        Returns:
            What makes it the same as others.
        """
        seen = (whose, rule.code, normalise(text))
        if self.again(seen, rule, end):
            return seen
        index = self._room(rule, seen)
        if index < 0:
            return seen
        self.seen[seen] = index
        self._opened(index, rule)
        event = make(index)
        self.found.events[index : index + 1] = [event]
        if event.role == "cause":
            self.causes[index] = end
        return seen

    def again(self, seen: Seen, rule: LogRule, end: int) -> bool:
        """Count a message once more, where it is kept already."""
        index = self.seen.get(seen, -1)
        if index < 0:
            return False
        self.more[index] = self.more.get(index, 0) + 1
        self._opened(index, rule)
        if index in self.causes:
            self.causes[index] = end
        return True

    def counted(self) -> None:
        """Add what came again to its events; the job did not go on after it."""
        for index, more in self.more.items():
            event = self.found.events[index]
            fields = {key: value for key, value in event.fields.items() if key != WENT_ON}
            self.found.events[index] = replace(event, count=event.count + more, fields=fields)
        self.more.clear()

    def _opened(self, index: int, rule: LogRule) -> None:
        """Remember a message that claims nothing: further steps take it back."""
        if claims_nothing(rule):
            self.open_errors.add(index)

    def went_on(self) -> None:
        """The job counted further steps after all of this."""
        for index in self.open_errors:
            self.take_back(index)
        self.open_errors.clear()

    def take_back(self, index: int) -> None:
        """The job counted further steps after this."""
        event = self.found.events[index]
        self.found.events[index] = replace(event, fields={**event.fields, WENT_ON: "yes"})

    def tells_of_trouble(self) -> bool:
        """Whether something is kept of this log that a job which ends well does not print."""
        kept = (self.found.events[index] for index in self.seen.values())
        rules = ((rule_of(event.code), event) for event in kept if WENT_ON not in event.fields)
        return any(r and not r.harmless and r.role != "noise" for r, _ in rules)

    def _room(self, rule: LogRule, seen: Seen) -> int:
        """Where the next event goes; -1 where there is no room for it."""
        events = self.found.events
        if rule.code == ANY_ERROR:
            self.unexplained.append(seen)
            if len(self.unexplained) > MAX_UNEXPLAINED:
                self.say(
                    f"of unexplained errors the first {MAX_UNEXPLAINED:,} and the last are kept"
                )
                index = self.seen.pop(self.unexplained.pop(-2))
                self.more.pop(index, None)
                return index
        if len(events) < MAX_EVENTS:
            return len(events)
        self.say(f"only the first {MAX_EVENTS:,} different messages are kept")
        if rule.code == ANY_ERROR:
            self.unexplained.pop()
        return -1

    def state(self, fact: Fact) -> None:
        """Keep what NCCL says of itself."""
        if len(self.found.facts) < MAX_FACTS:
            self.found.facts[fact] = None

    def say(self, text: str) -> None:
        """Note something that was cut, once for each log."""
        if text not in self.said:
            self.said.add(text)
            self.found.notes.append(Note("warning", self.path, text))
