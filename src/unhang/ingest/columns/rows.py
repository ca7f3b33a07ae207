"""From a list of entries, in any version's keys, to columns.

Column by column instead of entry by entry, because a dump has thousands of entries and 20 columns.
Every version's spelling of a key is known here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field

from unhang.ingest.columns.decoded import ROW_DTYPES, Column, LostDumpError, PlainDict
from unhang.ingest.columns.dictionaries import (
    MAX_FRAMES,
    Dictionaries,
    clean_dtypes,
    clean_frame,
    clean_shapes,
    clean_text,
)
from unhang.ingest.columns.values import as_int, float_column, int_column, local_ids
from unhang.model import Signature, State

STATES = {
    "scheduled": State.SCHEDULED,
    "started": State.STARTED,
    "completed": State.COMPLETED,
    "failed": State.FAILED,
}
_Key: TypeAlias = tuple[tuple[Any, ...], ...]
_LISTS = frozenset((list, tuple))
_NUMBERS, _WORDS = frozenset((int,)), frozenset((str,))
_P2P_OPS = ("send", "recv")
_MOST_MICROSECONDS = 1 << 53
SPARE_WORK = 1_000_000
"""Elements of lists that any file may refer to; beyond it they must have been written out."""


def work_of(size: int) -> int:
    """Elements of lists that the entries of a file of so many bytes may refer to."""
    return 4 * size + SPARE_WORK


class Rows(Struct):
    """The entries that are entries, their columns, and what was wrong with the rest."""

    entries: list[PlainDict]
    columns: dict[str, Column]
    remarks: list[str] = field(default_factory=list)


def columns_of(entries: list[Any], shared: Dictionaries, size: int) -> Rows:
    """Make columns of a list of entries.

    Args:
        entries: torch's layout, or ours with `after_record_id`; any version's keys.
        shared: Receives names, stacks and so on.
        size: Bytes of the file: bounds what entries may refer to again and again.

    Raises:
        BadDump: The entries are a bomb of references rather than calls.
    """
    plain = [entry for entry in entries if isinstance(entry, dict)]
    reader = _Reader(plain, shared, work_of(size))
    rows = Rows(plain, reader.columns())
    if len(plain) < len(entries):
        rows.remarks.append(f"skipped {len(entries) - len(plain)} malformed entries")
    rows.remarks += reader.remarks
    return rows


def elements_of(sizes: Any, out: Any, kinds: Any, out_kinds: Any) -> int:  # noqa: ANN401 - untrusted values
    """Elements of lists that a signature refers to, empty ones and what is no shape among them."""
    shapes = (*_listed(sizes), *_listed(out))
    dimensions = sum(map(len, map(_listed, shapes)))
    return len(shapes) + dimensions + len(_listed(kinds)) + len(_listed(out_kinds))


def _listed(value: Any) -> Sequence[Any]:  # noqa: ANN401 - untrusted values
    return value if isinstance(value, (list, tuple)) else ()


def _key_of(*parts: Any) -> _Key | None:  # noqa: ANN401 - untrusted values
    """What tells one signature from all others; None where a value is not of torch's types.

    Equal values may be read otherwise: True is 1, and the items of "" are those of [].
    """
    if not _LISTS.issuperset(map(type, parts)):
        return None
    sizes, out, kinds, out_kinds = parts
    if not _LISTS.issuperset(map(type, shapes := (*sizes, *out))):
        return None
    if not _NUMBERS.issuperset(map(type, chain.from_iterable(shapes))):
        return None
    if not _WORDS.issuperset(map(type, (*kinds, *out_kinds))):
        return None
    return tuple(map(tuple, sizes)), tuple(map(tuple, out)), tuple(kinds), tuple(out_kinds)


class _Reader(Struct):
    """Reads one file's entries; caches what they share."""

    entries: list[PlainDict]
    shared: Dictionaries
    work_left: int
    remarks: list[str] = field(default_factory=list)
    stacks: dict[tuple[int, ...], int] = field(default_factory=dict)
    signatures: dict[_Key, int] = field(default_factory=dict)

    def columns(self) -> dict[str, Column]:
        """All columns of `ROW_DTYPES`."""
        raw_names = [clean_text(name) for name in self.values("profiling_name")]
        state = self.states()
        columns: dict[str, Any] = {
            "name": [self.shared.names[name] for name in raw_names],
            "signature": self.signature_column(),
            "stack": [self.stack(frames) for frames in self.values("frames")],
            "thread": self.threads(),
            "record_id": self.ints("record_id"),
            "seq": self.ints(self.spelling("collective_seq_id", "seq_id")),
            "p2p_seq": self.ints("p2p_seq_id"),
            "op_id": self.ints("op_id"),
            "state": state,
            "origin": np.zeros(len(self.entries)),
            "retired": self.retired(state),
            "is_p2p": self.p2p(raw_names),
            "created_ns": self.created(),
            "started_ns": self.times("time_discovered_started_ns"),
            "completed_ns": self.times("time_discovered_completed_ns"),
            "duration_ms": float_column(self.values("duration_ms")),
            "timeout_ms": self.ints("timeout_ms"),
            "pg": [self.group(entry) for entry in self.entries],
            "pg_id": self.local_ids(),
        }
        return {key: np.asarray(columns[key], kind) for key, kind in ROW_DTYPES.items()}

    def values(self, key: str) -> list[Any]:
        """What the entries say under a key; None where they say nothing."""
        try:
            return list(map(itemgetter(key), self.entries))
        except KeyError:
            return [entry.get(key) for entry in self.entries]

    def spelling(self, *keys: str) -> str:
        """The first of several names of one key that the file uses."""
        first = self.entries[0] if self.entries else {}
        return next((key for key in keys if key in first), keys[0])

    def ints(self, key: str) -> Column:
        """A column of numbers; -1 where there is none."""
        return int_column(self.values(key))

    def times(self, key: str) -> Column:
        """A column of times in ns; torch writes None or 0 for "no time"."""
        return int_column([value or 0 for value in self.values(key)], 0)

    def created(self) -> Column:
        """When calls were made; torch 2.2 wrote microseconds."""
        if self.spelling("time_created_ns", "time_created_us") == "time_created_ns":
            return self.times("time_created_ns")
        found: Column = self.times("time_created_us")
        return np.where((found > 0) & (found < _MOST_MICROSECONDS), found * 1000, 0)

    def local_ids(self) -> Column:
        """Local ids of groups, in the range of their column."""
        return local_ids(int_column(self.values("pg_id")))

    def states(self) -> list[int]:
        """States; a call with an error of ours has failed, an unknown word proves nothing."""
        words = [clean_text(word) for word in self.values("state")]
        meaning = {word: int(STATES.get(word, State.SCHEDULED)) for word in set(words)}
        if unknown := sorted(meaning.keys() - STATES.keys()):
            self.remarks.append(f"read the unknown states {unknown[:5]} as scheduled")
        states = [meaning[word] for word in words]
        for row, entry in enumerate(self.entries):
            if "error" in entry and "after_record_id" in entry:
                states[row] = int(State.FAILED)
        return states

    def retired(self, states: Sequence[int]) -> list[bool]:
        """Whether the recorder was done with the call; the oldest versions tell by the state."""
        flags = self.values("retired")
        if None not in flags:
            return list(map(bool, flags))
        return [
            state == State.COMPLETED if flag is None else bool(flag)
            for flag, state in zip(flags, states, strict=True)
        ]

    def p2p(self, names: Sequence[str]) -> list[bool]:
        """Whether the call is point to point; before 2.0 only its name tells."""
        flags = self.values("is_p2p")
        if None not in flags:
            return list(map(bool, flags))
        return [
            name.partition(":")[2].startswith(_P2P_OPS) if flag is None else bool(flag)
            for flag, name in zip(flags, names, strict=True)
        ]

    def group(self, entry: PlainDict) -> int:
        """(name, description) of the group; before 2.0 the local id is all there is."""
        pair = entry.get("process_group")
        if isinstance(pair, (tuple, list)) and len(pair) == 2:  # noqa: PLR2004 - a pair
            return self.shared.groups[clean_text(pair[0]), clean_text(pair[1])]
        return self.shared.groups[str(as_int(entry.get("pg_id"), 0)), ""]

    def threads(self) -> list[int]:
        """Threads by name; a second thread of the same name in this process is "name #2"."""
        seen: dict[object, int] = {}
        times: dict[str, int] = {}
        column = []
        for name, tid in zip(self.values("thread_name"), self.values("thread_id"), strict=True):
            key = (
                (name, tid) if isinstance(name, str) and isinstance(tid, str) else clean_text(name)
            )
            number = seen.get(key)
            if number is None:
                text = clean_text(name)
                times[text] = times.get(text, 0) + 1
                number = seen[key] = self.shared.thread(text, times[text])
            column.append(number)
        return column

    def stack(self, frames: object) -> int:
        """Number of a stack. Frames are dicts that many stacks share, so identity tells them."""
        if not isinstance(frames, (list, tuple)) or not frames:
            return -1
        if len(frames) > MAX_FRAMES:
            frames = frames[:MAX_FRAMES]
        self.spend(len(frames))
        key = tuple(map(id, frames))
        number = self.stacks.get(key)
        if number is None:
            number = self.stacks[key] = self.shared.stack(map(clean_frame, frames))
        return number

    def signature_column(self) -> list[int]:
        """Numbers of the signatures; `sizes` is what torch 2.2 and older call the input's."""
        inputs = self.values(self.spelling("input_sizes", "sizes"))
        outputs = self.values("output_sizes")
        dtypes = zip(self.values("input_dtypes"), self.values("output_dtypes"), strict=True)
        return [
            self.signature(sizes, out, *kinds)
            for sizes, out, kinds in zip(inputs, outputs, dtypes, strict=True)
        ]

    def signature(self, *parts: Any) -> int:  # noqa: ANN401 - untrusted values
        """Number of one signature: input sizes, output sizes, input dtypes, output dtypes."""
        self.spend(elements_of(*parts))
        key = _key_of(*parts)
        number = None if key is None else self.signatures.get(key)
        if number is None:
            number = self.shared.signatures[
                Signature(
                    clean_shapes(parts[0]),
                    clean_shapes(parts[1]),
                    clean_dtypes(parts[2]),
                    clean_dtypes(parts[3]),
                )
            ]
            if key is not None:
                self.signatures[key] = number
        return number

    def spend(self, elements: int) -> None:
        """Count elements of lists; a file refers to more than it could hold only to harm."""
        self.work_left -= elements
        if self.work_left < 0:
            raise LostDumpError("its entries refer to the same long lists again and again")
