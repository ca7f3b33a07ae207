"""Puts lines together that a terminal has wrapped: what was copied from its screen.

A wrapped line fills the width and goes on in the next. Only lines of a log are put together, as
only they are long; the lines that were taken up stay as empty ones, so that numbers stay true.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

_NARROWEST = 60
"""Columns: hardly a terminal is narrower, and short lines are often equally long."""
_FULL = 3
"""Lines that fill the width, and none longer, before it is taken for a terminal's."""

_RECORD = re.compile(
    r"^\S{0,60}\[(?:rank\d|[EWIF] |[EWIF]\d{3,4} )|\bNCCL (?:WARN|INFO)\b|^\s*what\(\):"
    r"|^\[?\d{4}-\d\d-\d\d|^(?:\w+\.)*\w+(?:Error|Exception): "
)
_BEGINS = re.compile(
    r"^(?:\[[\w(]|\(|\d{4}[-/]|\d\d:\d\d|[IWEF]\d{4} |(?:INFO|WARN|ERROR|DEBUG|Traceback|terminate)"
    r"|(?:frame )?#\d| {2,}\S|\d+ +\S+ +\d|\S+:\d+:\d+ \[|(?:\w+\.)*\w+(?:Error|Exception): "
    r"|Exception raised)"
)
"""A line that goes on nothing."""
_GOES_ON = re.compile(r"^\s*(?:WorkNCCL\(|ran for \d+ milliseconds|by watchdog at work:)")
"""What torch never begins a line with: a person or a page broke it between two words."""


def unwrapped(lines: Sequence[str]) -> list[str]:
    """The lines of a text, as many as before.

    Args:
        lines: With the blanks at their ends: a terminal's are padded to its width.
    """
    made: list[str] = []
    for filled, run in groupby(lines, key=lambda line: bool(line.strip())):
        block = list(run)
        made += _block(block) if filled else block
    return made


def _block(lines: list[str]) -> list[str]:
    lines = _together(lines)
    width = max(map(len, lines))
    if width < _NARROWEST or sum(len(line) == width for line in lines) < _FULL:
        return lines
    made, head = list(lines), -1
    for place, line in enumerate(lines):
        if head >= 0 and not _BEGINS.match(line):
            made[head] += line.rstrip() if _is_padded(line) else line
            made[place] = ""
        else:
            head = place if _RECORD.search(line) else -1
        if len(line) != width or _is_padded(line):
            head = -1
    return made


def _together(lines: list[str]) -> list[str]:
    """The lines with those that `_GOES_ON` tells taken up by the record above."""
    made, head = list(lines), 0
    for place, line in enumerate(lines):
        if place and _GOES_ON.match(line):
            made[head] = f"{made[head].rstrip()} {line.strip()}"
            made[place] = ""
        else:
            head = place
    return made


def _is_padded(line: str) -> bool:
    """Whether a line ended before the width did: one blank may be a word's end."""
    return line.endswith("  ")
