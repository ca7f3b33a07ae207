"""The layout of a part: the dumps of one node without what repeats.

Ranks of a node run one program, and programs are loops: calls that are alike are written once (a
kind of call says by how much its numbers grow), and a rank's sequence is the list of its kinds,
which ranks in step with each other share. That much is exact. Only times are no repetition: where
they would take too much room, those of the calls that a verdict reads are kept.

A part comes from outside like any dump: its shape is compared, its size is bounded before it is
unpacked, and every number that points somewhere is checked before it is followed.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from unhang.errors import OutputError
from unhang.ingest.columns.decoded import Origin
from unhang.ingest.discover.sniff import MAX_FILE_BYTES, MAX_RATIO, PART_MAGIC
from unhang.model import DumpStatus

PLAIN = ("name", "signature", "stack", "thread", "state", "origin", "retired", "is_p2p",
         "timeout_ms")  # fmt: skip
"""Columns that a kind of call has as they are."""

DELTAS = ("seq", "p2p_seq", "op_id")
"""Columns that grow from call to call of one lane; a kind says by how much."""

LEAPS = ("record_id",)
"""The same from call to call of one dump."""

TIMES = ("created_ns", "started_ns", "completed_ns", "duration_ms")

ALWAYS_READ = 64 << 20
"""Bytes that a part may unpack to, however small its file is."""

_LARGEST = (1 << 63) - 1
_Int = Annotated[int, Meta(ge=-_LARGEST - 1, le=_LARGEST)]
_Index = Annotated[int, Meta(ge=0, lt=1 << 31)]
Column = npt.NDArray[Any]


class BadPart(Exception):  # noqa: N818 - it is the file that is bad
    """It is no part, or one that was spoilt; the message says why, for a note."""


class Dictionary(Struct, array_like=True, frozen=True):
    """What the calls of a part point into; parts of nodes in step with each other have the same.

    Attributes:
        signatures: Input and output sizes, input and output dtypes.
        stacks: Numbers of frames, innermost first.
        kinds: Distinct calls, `PLAIN`, then `DELTAS`, then `LEAPS`, then the lane; see `packed`.
    """

    names: list[str]
    threads: list[str]
    signatures: list[tuple[list[list[_Int]], list[list[_Int]], list[str], list[str]]]
    frames: list[tuple[str, str, _Int]]
    stacks: list[list[_Index]]
    kinds: bytes


class PartDump(Struct, array_like=True, frozen=True):
    """One dump of a part.

    Attributes:
        relative: Path below what was reduced; the rank is read from it, as from a dump's own.
        declared: Name, description and number of the list of members of each group.
        statuses: Local id, and the three counters.
        program: Number of its sequence of calls; -1 without calls.
        lanes: Group (by its number in the part) and local id of its calls, by first use.
        starts: First record id, then the first of each of `DELTAS` for each lane.
        used: What the reader said of the groups in use; see `Decoded.used`.
        timed: How many of its calls have times here; -1 for all.
        few_times: The times of some of its calls were left out.
        turns: Calls that may be the open one, and how far apart their like usually are, in ns.
        recorder: See `Decoded`.
    """

    source: str
    relative: str
    mtime_ns: _Int
    status: DumpStatus
    problem: str
    truncated: bool
    version: str
    comm_lib_version: str
    reported_by: str
    origin: Origin | None
    declared: tuple[tuple[str, str, _Index], ...]
    statuses: tuple[tuple[_Int, _Int, _Int, _Int], ...]
    remarks: list[str]
    program: int
    lanes: tuple[tuple[_Index, _Int], ...]
    starts: list[_Int]
    used: tuple[tuple[_Index, _Int], ...] | None
    timed: int
    few_times: bool
    turns: tuple[tuple[_Index, _Int], ...]
    recorder: str = ""


class Part(Struct, array_like=True, frozen=True):
    """All of one part.

    Attributes:
        dictionary: A `Dictionary`, encoded.
        members: Lists of ranks, as runs of (first, step, count).
        programs: Sequences of kinds, as 16 or (`wide`) 32 bits each.
        timed: Numbers of the calls that have times, of all dumps that have not all of them.
        times: `TIMES` of all calls that have them; see `packed`.
        notes: Level, source and text of what was said when the dumps were read.
        passed_over: Files that were no dumps.
    """

    tool: str
    dictionary: bytes
    groups: list[tuple[str, str]]
    members: list[tuple[tuple[_Int, _Int, _Int], ...]]
    programs: list[bytes]
    wide: bool
    dumps: list[PartDump]
    timed: bytes
    times: list[bytes]
    notes: list[tuple[str, str, str]]
    passed_over: list[str]


def pack(part: Part) -> bytes:
    """A part as the bytes of its file, made as long as a reader wants it for what it holds.

    Raises:
        OutputError: It holds more than any reader takes, however long the file is.
    """
    content = encoded(part)
    if len(content) > MAX_FILE_BYTES:
        raise OutputError(
            f"a part of {len(content) >> 20:,} MiB: readers take {MAX_FILE_BYTES >> 20:,} MiB",
            hint="leave --times out, or reduce fewer ranks at once: diagnose reads parts together",
        )
    data = PART_MAGIC + zlib.compress(content, 9)
    return data.ljust(0 if len(content) <= ALWAYS_READ else -(-len(content) // MAX_RATIO), b"\0")


def encoded(value: Struct) -> bytes:
    """The bytes of a part, or of its dictionary."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        builtins = msgspec.to_builtins(value, builtin_types=(bytes,))
        return msgspec.msgpack.encode(_spelt_out(builtins))


def _spelt_out(value: Any) -> Any:  # noqa: ANN401 - whatever msgpack holds
    """The same with halves of pairs of surrogates, which no text has, spelt out in its texts."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, (list, tuple)):
        return [_spelt_out(each) for each in value]
    if isinstance(value, dict):
        return {key: _spelt_out(each) for key, each in value.items()}
    return value


def unpack(data: bytes) -> Part:
    """The part in the bytes of a file.

    Raises:
        BadPart: It is none, or was spoilt, or unpacks to more than an honest one.
    """
    if not data.startswith(PART_MAGIC):
        raise BadPart("another version of unhang wrote it")
    most = min(MAX_FILE_BYTES, max(ALWAYS_READ, MAX_RATIO * len(data)))
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(memoryview(data)[len(PART_MAGIC) :], most)
    except zlib.error as error:
        raise BadPart("it was damaged in transit") from error
    if not unpacker.eof:
        raise BadPart("it was cut short" if not unpacker.unconsumed_tail else "it is too large")
    part: Part = decoded(content, Part)
    return part


def decoded(content: bytes, shape: type[Any]) -> Any:  # noqa: ANN401 - of that shape
    """What was encoded, if it has the shape that is expected.

    Raises:
        BadPart: It has another.
    """
    try:
        return msgspec.msgpack.decode(content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPart(f"it has not the shape of a part: {error}") from error


def packed(column: Column) -> bytes:
    """Numbers of 64 bits as bytes of equal weight side by side, which shrink better."""
    wide = np.ascontiguousarray(column, "<i8")
    return bytes(wide.view(np.uint8).reshape(-1, 8).T.tobytes())


def unpacked(data: bytes) -> Column:
    """The numbers that `packed` was given."""
    if len(data) % 8:
        raise BadPart("a column of it has an odd length")
    planes = np.frombuffer(data, np.uint8).reshape(8, -1)
    return np.ascontiguousarray(planes.T).view("<i8").reshape(-1).astype(np.int64, copy=False)
