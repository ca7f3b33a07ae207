"""Where a script reads what is not real: values that no call carried, and what a GPU would say.

What it decides by them may differ in the job, so each such line is reported once. It refuses to
follow values: after the first that was not carried, every value that is read may come of it.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Final

from unhang.rehearse.matching.talking import RankLine

READS: Final = frozenset(
    {"item", "tolist", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__"}
    | {"is_nonzero", "equal", "allclose"}
)
"""Functions of torch whose answer a script can decide by."""

SHOWS: Final = frozenset({"__format__", "__array__"})
"""Functions that take values out of torch to be printed or kept."""


class Readings:
    """The lines of one rank that read what is not real."""

    def __init__(self, client: RankLine) -> None:
        self.client = client
        self.is_unreal = False
        self._told: set[tuple[str, int]] = set()

    def value(self, name: str) -> None:
        """A value is read: told if one was not carried before."""
        if self.is_unreal:
            self.note(name)

    def note(self, name: str) -> None:
        """Tell the referee of the script's line, the first time."""
        place = _callers_line()
        if place is not None and place not in self._told:
            self._told.add(place)
            self.client.tell("read", what=name.strip("_"), file=place[0], line=place[1])


def _callers_line() -> tuple[str, int] | None:
    """The line that asks; None where it is torch's own."""
    frame = sys._getframe(1)
    while _package(frame) == "unhang" and frame.f_back:
        frame = frame.f_back
    return None if _package(frame) == "torch" else (frame.f_code.co_filename, frame.f_lineno)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]
