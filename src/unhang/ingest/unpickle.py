"""Turn the bytes of a pickle into plain values without trusting one of them.

A pickle is a program. torch's recorder uses only its data instructions, so every other opcode is
refused before anything runs: no globals, no calls, no objects, no persistent ids. The whole file is
checked token by token, and only then handed to the interpreter's own unpickler, which is fast but
sets memory aside for whatever memo index a file names and overruns its stack on nested tuples.
A file that ends too early is closed after its last whole entry and read up to there.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import NamedTuple, NoReturn

from unhang.ingest.opcodes import (
    FIXED_WIDTH,
    FRAME,
    LONG1,
    STOP,
    STRING_WIDTH,
    TUPLES,
    name_of,
)
from unhang.ingest.salvage import close_after_last_entry

__all__ = ["BadPickle", "Unpickled", "is_whole", "readable", "unpickle"]

MAX_TUPLES = 50_000
"""Nested tuples are hashed recursively, without a check, when one is the key of a dict: a million
of them end the process. Pairs of strings as torch writes them are not counted."""

_RUN = re.compile(
    rb"(?:h.h.\x86(?![qr\x94])|h.|K.|[\]}]\(|[eu]|[N\x88\x89]|M..|J....|\x8a\x08.{8}"
    rb"|j..[\x00-\x0f]\x00|q.|r..[\x00-\x0f]\x00|G.{8}|[(\]}as\x94]){1,4096}",
    re.DOTALL,
)
"""A run of harmless tokens of fixed length. Memo indices stay below a million. Bounded, because the
matcher remembers every repetition."""

_TUPLE_CODES = frozenset((*TUPLES, pickle.TUPLE[0]))
_ASCII = bytes(range(128)) + b"?" * 128
_REFUSED = (
    pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, LookupError, MemoryError,
    RecursionError, TypeError, ValueError,
)  # fmt: skip
"""What the unpickler raises on malformed data."""


class BadPickle(Exception):  # noqa: N818 - it is the file that is bad
    """The file is not a dump's pickle; the message says why, for a note."""


class Unpickled(NamedTuple):
    """A value, and whether the file was cut short before it ended."""

    value: object
    truncated: bool


class _Plain(pickle.Unpickler):
    """The second lock: a token that slipped through `is_whole` would find nothing to call."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise BadPickle(f"it asks for {module}.{name}")


def unpickle(data: bytes) -> Unpickled:
    """Decode a pickle of plain values.

    Args:
        data: The whole file; bounded by the caller.

    Raises:
        BadPickle: It is malformed, holds anything but data, or nothing of it can be kept.
    """
    whole = is_whole(data)
    if not whole:
        data = close_after_last_entry(data)
        if not data:
            raise BadPickle("it was cut short before anything was complete")
    try:
        try:
            return Unpickled(_Plain(io.BytesIO(data)).load(), not whole)
        except UnicodeDecodeError:
            return Unpickled(_Plain(io.BytesIO(_in_ascii(data))).load(), not whole)
    except _REFUSED as error:
        raise BadPickle(f"it is malformed ({type(error).__name__})") from error


def _in_ascii(data: bytes) -> bytes:
    """The same pickle with "?" for what is not ASCII in strings that are not UTF-8."""
    repaired, position = bytearray(data), 0
    while position < len(data):
        code, start = data[position], position + 1
        position = _after(data, position) if code != STOP else len(data)
        if code in STRING_WIDTH and code != LONG1:
            start += STRING_WIDTH[code]
            repaired[start:position] = readable(data[start:position]).encode(
                "utf-8", "surrogatepass"
            )
    return bytes(repaired)


def readable(text: bytes) -> str:
    """A string of a pickle, as long in bytes as it was; C++ writes whatever a path consists of."""
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return text.translate(_ASCII).decode("ascii")


def is_whole(data: bytes) -> bool:
    """Check every token; returns False where the file ends before its STOP.

    Raises:
        BadPickle: A token is none of a dump's.
    """
    position, size, tuples = 0, len(data), 0
    while True:
        if run := _RUN.match(data, position):
            position = run.end()
        if position >= size:
            return False
        code = data[position]
        if code == STOP:
            return True
        tuples += code in _TUPLE_CODES
        if tuples > MAX_TUPLES:
            raise BadPickle("it holds more tuples than any dump")
        if run is None or code in STRING_WIDTH or code in _TUPLE_CODES or code == FRAME:
            position = min(_after(data, position), size)


def _after(data: bytes, position: int) -> int:
    """Where the next token begins; beyond the end where this one is cut."""
    code = data[position]
    if (width := STRING_WIDTH.get(code)) is not None:
        length = int.from_bytes(data[position + 1 : position + 1 + width], "little")
        return position + 1 + width + length
    if (width := FIXED_WIDTH.get(code)) is not None:
        end = position + 1 + width
        if end <= len(data) and code in (pickle.LONG_BINPUT[0], pickle.LONG_BINGET[0]):
            raise BadPickle("it names a memo index that no dump reaches")
        return end
    raise BadPickle(f"it holds the instruction {name_of(code)}, which no dump needs")
