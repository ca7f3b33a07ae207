"""The arrays that the compiled decoder fills, and how they grow.

One `Memory` belongs to one thread. Strings and nodes live as long as it does, so what all ranks
share is met once for each thread; rows and pairs belong to one batch of files.
"""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from unhang.ingest.fast import layout
from unhang.ingest.fast.kernel import decode_files, intern_text, place_again
from unhang.ingest.fast.layout import Bytes, Int32s, Int64s
from unhang.ingest.pickles.opcodes import MAX_MEMO

__all__ = ["Batch", "Memory"]

_MAX_STACK = 1 << 22
_NEVER = -9
"""Number of no string and no node, nor -1 for none."""
_SMALLEST_ENTRY = 64
"""Bytes that an entry of the known layout takes at least; room that stays unused is free."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch of files was decoded to, in numbers of the memory that decoded it.

    Attributes:
        rows: One column for each of `layout.KEYS`.
        tops: Pairs of the dumps themselves, `layout.TOP_WIDTH` numbers each.
        outcome: One row for each file, see `layout.OUTCOME_WIDTH`.
        room: What `rows` is a part of.
    """

    rows: Int64s
    tops: Int64s
    outcome: Int64s
    room: Int64s


def _table(count: int, width: int) -> Int64s:
    return np.empty(count * width, np.int64)


def _slots(count: int) -> Int32s:
    return np.full(count, -1, np.int32)


def _state() -> Int64s:
    state = np.zeros(layout.STATE_LENGTH, np.int64)
    state[layout.RECENT :] = _NEVER
    state[layout.SEED] = secrets.randbits(62)
    return state


@dataclass(slots=True)
class Memory:
    """What one thread has met so far; the arrays are described in `layout`.

    Attributes:
        spare: Room for rows that was given back: fresh memory costs more than decoding into it.
        buffer: For the bytes of the next batch.
    """

    state: Int64s = field(default_factory=_state)
    stack: Int64s = field(default_factory=lambda: _table(1 << 12, layout.STACK_WIDTH))
    memo: Int64s = field(default_factory=lambda: _table(1 << 10, layout.PAIR_WIDTH))
    slots: Int32s = field(default_factory=lambda: _slots(1 << 14))
    nodes: Int64s = field(default_factory=lambda: _table(1 << 13, layout.NODE_WIDTH))
    children: Int64s = field(default_factory=lambda: _table(1 << 16, layout.PAIR_WIDTH))
    places: Int32s = field(default_factory=lambda: _slots(1 << 13))
    strings: Int64s = field(default_factory=lambda: _table(1 << 12, layout.STRING_WIDTH))
    text: Bytes = field(default_factory=lambda: np.empty(1 << 18, np.uint8))
    spare: deque[Int64s] = field(default_factory=deque)
    buffer: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))

    def __post_init__(self) -> None:
        """The known keys come first, so that a key's number says which it is."""
        for key in layout.KEYS:
            text = np.frombuffer(key.encode(), np.uint8).copy()
            intern_text(self.state, self.places, self.strings, self.text, text, 0, len(text))

    def decode(self, buffer: Bytes, bounds: Int64s) -> Batch:
        """Decode a batch of files that lie behind each other in a buffer.

        Args:
            buffer: Their bytes.
            bounds: Where each begins, and where the last one ends.
        """
        files = len(bounds) - 1
        rows = self._room(int(bounds[-1]) // _SMALLEST_ENTRY + 64)
        tops = _table(8 * files + 8, layout.TOP_WIDTH)
        outcome = np.full(files * layout.OUTCOME_WIDTH, layout.UNUSUAL, np.int64)
        file = 0
        while status := decode_files(
            buffer, bounds, file, self.state, self.stack, self.memo, self.slots, self.nodes,
            self.children, self.places, self.strings, self.text, rows, tops, outcome,
        ):  # fmt: skip
            file = int(self.state[layout.FILE])
            if status == layout.MORE_ROWS:
                rows = _more_room(rows)
            elif status == layout.MORE_TOPS:
                tops = _larger(tops)
            elif not self.grow(status):
                file += 1
        by_file = outcome.reshape(files, layout.OUTCOME_WIDTH)
        columns = rows.reshape(len(layout.KEYS), -1)[:, : by_file[-1, 2]]
        return Batch(columns, tops.reshape(-1, layout.TOP_WIDTH), by_file, rows)

    def take_back(self, batch: Batch) -> None:
        """Use the room of a batch again; nobody may look at its rows any more."""
        self.spare.append(batch.room)

    def empty_buffer(self, size: int) -> Bytes:
        """Room for the bytes of a batch, until the next batch."""
        if size > len(self.buffer):
            self.buffer = np.empty(size + size // 8, np.uint8)
        return self.buffer[:size]

    def _room(self, count: int) -> Int64s:
        """Room for so many rows."""
        while self.spare:
            room = self.spare.pop()
            if len(room) >= count * len(layout.KEYS):
                return room
        return _table(count + count // 8, len(layout.KEYS))

    def grow(self, short_of: int) -> bool:
        """Make more room; False where no honest file could need it."""
        if short_of == layout.MORE_TEXT:
            self.text = _larger(self.text)
        elif short_of == layout.MORE_CHILDREN:
            self.children = _larger(self.children)
        elif short_of == layout.MORE_STRINGS:
            self.strings, self.places = _larger(self.strings), _slots(2 * len(self.places))
            count = self.state[layout.STRINGS_USED]
            place_again(self.places, self.strings, layout.STRING_WIDTH, count)
        elif short_of == layout.MORE_NODES:
            self.nodes, self.slots = _larger(self.nodes), _slots(2 * len(self.slots))
            place_again(self.slots, self.nodes, layout.NODE_WIDTH, self.state[layout.NODES_USED])
        elif short_of == layout.MORE_STACK and len(self.stack) < _MAX_STACK * layout.STACK_WIDTH:
            self.stack = _larger(_larger(self.stack))
        elif short_of == layout.MORE_MEMO and len(self.memo) < MAX_MEMO * layout.PAIR_WIDTH:
            self.memo = _larger(_larger(self.memo))
        else:
            return False
        return True


A = TypeVar("A", Int64s, Bytes)


def _larger(array: A) -> A:
    return np.concatenate((array, np.empty_like(array)))


def _more_room(rows: Int64s) -> Int64s:
    """Twice as many rows, in the same columns."""
    columns = rows.reshape(len(layout.KEYS), -1)
    return np.concatenate((columns, np.empty_like(columns)), axis=1).ravel()
