"""The ring of last calls: the part of a heartbeat's file behind what `read_heartbeat` reads.

It tells what a rank called last even after SIGKILL, when there is no dump. Here is its layout, for
those who write it (`calls/remembering`, the compiled methods) and the one reader (`ingest/pages`).
It belongs to the heartbeat's version, and never changes inside one.

Layout, native byte order: from byte `RING_START` on `RECORDS` records of `RECORD_WORDS` 64-bit
words, `Item`; call n of the process is in record n % RECORDS. From `TABLE_START` on `GROUPS` rows
of `GROUP_BYTES`, the groups in the order in which the process used them. Each is a 16-bit length
and UTF-8 text of six fields with 0x1F between: name, description, backend, time-out in ms, members,
and the process's rank in the group. Members are "0-3,8", or "" where nothing tells. Too many of
them are "64~1a2b3c4d".
"""

from __future__ import annotations

import itertools
import os
import zlib
from enum import IntEnum
from typing import Final

from unhang.record.contact.beatlayout import (
    CALL_SLOTS,
    FILE_BYTES,
    SLOT_BYTES,
    SLOT_START,
    bytes_of,
)

RING_START: Final = FILE_BYTES
RECORDS, RECORD_WORDS = 64, 32
TABLE_START: Final = RING_START + RECORDS * RECORD_WORDS * 8
GROUPS, GROUP_BYTES = 64, 256
PAGE_BYTES: Final = TABLE_START + GROUPS * GROUP_BYTES
MOST_SPLITS: Final = 16
"""Of each side; of longer ones none are kept."""


class Item(IntEnum):
    """Index of each word of a record.

    Attributes:
        NUMBER: Of the call in its process, from 1 on; 0 while the record is written. Stored last.
        BEGUN_NS, ENDED_NS: Wall clock; of the end when its wait came back, 0 before.
        SITE: Number of its slot in the heartbeat: operation, group, line; 0 for none.
        GROUP: Number of its row among the groups, from 1 on; 0 where it has none.
        SEQ: The group's own count of calls, this one included; -1 where it is not asked.
        P2P_SEQ: How many sends and receives there were in the group so far, this one included.
        PEER: Rank in the group that is sent to, received from, or the root; -1 for none.
        TAG: Of a send or receive.
        FLAGS: `Flag`.
        INPUTS, OUTPUTS: Elements of all tensors; -1 where it is not known.
        DTYPE: Of its first tensor, a number of `DTYPES` from 1 on; 0 where it is not known.
        WORK: Identity of the Work that it returned, 1 where it returned none; 0 before it returned.
        SPLITS: How many splits of the input follow, times 256, and of the output; each is 32 bits
            from `FIRST_SPLIT` on.
    """

    NUMBER = 0
    BEGUN_NS = 1
    ENDED_NS = 2
    SITE = 3
    GROUP = 4
    SEQ = 5
    P2P_SEQ = 6
    PEER = 7
    TAG = 8
    FLAGS = 9
    INPUTS = 10
    OUTPUTS = 11
    DTYPE = 12
    WORK = 13
    SPLITS = 14
    FIRST_SPLIT = 16


class Flag(IntEnum):
    """Bits of `Item.FLAGS`."""

    EXCHANGE = 1
    """It is a send or a receive."""
    FAILED = 2
    """It has raised, or its wait has."""
    AWAITED = 4
    """The program waits for it, or has waited."""
    OWN = 8
    """No recorder of torch's sees it; its numbers are ours."""
    ASSUMED = 16
    """Its `Item.SEQ` goes on from the call before: to ask the group for each costs too much."""


DTYPE_NAMES: Final = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
    "complex32": "ComplexHalf", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "float8_e4m3fn": "Float8_e4m3fn", "float8_e5m2": "Float8_e5m2",
    "float8_e4m3fnuz": "Float8_e4m3fnuz", "float8_e5m2fnuz": "Float8_e5m2fnuz",
    "float8_e8m0fnu": "Float8_e8m0fnu",
}  # fmt: skip
"""Names of dtypes as c10::toString writes them, by their names in Python; new ones come last."""

DTYPES: Final = (*DTYPE_NAMES,)
"""A dtype's number is its place here, from 1 on."""

_PAIR, _MOST_MEMBERS = 2, 14


def members_text(ranks: list[int], most: int = _MOST_MEMBERS) -> str:
    """Ranks, ascending, in a few characters: "0-3,8", "0-56:8" (every eighth).

    Where that is longer than `most`: how many, and a number that tells them from others.
    """
    steps = {after - before for before, after in itertools.pairwise(ranks)}
    if len(steps) == 1 and len(ranks) > _PAIR and steps != {1}:
        return f"{ranks[0]}-{ranks[-1]}:{steps.pop()}"
    parts, begin = [], 0
    for at, rank in enumerate(ranks):
        if at + 1 == len(ranks) or ranks[at + 1] != rank + 1:
            first = ranks[begin]
            parts.append(f"{first}" if first == rank else f"{first}-{rank}")
            begin = at + 1
    text = ",".join(parts)
    whole = len(text) <= most
    return text if whole else f"{len(ranks)}~{zlib.crc32(text.encode()):08x}"


def read_page(path: str | os.PathLike[str]) -> bytes:
    """A heartbeat's whole file, of this user's; b"" where there is none.

    Keys of stores and what the program says of itself are taken out: they are in the case without
    secrets already, and no call needs them.
    """
    data = bytearray(bytes_of(path, PAGE_BYTES))
    if len(data) != PAGE_BYTES:
        return b""
    told = SLOT_START + CALL_SLOTS * SLOT_BYTES
    data[told:FILE_BYTES] = bytes(FILE_BYTES - told)
    return bytes(data)
