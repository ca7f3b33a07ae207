"""Whose line is it, and when was it written: the prefixes that launchers and libraries add.

Knows torchrun (`--tee 3`, `[default3]:`, `[rank3]:`), `srun --label`, `mpirun --tag-output`,
kubectl, `[host:rank]`, NCCL's `host:pid:tid [dev]` and the usual time stamps. It refuses to guess:
a line without a known prefix has no rank.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Line", "clean", "parse_line"]

MAX_LINE = 4000
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its prefixes.

    Attributes:
        rank: Global rank, or -1.
        local_rank: Rank on its node where only that is known, or -1.
        host: Host name, or "".
        pid: Process id, or -1.
        time_ns: Wall clock in ns since 1970 (as UTC where the line names no zone), or 0.
        text: What is left.
        level: "I", "W", "E" or "F" where the prefix says it, or "".
        zoned: The stamp names its zone: it can be compared with stamps of other hosts' zones.
    """

    text: str
    rank: int = -1
    local_rank: int = -1
    host: str = ""
    pid: int = -1
    time_ns: int = 0
    level: str = ""
    zoned: bool = False


def clean(raw: bytes) -> str:
    """Decode one line and take out terminal escapes and control characters; bounded in length."""
    text = raw[: MAX_LINE * 4].decode("utf-8", errors="replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    # A progress bar redraws with carriage returns: what stands at the end is what was seen.
    text = text.rstrip("\r\n").rpartition("\r")[2]
    return _CONTROL.sub("", text)[:MAX_LINE]


@dataclass(slots=True)
class _Found:
    """What the prefixes of one line have told so far: changed in place, millions of times."""

    rank: int = -1
    local_rank: int = -1
    host: str = ""
    pid: int = -1
    time_ns: int = 0
    level: str = ""
    zoned: bool = False


_Step = Callable[[re.Match[str], _Found], None]


def _set_rank(match: re.Match[str], found: _Found) -> None:
    found.rank = int(match["rank"])


def _set_local(match: re.Match[str], found: _Found) -> None:
    # What stood before it was the number of a launcher (srun --label torchrun …), not of a rank.
    found.rank, found.local_rank = -1, int(match["local"])


def _set_host_rank(match: re.Match[str], found: _Found) -> None:
    found.host, found.rank = match["host"], int(match["rank"])


def _set_host(match: re.Match[str], found: _Found) -> None:
    found.host = found.host or match["host"]


def _set_nccl(match: re.Match[str], found: _Found) -> None:
    found.host, found.pid = found.host or match["host"], int(match["pid"])


def _set_glog(match: re.Match[str], found: _Found) -> None:
    found.level, found.time_ns = match["level"], found.time_ns or _glog_time(match)


def _set_time(match: re.Match[str], found: _Found) -> None:
    if not found.time_ns:
        found.time_ns, found.zoned = _iso_time(match), match["zone"] is not None


_GLOG = (
    r"\[?(?P<level>[IWEF])(?P<month>\d\d?)(?P<day>\d\d) "
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?"
    r"(?: +\d+)?(?: [\w./-]+:\d+)?\]? ?"
)
_ISO = (
    r"[\[(]?(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[ T]"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?[\])]?[ :,]*"
)

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"

# Each step peels one prefix, and is tried where a line begins with one of its characters. They are
# tried in turn until none fits, so that launchers may stack.
_STEPS: tuple[tuple[str, re.Pattern[str], _Step], ...] = (
    ("[", re.compile(r"\[rank ?(?P<rank>\d{1,6})\]: ?", re.IGNORECASE), _set_rank),
    ("[", re.compile(r"\[default(?P<local>\d{1,6})\]:? ?"), _set_local),
    ("[", re.compile(r"\[(?:trainer|worker)_?(?P<local>\d{1,6})\]:? ?"), _set_local),
    ("[", re.compile(r"\[\d+,(?P<rank>\d{1,6})\]<(?:stdout|stderr|stddiag)>: ?"), _set_rank),
    ("[", re.compile(r"\[pod/(?P<host>[\w.-]+)/[\w.-]+\] ?"), _set_host),
    ("[", re.compile(r"\[(?P<host>[A-Za-z][\w.-]*):(?P<rank>\d{1,6})\]:? ?"), _set_host_rank),
    (" " + _DIGITS, re.compile(r" {0,6}(?P<rank>\d{1,6}): "), _set_rank),
    (
        _LETTERS,
        re.compile(r"(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+):\d+ \[-?\d+\] "),
        _set_nccl,
    ),
    ("[IWEF", re.compile(_GLOG), _set_glog),
    ("[(" + _DIGITS, re.compile(_ISO), _set_time),
)
_BY_FIRST: dict[str, tuple[tuple[re.Pattern[str], _Step], ...]] = {
    first: tuple((pattern, step) for firsts, pattern, step in _STEPS if first in firsts)
    for first in "[( " + _DIGITS + _LETTERS
}
_MAX_PREFIXES = 6
# Open MPI's --tag-output marks each write, and Python writes one line of a traceback in several.
_INNER_TAG = re.compile(r"\[\d+,(?P<rank>\d{1,6})\]<std(?:out|err|diag)>:")
_BODY_RANK = re.compile(
    r"\[(?:PG ID \d+ )?(?:PG GUID (?:0|default_pg)(?:\(default_pg\))? )?Rank (?P<rank>\d{1,6})\]"
)


def _without_inner_tags(text: str, rank: int) -> str:
    """The line without the tags that its own rank has inside it; another rank's would be news."""
    return _INNER_TAG.sub(lambda tag: "" if int(tag["rank"]) == rank else tag[0], text)


def parse_line(raw: bytes, year: int = 1970) -> Line:
    """Peel the prefixes of one line.

    Args:
        raw: The line as read, with or without its newline.
        year: Year of stamps that have none (glog); the caller knows the file's date.
    """
    text = clean(raw)
    found = _Found()
    start = 0
    for _ in range(_MAX_PREFIXES):
        for pattern, step in _BY_FIRST.get(text[start : start + 1], ()):
            match = pattern.match(text, start)
            if match:
                step(match, found)
                start = match.end()
                break
        else:
            break
    text = text[start:]
    if "]<std" in text:
        text = _without_inner_tags(text, found.rank)
    if 0 < found.time_ns < _YEAR_NS:
        found.time_ns += _year_ns(year)
    if found.rank < 0 and "Rank " in text:
        body = _BODY_RANK.search(text)
        if body:
            found.rank = int(body["rank"])
    return Line(
        text,
        found.rank,
        found.local_rank,
        found.host,
        found.pid,
        found.time_ns,
        found.level,
        found.zoned,
    )


@lru_cache(maxsize=64)
def _year_ns(year: int) -> int:
    return calendar.timegm((year, 1, 1, 0, 0, 0)) * 10**9


_YEAR_NS = 366 * 86_400 * 10**9


def _clock(match: re.Match[str], year: int) -> int:
    day = (year, int(match["month"]), int(match["day"]))
    time = (int(match["hour"]), int(match["minute"]), int(match["second"]))
    fraction = (match["fraction"] or "0").ljust(9, "0")
    try:
        return calendar.timegm((*day, *time, 0, 0, 0)) * 10**9 + int(fraction)
    except ValueError:
        return 0


def _glog_time(match: re.Match[str]) -> int:
    """A glog stamp has no year: the time within 1970, moved to the right year by the caller."""
    return _clock(match, 1970)


def _iso_time(match: re.Match[str]) -> int:
    time_ns = _clock(match, int(match["year"]))
    zone = match["zone"]
    if not time_ns or zone in (None, "Z"):
        return time_ns
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return time_ns - (seconds if zone[0] == "+" else -seconds) * 10**9
