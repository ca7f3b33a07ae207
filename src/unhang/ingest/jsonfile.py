"""Read a JSON dump, and from one that was cut short what is whole.

torch writes keys in alphabetical order, so `entries` comes before `pg_config` and `version`: a cut
file usually keeps its first entries and loses everything else.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from unhang.incoming import first_pairs, whole_items

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
        value: object = whole_items(text, 1) if text.startswith("[") else first_pairs(text)
    except RecursionError as error:
        raise BadJson("it is nested too deeply") from error
    if not value:
        raise BadJson("it is malformed or was cut short before anything was complete")
    return Parsed(value, truncated=True)
