"""The grammar of the pickles that are read: every token that there is, and how long it is.

A token is a byte of opcode and either an operand of `FIXED_WIDTH` bytes, or a length of
`STRING_WIDTH` bytes (little-endian, unsigned) and as many bytes as it says. Nothing else decides
where a token ends: frames promise nothing and are stepped over, as is PROTO. Any other opcode
makes the file unreadable. All of them are data; nothing looks up, calls or builds. `native/src`
has the same grammar.

torch's pickler uses protocol 2; Python's own (a dump that was loaded and saved again) adds the
framing and memo opcodes of protocol 4.
"""

from __future__ import annotations

import pickle
import pickletools
from typing import Final


def _codes(*opcodes: bytes) -> frozenset[int]:
    return frozenset(opcode[0] for opcode in opcodes)


FIXED_WIDTH: Final[dict[int, int]] = {
    pickle.MARK[0]: 0, pickle.EMPTY_DICT[0]: 0, pickle.EMPTY_LIST[0]: 0, pickle.EMPTY_TUPLE[0]: 0,
    pickle.NONE[0]: 0, pickle.NEWTRUE[0]: 0, pickle.NEWFALSE[0]: 0, pickle.BININT1[0]: 1,
    pickle.BININT2[0]: 2, pickle.BININT[0]: 4, pickle.BINFLOAT[0]: 8, pickle.BINGET[0]: 1,
    pickle.LONG_BINGET[0]: 4, pickle.BINPUT[0]: 1, pickle.LONG_BINPUT[0]: 4, pickle.MEMOIZE[0]: 0,
    pickle.APPEND[0]: 0, pickle.APPENDS[0]: 0, pickle.SETITEM[0]: 0, pickle.SETITEMS[0]: 0,
    pickle.TUPLE[0]: 0, pickle.TUPLE1[0]: 0, pickle.TUPLE2[0]: 0, pickle.TUPLE3[0]: 0,
    pickle.FRAME[0]: 8, pickle.PROTO[0]: 1, pickle.STOP[0]: 0,
}  # fmt: skip
"""Bytes that follow each opcode of fixed length."""

STRING_WIDTH: Final[dict[int, int]] = {
    pickle.SHORT_BINUNICODE[0]: 1, pickle.BINUNICODE[0]: 4, pickle.BINUNICODE8[0]: 8,
    pickle.LONG1[0]: 1,
}  # fmt: skip
"""Bytes of the length that follows each opcode of variable length; then come the bytes counted."""

IGNORED: Final = _codes(pickle.FRAME, pickle.PROTO)
LONG1: Final = pickle.LONG1[0]
STOP: Final = pickle.STOP[0]
MAX_MEMO: Final = 1 << 20
"""Memo indices that are accepted: the unpickler sets 16 bytes aside for each below the highest."""

TUPLES: Final[dict[int, int]] = {
    pickle.EMPTY_TUPLE[0]: 0, pickle.TUPLE1[0]: 1, pickle.TUPLE2[0]: 2, pickle.TUPLE3[0]: 3,
}  # fmt: skip
"""Tuple opcodes without a mark, and how many values they take."""

TUPLE_CODES: Final = frozenset((*TUPLES, pickle.TUPLE[0]))
PUTS: Final = _codes(pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE)
PUSHES: Final = _codes(
    pickle.EMPTY_DICT, pickle.EMPTY_LIST, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE,
    pickle.BININT1, pickle.BININT2, pickle.BININT, pickle.BINFLOAT, pickle.BINGET,
    pickle.LONG_BINGET, *(bytes((code,)) for code in STRING_WIDTH),
)  # fmt: skip
"""Opcodes that put one value on the stack and take none."""

CLOSERS: Final[dict[int, int]] = {
    pickle.EMPTY_DICT[0]: pickle.SETITEMS[0], pickle.EMPTY_LIST[0]: pickle.APPENDS[0],
    pickle.SETITEMS[0]: pickle.SETITEMS[0], pickle.APPENDS[0]: pickle.APPENDS[0],
}  # fmt: skip
"""What closes the mark that follows an opcode (a container may be filled in several goes)."""

_MAKERS: Final = tuple(
    bytes((code,)) for code in (pickle.EMPTY_DICT[0], pickle.EMPTY_LIST[0], *sorted(TUPLES))
)
SPARE_CONTAINERS: Final = 10_000
BYTES_OF_CONTAINER: Final = 4


def too_many_containers(data: bytes) -> bool:
    """Whether a file asks for more lists, dicts and tuples than any dump.

    One takes a byte to ask for and eighty to keep; torch's smallest list takes 5 bytes. The bytes
    are counted wherever they stand, in a text as well: what is refused does not depend on more.
    """
    most = SPARE_CONTAINERS + len(data) // BYTES_OF_CONTAINER
    return len(data) > most and sum(map(data.count, _MAKERS)) > most


_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}


def name_of(code: int) -> str:
    """Name of any opcode, for a message."""
    return _NAMES.get(code, f"0x{code:02x}")
