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
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import msgspec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["fit", "fitting", "overlaid", "value_of"]

T = TypeVar("T")
_LONG, _LONG_BYTES = re.compile(r"\d{19}"), re.compile(rb"\d{19}")
"""Only where there is one of these does each integer cost a call of ours."""
_MOST_DIGITS = 20
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
    try:
        return json.loads(data, parse_int=_bounded if digits.search(data) else None)  # type: ignore[arg-type]  # by its type
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


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

    Whoever asks compares the numbers, and tells.
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
    taken: dict[str, Any] = {}
    misfits = []
    for name, told in value.items():
        if name in shapes:
            try:
                taken[name] = msgspec.convert(told, shapes[name])
            except _MISFITS:
                misfits.append(name)
    return replace(default, **taken), sorted(misfits)


@lru_cache(maxsize=32)
def _shapes(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
