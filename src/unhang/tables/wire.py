"""Rows on their way from the process that asks an engine to the one that shows them.

Each message is its length and msgpack, which has no code in it. What msgpack has no word for goes
as text, as all that show rows would write it.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

HEAD: Final = struct.Struct("<I")
MOST_BYTES: Final = 256 << 20
"""Of a message, which is one row."""

OPENED: Final = "opened"
"""The message after which the clock of the query runs."""

_TEXT, _WHOLE, _TUPLE = 1, 2, 3
_MOST_DIGITS = 4_000
_ENCODER = msgspec.msgpack.Encoder()


def framed(message: object) -> bytes:
    """A message with its length before it.

    Raises:
        ValueError: It is larger than any row may be.
    """
    data = _ENCODER.encode(_sayable(message))
    if len(data) > MOST_BYTES:
        raise ValueError(f"a row is larger than {MOST_BYTES >> 20} MiB")
    return HEAD.pack(len(data)) + data


def decoded(data: bytes) -> Any:  # noqa: ANN401 - rows of a database
    """A message again.

    Raises:
        ValueError: It is none.
    """
    return msgspec.msgpack.decode(data, ext_hook=_from_ext)


def _sayable(value: Any) -> Any:  # noqa: ANN401 - any value of a database
    if value is None or type(value) in (bool, float, str, bytes):
        return value
    if type(value) is int:
        small = -(1 << 63) <= value < (1 << 63)
        return value if small else msgspec.msgpack.Ext(_WHOLE, b"%x" % value)
    if isinstance(value, list):
        return [_sayable(each) for each in value]
    if isinstance(value, dict):
        return {_sayable(key): _sayable(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return msgspec.msgpack.Ext(_TUPLE, _ENCODER.encode([_sayable(each) for each in value]))
    return msgspec.msgpack.Ext(_TEXT, str(value).encode("utf-8", "replace"))


def _from_ext(code: int, data: memoryview) -> object:
    if code == _TUPLE:
        return tuple(decoded(bytes(data)))
    text = bytes(data[:MOST_BYTES]).decode("utf-8", "replace")
    if code == _WHOLE and len(text) <= _MOST_DIGITS:
        return int(text, 16)
    return text
