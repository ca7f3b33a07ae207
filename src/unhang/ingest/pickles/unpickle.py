"""Turn the bytes of a pickle into plain values without trusting one of them.

A pickle is a program, and the interpreter's own unpickler, which is fast, runs whatever it is
given: it calls, sets memory aside for any memo index, overruns its stack on nested tuples, and
takes a frame's word for where a token ends. So it is never given a file. Every token is checked by
the grammar in `unhang.ingest.pickles.opcodes`, and a pickle of our own is written from them: one
frame, no other, and a call to our own hook wherever a dict or a tuple is made. The rules that the
hooks and the walk keep, to which every faster decoder is held:

1. Tokens are those of the grammar, up to the first STOP; what follows it is not looked at.
2. Keys of dicts are strings: nothing else is hashed here. A number that is a key, as torch 2.3
   wrote ids of groups, is read as its digits.
3. Tuples hold no tuples: hashing one later does not recurse.
4. Memo indices are below `MAX_MEMO`; containers are no more than `too_many_containers` allows.
5. A file that ends before its STOP was cut: `unhang.ingest.pickles.salvage` says what is kept.
6. A string that is not UTF-8 has "?" for each byte that is not ASCII.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, NamedTuple, NoReturn

from unhang.ingest.pickles.opcodes import (
    FIXED_WIDTH,
    IGNORED,
    LONG1,
    MAX_MEMO,
    STOP,
    STRING_WIDTH,
    TUPLE_CODES,
    name_of,
    too_many_containers,
)
from unhang.ingest.pickles.salvage import close_after_last_entry
from unhang.wording import readable

_RUN = re.compile(
    rb"(?:h.|K.|\]\(|[eu]|[N\x88\x89]|M..|J....|\x8a\x08.{8}"
    rb"|j..[\x00-\x0f]\x00|q.|r..[\x00-\x0f]\x00|G.{8}|[(\]as\x94]){1,4096}",
    re.DOTALL,
)
"""A run of tokens that are taken over as they are. Memo indices stay below `MAX_MEMO`. Bounded,
because the matcher remembers every repetition."""

_EMPTY_DICT = pickle.EMPTY_DICT[0]
_HEAD = pickle.PROTO + b"\x04" + pickle.FRAME
_MAKE_DICT = pickle.NONE + pickle.BINPERSID
_CHECK_TUPLE = pickle.BINPERSID
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


_MOST_IDS = 1 << 31


class _Dict(dict[str, Any]):
    """A dict of a dump."""

    __slots__ = ()

    def __setitem__(self, key: str | int, value: object) -> None:
        if type(key) is not str:
            if type(key) is not int or not 0 <= key < _MOST_IDS:
                raise BadPickle("it holds a key that is no string")
            key = str(key)
        _set(self, key, value)


_set = dict.__setitem__


class _Plain(pickle.Unpickler):
    """Runs what `_rewritten` wrote; a token that slipped through would find nothing to call."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Second lock: nothing is looked up."""
        raise BadPickle(f"it asks for {module}.{name}")

    def persistent_load(self, value: Any) -> Any:  # noqa: ANN401 - pickle's protocol
        """Our hook: makes a dict, or checks a tuple."""
        if value is None:
            return _Dict()
        if tuple in map(type, value):
            raise BadPickle("it holds a tuple of tuples")
        return value


def unpickle(data: bytes) -> Unpickled:
    """Decode a pickle of plain values.

    Args:
        data: The whole file; bounded by the caller.

    Raises:
        BadPickle: It is malformed, holds anything but data, or nothing of it can be kept.
    """
    if too_many_containers(data):
        raise BadPickle("it holds more containers than any dump")
    body, whole = _rewritten(data)
    if not whole:
        data = close_after_last_entry(data)
        if not data:
            raise BadPickle("it was cut short before anything was complete")
        body, _ = _rewritten(data)
    try:
        try:
            return Unpickled(_run(body), not whole)
        except UnicodeDecodeError:
            return Unpickled(_run(_rewritten(_in_ascii(data))[0]), not whole)
    except _REFUSED as error:
        raise BadPickle(f"it is malformed ({type(error).__name__})") from error


def _run(body: bytes) -> object:
    """Run tokens of our own writing, in one frame that holds them all."""
    size = len(body).to_bytes(FIXED_WIDTH[pickle.FRAME[0]], "little")
    return _Plain(io.BytesIO(b"".join((_HEAD, size, body)))).load()


def _in_ascii(data: bytes) -> bytes:
    """The same pickle with "?" for what is not ASCII in strings that are not UTF-8."""
    repaired, position = bytearray(data), 0
    while (code := data[position]) != STOP:
        start = position + 1
        position = _after(data, position)
        if code in STRING_WIDTH and code != LONG1:
            start += STRING_WIDTH[code]
            repaired[start:position] = readable(data[start:position]).encode(
                "utf-8", "surrogatepass"
            )
    return bytes(repaired)


def _rewritten(data: bytes) -> tuple[bytes, bool]:
    """Check every token and write what the unpickler is given.

    Returns:
        The tokens up to the STOP, and whether there was one.

    Raises:
        BadPickle: A token is none of a dump's.
    """
    pieces: list[bytes] = []
    taken, position, size = 0, 0, len(data)
    while True:
        if run := _RUN.match(data, position):
            position = run.end()
        if position >= size:
            return b"".join((*pieces, data[taken:])), False
        code, end = data[position], _after(data, position)
        if end > size:
            return b"".join((*pieces, data[taken:])), False
        if code == STOP:
            return b"".join((*pieces, data[taken:end])), True
        if code in TUPLE_CODES:
            pieces += data[taken:end], _CHECK_TUPLE
            taken = end
        elif code == _EMPTY_DICT or code in IGNORED:
            pieces += data[taken:position], _MAKE_DICT if code == _EMPTY_DICT else b""
            taken = end
        position = end


def _after(data: bytes, position: int) -> int:
    """Where the next token begins; beyond the end where this one is cut."""
    code = data[position]
    if (width := STRING_WIDTH.get(code)) is not None:
        length = int.from_bytes(data[position + 1 : position + 1 + width], "little")
        return position + 1 + width + length
    if (width := FIXED_WIDTH.get(code)) is not None:
        end = position + 1 + width
        is_index = code in (pickle.LONG_BINPUT[0], pickle.LONG_BINGET[0])
        if is_index and int.from_bytes(data[position + 1 : end], "little") >= MAX_MEMO:
            raise BadPickle("it names a memo index that no dump reaches")
        return end
    raise BadPickle(f"it holds the instruction {name_of(code)}, which no dump needs")
