"""What was said before, numbers aside: known by its bytes, so that it is not read once more.

Of a job in which all ranks shout, most lines say what was said before: by the same rank, then they
are counted, or by another, then the message is made as the first one was. A line is known again
only where no digit of it could change what it means: no rule that its words announce looks for a
number, and nothing but the mark of its rank, a stamp of glog and `[Rank N]` stands before its
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from unhang.logs.keeping import ANY_ERROR, Seen, claims_nothing
from unhang.logs.lines.anchors import wanted_by
from unhang.logs.lines.nccl_facts import fact_of
from unhang.logs.lines.prefixes import Line
from unhang.logs.lines.tracebacks import HEADER
from unhang.logs.lines.wrappers import LAST_ERROR, wrapped_in
from unhang.logs.rules import RULES, LogRule
from unhang.model import LogEvent, LogRole

MOST = 8_192
LONGEST = 2_048

_MARK = re.compile(
    rb"\[rank(\d{1,6})\]: ?(?:(\[[IWEF]\d{4}) \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: +\d+)?"
    rb"(?: [\w./-]+:\d+)?\] ?)?(?:\[Rank (\d{1,6})\] ?)?(?=[A-Za-z])"
)
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_Key = tuple[bytes, bytes, bytes, bytes]
_KindKey = tuple[bytes, bool, bytes]


@dataclass(frozen=True, slots=True)
class Repeat:
    """What a line told when it came first.

    Attributes:
        made: The rules that knew it, and what makes their messages the same.
        stream: Whose line it is, as tracebacks are distinguished.
        claims_nothing: One of its messages means nothing once the job went on.
        stamped: It has a stamp.
    """

    made: tuple[tuple[LogRule, Seen], ...]
    stream: tuple[int, int, str]
    claims_nothing: bool
    stamped: bool


@dataclass(frozen=True, slots=True)
class KnownLine:
    """What a line tells of whichever rank says it.

    Attributes:
        rule: The only rule that knows it.
        role: Of its message.
        local_rank: As the line of any rank has it.
        said: Its words without their numbers, by which messages are compared.
    """

    rule: LogRule
    role: LogRole
    local_rank: int
    said: str


class Marked(NamedTuple):
    """A line by the mark of its rank, and its words with zeros as digits."""

    mark: re.Match[bytes]
    rest: bytes

    def key(self) -> _Key:
        """What is the same for a line that its rank says again."""
        mark = self.mark
        return (mark[1], mark[2] or b"", mark[3] or b"", self.rest)

    def kind_key(self) -> _KindKey:
        """What is the same for a line that another rank says."""
        return ((self.mark[2] or b"")[:2], self.mark[3] is None, self.rest)


@dataclass(slots=True)
class Repeats:
    """The lines of one log that are known again."""

    lines: dict[_Key, Repeat | None] = field(default_factory=dict)
    kinds: dict[_KindKey, KnownLine | None] = field(default_factory=dict)

    def seen(self, data: bytes, start: int, end: int) -> Marked | None:
        """A line whose beginning marks its rank, as it is compared; None where it may be news."""
        mark = _MARK.match(data, start, end)
        return Marked(mark, data[mark.end() : end].translate(_DIGITS)) if mark else None

    def known(self, line: Marked) -> Repeat | None:
        """What a line told before, or None where it may be news."""
        return self.lines.get(line.key())

    def alike(self, line: Marked) -> tuple[KnownLine, int] | None:
        """What a line tells that another rank said before, and its rank; None as above."""
        kind = self.kinds.get(line.kind_key())
        return None if kind is None else (kind, int(line.mark[3] or line.mark[1]))

    def count(self, line: Marked, known: Repeat) -> None:
        """Know a line again that was made as that of another rank."""
        self._put(line.key(), known)

    def _put(self, key: _Key, known: Repeat | None) -> None:
        if len(self.lines) >= MOST:
            self.lines.clear()
        self.lines[key] = known

    def learn(
        self,
        data: bytes,
        start: int,
        end: int,
        line: Line,
        wanted: tuple[LogRule, ...],
        made: Sequence[tuple[LogRule, Seen]],
        event: LogEvent | None,
    ) -> None:
        """Know a line again, if no digit of it matters.

        Args:
            data: The block.
            start: Where the line begins in it.
            end: Where it ends.
            line: As it was read.
            wanted: The rules that its words announce.
            made: The rules that knew it, and what makes their messages the same.
            event: The only message that it made, if this is the first of its rank.
        """
        marked = self.seen(data, start, end)
        if not marked or end - start > LONGEST:
            return
        key = marked.key()
        if key in self.lines:
            return
        sure = _is_plain(marked.mark, data, end, line) and _says_the_same(line, wanted, made)
        self._put(key, repeat_of(line, made) if sure else None)
        if len(self.kinds) < MOST:
            kind = _kind_of(line, made, event) if sure else None
            self.kinds.setdefault(marked.kind_key(), kind)


def _kind_of(
    line: Line, made: Sequence[tuple[LogRule, Seen]], event: LogEvent | None
) -> KnownLine | None:
    """What any rank tells by such a line, if its words are all of it."""
    if event is None or len(made) != 1 or event.text != line.text:
        return None
    rule, seen = made[0]
    return KnownLine(rule, event.role, line.local_rank, seen[2])


def repeat_of(line: Line, made: Sequence[tuple[LogRule, Seen]]) -> Repeat:
    """What a line told when it came first, for lines of that rank."""
    nothing = any(claims_nothing(rule) for rule, _ in made)
    stream = (line.rank, line.local_rank, line.host)
    return Repeat(tuple(made), stream, nothing, line.time_ns > 0)


def _says_the_same(
    line: Line, wanted: tuple[LogRule, ...], made: Sequence[tuple[LogRule, Seen]]
) -> bool:
    """Whether the line would tell the same of the same rank with any other digits."""
    if {seen[0] for _, seen in made} != {line.rank} or fact_of(line.text) is not None:
        return False
    known = all(rule.code != ANY_ERROR for rule, _ in made)
    return known and _digits_are_nothing(line.text, wanted)


def _is_plain(mark: re.Match[bytes], data: bytes, end: int, line: Line) -> bool:
    """Whether the words begin where the mark ends, which alone says whose they are."""
    rest = data[mark.end() : end]
    return (
        rest.isascii()
        and rest.decode("ascii").rstrip("\r\n") == line.text
        and line.rank == int(mark[3] or mark[1])
        and line.host == ""
        and HEADER not in line.text
        and "0x" not in line.text
        and not line.text.rstrip().endswith(LAST_ERROR)
    )


def _digits_are_nothing(text: str, wanted: tuple[LogRule, ...]) -> bool:
    """Whether rules would say the same of the line with any other digits."""
    zeros = re.sub(r"\d", "0", text)
    if any(anchor in zeros for anchor in _digit_anchors()):
        return False
    asked = [wanted, *(wanted_by(inner) for inner in wrapped_in(text))]
    texts = [text, *wrapped_in(text)]
    return all(_sure(rules, each) for rules, each in zip(asked, texts, strict=True))


def _sure(rules: Iterable[LogRule], text: str) -> bool:
    """Whether no rule up to the first that matches looks for a certain digit."""
    for rule in rules:
        if rule.code == ANY_ERROR:
            return True  # Next to a rule that knows the line it is not asked.
        if rule.only or _looks_for_digits(rule.pattern):
            return False
        if rule.search(text):
            return True
    return True


@lru_cache(maxsize=1_024)
def _looks_for_digits(pattern: str) -> bool:
    """Whether a regular expression has digits of its own, quantifiers and names aside."""
    bare = re.sub(r"\\[dwsDWSb.]|\{\d+(?:,\d*)?\}|\(\?P[<=]\w+[>)]", "", pattern)
    return bool(re.search(r"\d", bare))


@lru_cache(maxsize=1)
def _digit_anchors() -> tuple[str, ...]:
    """The anchors that have digits, with these as zeros: other digits may announce their rules."""
    anchors = {a for rule in RULES if rule.code != ANY_ERROR for a in rule.anchors}
    return tuple(sorted({re.sub(r"\d", "0", a) for a in anchors if re.search(r"\d", a)}))
