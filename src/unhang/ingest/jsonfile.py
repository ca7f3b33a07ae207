"""Read a JSON dump, and from one that was cut short what is whole.

torch writes keys in alphabetical order, so `entries` comes before `pg_config` and `version`: a cut
file usually keeps its first entries and loses everything else.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = ["BadJson", "Parsed", "first_pairs", "parse"]

_SPACE = re.compile(r"\s*")
_decode = json.JSONDecoder().raw_decode


class BadJson(Exception):  # noqa: N818 - it is the file that is bad
    """The file is not a dump's JSON; the message says why, for a note."""


class Parsed(NamedTuple):
    """A value, and whether the file was cut short before it ended."""

    value: object
    truncated: bool


def parse(data: bytes) -> Parsed:
    """Decode JSON; text that is not UTF-8 is replaced, what follows the value is ignored.

    Raises:
        BadJson: It is no JSON, or nothing of it can be kept.
    """
    text = data.decode("utf-8-sig", "replace").lstrip()
    try:
        return Parsed(_decode(text)[0], truncated=False)
    except RecursionError as error:
        raise BadJson("it is nested too deeply") from error
    except ValueError:
        return _salvage(text)


def _salvage(text: str) -> Parsed:
    try:
        value: object = _entries(text, 1) if text.startswith("[") else first_pairs(text)
    except RecursionError as error:
        raise BadJson("it is nested too deeply") from error
    if not value:
        raise BadJson("it is malformed or was cut short before anything was complete")
    return Parsed(value, truncated=True)


def first_pairs(text: str) -> dict[str, Any]:
    """Whole pairs of the outermost object, and the whole items of an unfinished `entries`."""
    found: dict[str, Any] = {}
    position = 1
    try:
        while True:
            key, position = _decode(text, _skip(text, position, ","))
            start = _skip(text, position, ":")
            if key == "entries" and text[start : start + 1] == "[":
                found[key] = _entries(text, start + 1)
            found[str(key)], position = _decode(text, start)
    except ValueError:
        return found


def _entries(text: str, position: int) -> list[Any]:
    """Whole items of a list that begins just before `position`."""
    found = []
    try:
        while True:
            item, position = _decode(text, _skip(text, position, ","))
            found.append(item)
    except ValueError:
        return found


def _skip(text: str, position: int, mark: str) -> int:
    """Position after white space and one optional mark; `_decode` itself takes neither."""
    match = _SPACE.match(text, position)
    position = match.end() if match else position
    if text.startswith(mark, position):
        match = _SPACE.match(text, position + 1)
        position = match.end() if match else position
    return position
