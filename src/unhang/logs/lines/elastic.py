"""What torchelastic leaves behind: error files of ranks, and the summary that its launcher prints.

An error file (`error.json`, or where TORCHELASTIC_ERROR_FILE says) holds one rank's exception; here
it becomes the text that the rank would have printed, so that the rules read it like any log. In the
summary a rank's number stands some lines above what happened to it; `SummaryEntry` carries it down.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from msgspec.structs import replace as changed

from unhang.errors import InputError
from unhang.logs.lines.prefixes import Line

ENTRY_ANCHOR = "  exitcode  : "
"""Stands in every entry of the summary, below its time, host and rank."""

MAX_ERROR_FILE = 16 << 20
_ENTRY_LINES = 4
_REACH = 3
"""Lines from the exit code down to the traceback; twice as many where each is followed by none."""

_FIELD = re.compile(r"^  (?P<key>time|host|rank|exitcode) +: (?P<value>.*)$")
_RANK = re.compile(r"(?P<rank>\d{1,6}) \(local_rank: \d{1,6}\)")
_EXIT = re.compile(r"(?P<code>-?\d{1,4}) +\(pid: (?P<pid>\d{1,9})\)")
_TIME = "%Y-%m-%d_%H:%M:%S"


def error_text(data: bytes) -> bytes:
    """The text of an error file as a rank would have printed it, with its time.

    Raises:
        InputError: If it is not an error file of torchelastic.
    """
    try:
        told = json.loads(data[:MAX_ERROR_FILE])
    except (ValueError, RecursionError) as error:
        raise InputError("it is not JSON") from error
    message = told.get("message") if isinstance(told, dict) else None
    if isinstance(message, str):
        return message.encode("utf-8", "replace") + b"\n"
    if not isinstance(message, dict):
        raise InputError("it is not an error file of torchelastic")
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    text = extra.get("py_callstack") or message.get("message") or ""
    stamp = _stamp(extra.get("timestamp"))
    return f"{stamp}torchelastic error file\n{text}\n".encode("utf-8", "replace")


def _stamp(seconds: Any) -> str:  # noqa: ANN401 - what JSON held
    """Seconds since 1970, as torchelastic writes them, as the stamp of a line."""
    try:
        moment = datetime.fromtimestamp(int(seconds), tz=timezone.utc)
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
    return f"[{moment:%Y-%m-%dT%H:%M:%SZ}] "


@dataclass(frozen=True, slots=True)
class SummaryEntry:
    """One rank in the launcher's summary.

    Attributes:
        line: Number of the line with its exit code.
        stream: Rank and rank on its node by the prefixes of that line: the launcher's, if any.
        host, time_ns: As the launcher says; the time is that of its own zone, like other stamps.
    """

    line: int
    stream: tuple[int, int]
    rank: int
    host: str = ""
    time_ns: int = 0
    exit_code: str = ""
    pid: int = -1
    reach: int = _REACH

    def owns(self, line: Line, number: int) -> bool:
        """Whether a line belongs to this entry: it follows closely, in the same stream."""
        return self.shares(line) and 0 <= number - self.line <= self.reach

    def shares(self, line: Line) -> bool:
        """Whether a line has the prefixes of this entry's lines."""
        return (line.rank, line.local_rank) == self.stream

    def claim(self, line: Line) -> Line:
        """The line as one of this rank, without the indentation of the summary."""
        return changed(
            line,
            rank=self.rank,
            host=self.host or line.host,
            time_ns=line.time_ns or self.time_ns,
            text=line.text.removeprefix("  "),
        )


def entry_of(above: Sequence[str], exited: Line, number: int) -> SummaryEntry | None:
    """Read one entry of the summary.

    Args:
        above: The lines above its exit code, nearest first, without their prefixes; a web page may
            have put an empty one between any two.
        exited: The line with the exit code.
        number: Number of that line.

    Returns:
        The entry; None where the lines above do not name its rank.
    """
    fields: dict[str, str] = {}
    spaced = above[:1] == [""]
    told = [text for text in above if text] if spaced else above
    for text in (exited.text, *told[:_ENTRY_LINES]):
        found = _FIELD.match(text)
        if found:
            fields.setdefault(found["key"], found["value"].strip())
    rank, code = _RANK.match(fields.get("rank", "")), _EXIT.match(fields.get("exitcode", ""))
    if rank is None:
        return None
    return SummaryEntry(
        line=number,
        stream=(exited.rank, exited.local_rank),
        rank=int(rank["rank"]),
        host=fields.get("host", ""),
        time_ns=_time_ns(fields.get("time", "")),
        exit_code=code["code"] if code else "",
        pid=int(code["pid"]) if code else -1,
        reach=_REACH * 2 if spaced else _REACH,
    )


def _time_ns(text: str) -> int:
    try:
        moment = datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc)
    except ValueError:
        return 0
    return int(moment.timestamp()) * 10**9
