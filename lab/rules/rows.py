"""Make rows.json of the TOML files of log rules.

A file has a `[[rule]]` a row, with the fields of `LogRule`, and `[parts]`: pieces of text that its
rows name as {piece}. The lines of a pattern are joined without their indentation, so that each
alternative has a line of its own; a blank at the end of a line is written [ ]. `[[rule.waiter]]`
is one library's words for a rule that is made of several.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLACE: Final = Path(__file__).parents[2] / "src" / "unhang" / "logs" / "rules"
ROWS: Final = PLACE / "rows.json"

FILES: Final = (
    *("watchdog", "stores", "interfaces", "endings", "bootstrap", "waiters", "memory", "fabric"),
    *("nccl", "sxids", "devices", "cluster", "program", "nccl_parts", "unexplained"),
)
"""In the order in which rules are tried: the first that matches a line has it."""

Row = dict[str, Any]

_WRITTEN: Final = ("pattern", "meaning", "action")
"""Fields that may name parts."""
_PART: Final = re.compile(r"\{([a-z_]+)\}")


def as_json() -> str:
    """The content of rows.json: one rule a line, so that a change of one is a line."""
    lines = (json.dumps(row, ensure_ascii=False) for row in rows())
    return "[\n" + ",\n".join(lines) + "\n]\n"


def rows() -> Iterator[Row]:
    """Every rule of every file, in the order in which they are tried."""
    for name in FILES:
        yield from rows_of((PLACE / f"{name}.toml").read_text(encoding="utf-8"))


def rows_of(text: str) -> Iterator[Row]:
    """The rules of one file, as rows.json has them."""
    table = tomllib.loads(text)
    parts = {name: _joined(part) for name, part in table.get("parts", {}).items()}
    for written in table["rule"]:
        row = _whole(written)
        row |= {key: _filled(row[key], parts) for key in _WRITTEN}
        if isinstance(waits := row.get("waits"), str):
            row["waits"] = {"": waits}
        yield row


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """A text with the parts that it names."""
    return _PART.sub(lambda found: parts[found[1]], _joined(text))


def _joined(text: str) -> str:
    """The lines of a text, without what they are indented by."""
    return "".join(line.lstrip(" ") for line in text.split("\n"))


def _whole(written: Row) -> Row:
    """A row with all that its waiters add: the group of each is named by its place."""
    row = {key: value for key, value in written.items() if key != "waiter"}
    waiters = written.get("waiter", ())
    if not waiters:
        return row
    tried = [(f"wait{place}", waiter) for place, waiter in enumerate(waiters)]
    return row | {
        "anchors": list(dict.fromkeys(each for waiter in waiters for each in waiter["anchors"])),
        "pattern": "|".join(f"(?P<{group}>{_joined(w['pattern'])})" for group, w in tried),
        "fires": waiters[0]["fires"],
        "spares": waiters[0]["spares"],
        "waits": {group: waiter["waited_for"] for group, waiter in tried},
    }
