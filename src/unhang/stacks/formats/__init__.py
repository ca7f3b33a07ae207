"""The formats in which people save stacks: one module each, and the table that lists them.

A format says whether a text is its own and turns it into samples. To add one, write a module with
`matches` and `parse` and add a line to `FORMATS`; the first that matches is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from unhang.model import ProcessSample
from unhang.stacks.formats import (
    faulthandlers,
    gdb,
    listed,
    lldb,
    printed,
    pyspy,
    pystacks,
    refusals,
    saved,
)

__all__ = ["FORMATS", "OURS", "Format", "format_of"]

OURS = "unhang"


class Format(NamedTuple):
    """How one tool writes stacks.

    Attributes:
        name: The tool, as people know it.
        matches: Whether a text is of this format.
        parse: The samples in a text, without rank or host where it names none. ValueError where it
            is broken beyond use.
    """

    name: str
    matches: Callable[[str], bool]
    parse: Callable[[str], list[ProcessSample]]


FORMATS: tuple[Format, ...] = (
    Format(OURS, saved.matches, saved.parse),
    Format("py-spy (JSON)", pyspy.matches_json, pyspy.parse_json),
    Format("py-spy", pyspy.matches_text, pyspy.parse_text),
    Format("pystack", pystacks.matches, pystacks.parse),
    Format("faulthandler", faulthandlers.matches, faulthandlers.parse),
    Format("traceback", printed.matches, printed.parse),
    Format("gdb", gdb.matches, gdb.parse),
    Format("lldb", lldb.matches, lldb.parse),
    Format("a list by hand", listed.matches, listed.parse),
    Format("frames by hand", listed.matches_frames, listed.parse_frames),
    Format("a sampler's error", refusals.matches, refusals.parse),
)


def format_of(text: str) -> Format | None:
    """The format of a text, or None."""
    return next((known for known in FORMATS if known.matches(text)), None)
