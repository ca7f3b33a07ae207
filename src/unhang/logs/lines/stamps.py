"""When a line was written: the forms of time stamps that logs have, and what they mean.

A form without a year gives the time within 1970, for the caller to move to the right year. Forms
that count from a boot are peeled off and tell no time.
"""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timezone
from functools import lru_cache

Stamp = tuple[int, bool]
"""Wall clock in ns since 1970 (as UTC where no zone is named), and whether a zone is named."""

_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9})\d*)?"
_END = r"[\])]?[:,]? ?(?:\| )?"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NAME = f"(?P<name>{'|'.join(_MONTHS)})"
_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"

STAMPS: tuple[tuple[str, str], ...] = (
    # 2025-09-22 14:00:00,250 · [2025-09-22T16:00:00+02:00] · [2025-03-09 00:57:15 TP4]
    (
        "[(0123456789",
        (
            r"[\[(]?(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[ T_]"
            + _CLOCK
            + r"(?P<zone>Z|[+-]\d\d:?\d\d)?(?P<tags>(?: [DPTE]P\d{1,5})*)"
            + _END
        ),
    ),
    # 02/11/2024 22:38:34 · [03/17/23 20:03:12]
    (
        "[0123456789",
        (
            r"\[?(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>(?:20)?\d\d)[ ,]+"
            + _CLOCK
            + _END
            + "(?:- )?"
        ),
    ),
    # 17-Jan-23 17:21:19
    (
        "0123456789",
        r"(?P<day>\d\d)-" + _NAME + r"-(?P<year>(?:20)?\d\d) " + _CLOCK + _END,
    ),
    # Fri Sep 25 16:52:53 2020 · dmesg -T: [Sun Nov  2 14:07:45 2025]
    (
        "[MTWFS",
        (
            r"\[?"
            + _WEEKDAY
            + " "
            + _NAME
            + r" {1,2}(?P<day>\d{1,2}) "
            + _CLOCK
            + r"(?: [A-Z]{3,4})? (?P<year>\d{4})"
            + _END
        ),
    ),
    # dmesg and UCX: seconds since the boot, or since 1970
    ("[", r"\[ *(?P<seconds>\d{1,10})\.(?P<fraction>\d{1,9})\] ?"),
    # dmesg -e: since the line before
    ("[", r"\[ {0,8}\+(?P<seconds>\d{1,4})\.(?P<fraction>\d{1,9})\] ?"),
)


def read_stamp(match: re.Match[str]) -> Stamp:
    """The time that a stamp tells; 0 where it tells none."""
    fields = match.groupdict()
    if "seconds" in fields:
        return _since_1970(match), True
    year = fields.get("year")
    time_ns = _clock(match, int(f"20{year}"[-4:]) if year else 1970)
    zone = fields.get("zone")
    if not time_ns or zone in (None, "Z"):
        return time_ns, zone is not None
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return time_ns - (seconds if zone[0] == "+" else -seconds) * 10**9, True


def in_year(time_ns: int, year: int) -> int:
    """A time within 1970, as a stamp without a year tells it, moved to a year."""
    return time_ns + _year_ns(year) if 0 < time_ns < _YEAR_NS else time_ns


_YEAR_NS = 366 * 86_400 * 10**9
_RECENT_S = datetime(2000, 1, 1, tzinfo=timezone.utc).timestamp()


@lru_cache(maxsize=64)
def _year_ns(year: int) -> int:
    return calendar.timegm((year, 1, 1, 0, 0, 0)) * 10**9


def _since_1970(match: re.Match[str]) -> int:
    seconds = int(match["seconds"])
    if seconds < _RECENT_S:
        return 0
    return seconds * 10**9 + int(match["fraction"].ljust(9, "0"))


def _clock(match: re.Match[str], year: int) -> int:
    fields = match.groupdict()
    name = fields.get("name")
    month = _MONTHS.index(name) + 1 if name else int(fields["month"])
    day, clock = int(fields["day"]), (fields["hour"], fields["minute"], fields["second"])
    fraction = (fields["fraction"] or "0").ljust(9, "0")
    seconds = _seconds(year, month, day, *clock)
    return seconds * 10**9 + int(fraction) if seconds else 0


@lru_cache(maxsize=1_024)
def _seconds(year: int, month: int, day: int, hour: str, minute: str, second: str) -> int:
    """Seconds since 1970, which lines share that follow one another; 0 for no date."""
    try:
        return calendar.timegm((year, month, day, int(hour), int(minute), int(second), 0, 0, 0))
    except ValueError:
        return 0
