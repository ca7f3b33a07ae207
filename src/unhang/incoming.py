"""JSON that comes in: what has the shape that is expected of it, and nothing else.

A shape is a type: a dataclass, a TypedDict, a list of them, `Annotated` with bounds. msgspec
compares, nothing is coerced, and keys that a shape does not have are ignored. The text itself is
parsed by the standard library: Python's writers put NaN and lone surrogates (paths that are no
UTF-8) into JSON, and for one of those msgspec's own parser refuses a whole file.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, get_type_hints

import msgspec

from unhang.regular import open_regular

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
_LONG, _LONG_BYTES = re.compile(r"\d{19,}"), re.compile(rb"\d{19,}")
"""Only where one of these is too large does each integer cost a call of ours: moments in
nanoseconds have 19 digits, too."""
_MOST_DIGITS = 20
_SPACE = re.compile(r"\s*")
_decode = json.JSONDecoder().raw_decode
_MOST = 1 << 63
_MISFITS = (msgspec.ValidationError, UnicodeEncodeError)
"""The latter of a key that is no text; another ValueError would be of a shape that is wrong."""
Known = TypeVar("Known", bound="DataclassInstance")


def value_of(data: bytes | str) -> Any:  # noqa: ANN401 - whatever is in it
    """Parse JSON; an integer of more than 64 bits, which is none of ours, is read as infinite.

    So it fits no field that takes an integer, and costs that field or what needs it, as told by
    those who compare. Nothing of ours reckons with it: it is no time, no rank and no count.

    Raises:
        ValueError: It is none, or is nested too deeply.
    """
    digits = _LONG if isinstance(data, str) else _LONG_BYTES
    large = any(len(each) >= _MOST_DIGITS or int(each) >= _MOST for each in digits.findall(data))  # type: ignore[arg-type]  # by its type
    try:
        return json.loads(data, parse_int=_bounded if large else None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def value_in(path: Path, most: int) -> Any:  # noqa: ANN401 - whatever is in it
    """The JSON in a regular file of at most so many bytes; None where there is none to read."""
    try:
        with open_regular(path) as file:
            data = file.read(most + 1)
        return value_of(data) if len(data) <= most else None
    except (OSError, ValueError):
        return None


def _bounded(text: str) -> int | float:
    if len(text) <= _MOST_DIGITS and -_MOST <= (number := int(text)) < _MOST:
        return number
    return -math.inf if text.startswith("-") else math.inf


def fit(value: object, shape: type[T]) -> T:
    """A value as the type that it has the shape of.

    Raises:
        ValueError: It has not that shape; says where.
    """
    return msgspec.convert(value, shape)


def fitting(values: object, shape: type[T]) -> list[T]:
    """Those items of a list that have a shape; none of what is no list.

    The caller compares the numbers, and reports.
    """
    found = (_fit_or_none(value, shape) for value in (values if isinstance(values, list) else ()))
    return [value for value in found if value is not None]


def _fit_or_none(value: object, shape: type[T]) -> T | None:
    try:
        return fit(value, shape)
    except _MISFITS:
        return None


def overlaid(default: Known, value: object) -> tuple[Known, list[str]]:
    """A dataclass with the fields of it that a value has, and the names of those that do not fit.

    Of a value that is no object nothing fits.
    """
    shapes = _shapes(type(default))
    if not isinstance(value, dict):
        return default, list(shapes)
    told = {name: each for name, each in value.items() if name in shapes}
    with suppress(*_MISFITS):  # all at once, as nearly always all fit
        return replace(default, **msgspec.convert(told, _partial(type(default)))), []
    misfits = [name for name, each in told.items() if not _fits(each, shapes[name])]
    taken = {name: each for name, each in told.items() if name not in misfits}
    return replace(default, **msgspec.convert(taken, _partial(type(default)))), sorted(misfits)


def _fits(value: object, shape: Any) -> bool:  # noqa: ANN401 - a type
    try:
        msgspec.convert(value, shape)
    except _MISFITS:
        return False
    return True


@lru_cache(maxsize=32)
def _partial(kind: type) -> Any:  # noqa: ANN401 - a type that is made here
    """The shape of an object with any of a dataclass's fields."""
    return TypedDict("Partial", _shapes(kind), total=False)  # type: ignore[operator]


@lru_cache(maxsize=32)
def _shapes(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


# ------------------------------------------------------------------ what was cut short


def first_pairs(text: str) -> dict[str, Any]:
    """Whole pairs of the outermost object, and the whole items of an unfinished `entries`."""
    found: dict[str, Any] = {}
    position = 1
    try:
        while True:
            key, position = _decode(text, _skip(text, position, ","))
            start = _skip(text, position, ":")
            if key == "entries" and text[start : start + 1] == "[":
                found[key] = whole_items(text, start + 1)
            found[str(key)], position = _decode(text, start)
    except ValueError:
        return found


def whole_items(text: str, position: int) -> list[Any]:
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
