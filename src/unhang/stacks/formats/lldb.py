"""What lldb writes for `bt` and `bt all`: native frames behind their library and a back tick."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack

TOOL = "lldb"

_THREAD = re.compile(r"^[\s*]*thread #(\d+)(?:, tid = (\d+))?(?:, name = '([^']*)')?", re.MULTILINE)
_FRAME = re.compile(
    r"^[\s*]*frame #\d+: 0x[0-9a-f]+ (?P<library>[^`\s]+)`(?P<call>.{1,2000}?)(?: \+ \d+)?"
    r"(?: at (?P<file>\S+?):(?P<line>\d+)(?::\d+)?)?(?: \[opt\])?\s*$",
    re.MULTILINE,
)


def matches(text: str) -> bool:
    """Whether lldb wrote this."""
    return _FRAME.search(text) is not None


def parse(text: str) -> list[ProcessSample]:
    """The one sample of a report; thread 1 is the main thread."""
    threads = sorted(_threads(text), key=lambda thread: not thread.is_main)
    return [ProcessSample(UNKNOWN_RANK, "", -1, tuple(threads), tool=TOOL)]


def _threads(text: str) -> Iterator[ThreadStack]:
    heads = list(_THREAD.finditer(text))
    starts = [head.start() for head in heads] or [0]
    for place, start in enumerate(starts):
        end = starts[place + 1] if place + 1 < len(starts) else len(text)
        frames = tuple(_frame(found) for found in _FRAME.finditer(text, start, end))
        number, tid, name = heads[place].groups() if heads else ("", "", "")
        if frames:
            named = "MainThread" if number == "1" else name or ""
            yield ThreadStack(named, int(tid or -1), frames, is_main=number == "1", native=True)


def _frame(found: re.Match[str]) -> Frame:
    function = found["call"].split("(", 1)[0].strip() or found["call"]
    return Frame(function, found["file"] or found["library"], int(found["line"] or 0))
