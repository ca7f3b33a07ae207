"""Write dumps byte for byte as torch's recorder writes them.

Generated cases must exercise the real readers, so they take the same detour through bytes as a real
job: the pickle is what `torch::jit::Pickler` emits (protocol 2, no globals), the JSON is what
`_dump_fr_trace_json` emits. This module knows opcodes and layout only; it invents no content, and
accepts any version's keys because it writes what it is given.

Facts about the pickler (torch 2.13, checked against real dumps in the tests):

- Strings are memoised by value, all of them, at first use.
- A container is memoised after its content, and only where several references to it exist: in a
  dump that is each frame that occurs more than once, and the dump itself. Two frames of equal text
  are two frames (torch tells them apart by bytecode offset), hence memoising by identity.
- Integers take the shortest of BININT1, BININT2, BININT, and LONG1 with always eight bytes.
- Containers always carry MARK and SETITEMS or APPENDS, even when empty.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Entry: TypeAlias = Mapping[str, Any]

_PROTO_2 = b"\x80\x02"
_MAX_UINT8, _MAX_UINT16, _MAX_INT32 = 0xFF, 0xFFFF, 0x7FFFFFFF
_TUPLE_OPCODES = {0: b")", 1: b"\x85", 2: b"\x86", 3: b"\x87"}
_UNTIMED = ("time_discovered_started_ns", "time_discovered_completed_ns")
_pack_uint16 = struct.Struct("<BH").pack
_pack_int32 = struct.Struct("<Bi").pack
_pack_uint32 = struct.Struct("<BI").pack
_pack_long1 = struct.Struct("<BBq").pack
_pack_double = struct.Struct(">Bd").pack


def encode_pickle(dump: Mapping[str, Any] | list[Entry]) -> bytes:
    """Encode one dump as torch's recorder does.

    Args:
        dump: torch's layout as plain values; a list of entries stands for torch 2.2 and older.
            Frames that are one and the same object are written once. Entries may share whole lists
            (frames, sizes): that changes no byte and is much faster.

    Returns:
        The bytes of the file.

    Raises:
        TypeError: A value is of a type that torch's recorder never writes.
    """
    entries = dump.get("entries", ()) if isinstance(dump, Mapping) else dump
    pickler = _Pickler(_shared_frames(entries))
    pickler.out.append(_PROTO_2)
    pickler.value(dump)
    pickler.put()
    pickler.out.append(b".")
    return b"".join(pickler.out)


def encode_json(dump: Mapping[str, Any]) -> bytes:
    """Encode the same dump as `_dump_fr_trace_json` does.

    JSON has no frames, says 0 for "no time", writes the counters of `pg_status` as strings, leaves
    `entries` out where there is none, and has `nccl_comm_state` always.

    Args:
        dump: torch's layout as for `encode_pickle`.

    Returns:
        The bytes of the file, keys sorted and without white space.
    """
    top = {key: value for key, value in dump.items() if key != "entries"}
    top["pg_status"] = {
        pg_id: {name: str(count) for name, count in counters.items()}
        for pg_id, counters in dump.get("pg_status", {}).items()
    }
    top.setdefault("nccl_comm_state", {})
    if entries := [_json_entry(entry) for entry in dump.get("entries", ())]:
        top["entries"] = entries
    text = json.dumps(top, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _json_entry(entry: Entry) -> dict[str, Any]:
    plain = {key: value for key, value in entry.items() if key != "frames"}
    for key in _UNTIMED:
        if key in plain:
            plain[key] = plain[key] or 0
    return plain


def _shared_frames(entries: Iterable[Entry]) -> frozenset[int]:
    """Identities of the frames that occur more than once."""
    stacks: dict[int, list[Any]] = {}
    times: Counter[int] = Counter()
    for entry in entries:
        frames = entry.get("frames")
        if frames:
            stacks[id(frames)] = frames
            times[id(frames)] += 1
    occurrences: Counter[int] = Counter()
    for key, frames in stacks.items():
        for frame in frames:
            occurrences[id(frame)] += times[key]
    return frozenset(frame for frame, count in occurrences.items() if count > 1)


class _Pickler:
    """Appends opcodes to `out`; one instance writes one file.

    What was written for a list is kept and repeated where it cannot come out differently a second
    time, that is where it added nothing to the memo.
    """

    def __init__(self, shared_frames: frozenset[int]) -> None:
        self.out: list[bytes] = []
        self.shared_frames = shared_frames
        self.memo_size = 0
        self.strings: dict[str, bytes] = {}
        self.frames: dict[int, bytes] = {}
        self.lists: dict[int, bytes] = {}
        self.kept: list[object] = []  # keeps identities valid while this file is written
        self.integers: dict[int, bytes] = {}

    def put(self) -> bytes:
        """Memoise the value on top; returns the opcode that fetches it again."""
        number = self.memo_size
        self.memo_size += 1
        if number <= _MAX_UINT8:
            self.out.append(bytes((0x71, number)))
            return bytes((0x68, number))
        self.out.append(_pack_uint32(0x72, number))
        return _pack_uint32(0x6A, number)

    def value(self, value: object) -> None:
        """Append any value that a dump can hold."""
        if isinstance(value, str):
            self.out.append(self.strings.get(value) or self.string(value))
        elif value is None:
            self.out.append(b"N")
        elif isinstance(value, bool):
            self.out.append(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.out.append(self.integers.get(value) or self.integer(value))
        elif isinstance(value, float):
            self.out.append(_pack_double(0x47, value))
        elif isinstance(value, dict):
            self.dict_(value)
        elif isinstance(value, tuple):
            self.tuple_(value)
        elif isinstance(value, list):
            self.list_(value)
        else:
            raise TypeError(f"torch's recorder never writes a {type(value).__name__}")

    def string(self, value: str) -> bytes:
        """Append a new string with its memo; returns nothing more to append."""
        data = value.encode()
        self.out.append(_pack_uint32(0x58, len(data)) + data)
        self.strings[value] = self.put()
        return b""

    def integer(self, value: int) -> bytes:
        """Opcode and operand of an integer, kept for the small ones, which come again."""
        if not 0 <= value <= _MAX_UINT16:
            if -_MAX_INT32 - 1 <= value <= _MAX_INT32:
                return _pack_int32(0x4A, value)
            return _pack_long1(0x8A, 8, value)
        code = bytes((0x4B, value)) if value <= _MAX_UINT8 else _pack_uint16(0x4D, value)
        self.integers[value] = code
        return code

    def dict_(self, value: dict[str, Any]) -> None:
        """Append a dict; a frame that comes again is memoised."""
        frame = id(value) if id(value) in self.shared_frames else 0
        if known := self.frames.get(frame):
            self.out.append(known)
            return
        self.out.append(b"}(")
        for key, item in value.items():
            self.value(key)
            self.value(item)
        self.out.append(b"u")
        if frame:
            self.kept.append(value)
            self.frames[frame] = self.put()

    def tuple_(self, value: tuple[object, ...]) -> None:
        """Append a tuple."""
        code = _TUPLE_OPCODES.get(len(value))
        if code is None:
            self.out.append(b"(")
        for item in value:
            self.value(item)
        self.out.append(code or b"t")

    def list_(self, value: list[object]) -> None:
        """Append a list, from what was written for it before if that can be repeated."""
        if known := self.lists.get(id(value)):
            self.out.append(known)
            return
        before, size = len(self.out), self.memo_size
        self.out.append(b"](")
        for item in value:
            self.value(item)
        self.out.append(b"e")
        if size == self.memo_size and value:
            self.kept.append(value)
            self.lists[id(value)] = b"".join(self.out[before:])
