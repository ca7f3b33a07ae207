"""Turning what rich lays out into text: the one place that knows terminals' abilities.

No markup is read, no colour comes unasked, and lines carry no trailing blanks.
"""

from __future__ import annotations

import io
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from rich.console import Console, RenderableType

from unhang.reports.look import Look

T = TypeVar("T")

_PLAIN = str.maketrans({"…": "...", "│": "|"})


def paint(page: RenderableType, look: Look) -> str:
    """Lay a page out; every line of the result ends with a line end."""
    console = Console(
        file=io.StringIO(),
        width=look.width,
        force_terminal=look.color,
        color_system="standard" if look.color else None,
        no_color=not look.color,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(page, crop=False)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def to_ascii(value: T) -> T:
    """Put a string, or all strings of tuples and dataclasses, into ASCII before it is laid out."""
    if isinstance(value, str):
        plain = value.translate(_PLAIN).encode("ascii", "backslashreplace").decode("ascii")
        return cast("T", plain)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: to_ascii(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, tuple):
        items = [to_ascii(item) for item in value]
        return cast("T", type(value)(*items) if hasattr(value, "_fields") else tuple(items))
    return value
