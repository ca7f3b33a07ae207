"""Close a pickle that was cut short, so that its whole entries can be read.

A full disk or a killed process leaves the first part of a dump, and the entries come last in it:
most of them are there. The tokens are walked with the depth of open containers, the file is cut
after the last whole entry (or the last whole pair of the dump itself), and what is still open is
closed. The result is an ordinary pickle again; nothing is invented.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

from unhang.ingest.pickles.opcodes import (
    CLOSERS,
    FIXED_WIDTH,
    IGNORED,
    PUSHES,
    PUTS,
    STRING_WIDTH,
    TUPLES,
)

_MARK, _TUPLE = pickle.MARK[0], pickle.TUPLE[0]
_SETITEMS, _APPENDS = pickle.SETITEMS[0], pickle.APPENDS[0]
_TAKES = {pickle.APPEND[0]: 1, pickle.SETITEM[0]: 2}
_DUMP = [_SETITEMS]
_ENTRIES = ([_SETITEMS, _APPENDS], [_APPENDS])
"""Open containers between two entries: of a dump, and of the plain list of torch 2.2."""


@dataclass(slots=True)
class _Walk:
    """Where the walk stands: `closers` of the open marks, and values above each of them."""

    closers: list[int] = field(default_factory=list)
    heights: list[int] = field(default_factory=lambda: [0])
    previous: int = 0
    cut: int = 0
    closing: bytes = b""

    def step(self, code: int) -> None:
        """Apply one token's effect on the stack."""
        if code in PUTS or code in IGNORED:
            return
        if code == _MARK:
            self.closers.append(CLOSERS.get(self.previous, _TUPLE))
            self.heights.append(0)
        elif code in (_SETITEMS, _APPENDS, _TUPLE):
            self.close(code)
        elif code in PUSHES:
            self.heights[-1] += 1
        elif code in TUPLES:
            self.heights[-1] += 1 - TUPLES[code]
        elif code in _TAKES:
            self.heights[-1] -= _TAKES[code]
        self.previous = code

    def close(self, code: int) -> None:
        """Close the innermost mark; a tuple is a new value, a filled container is not."""
        if self.closers:
            self.closers.pop()
            self.heights.pop()
        self.heights[-1] += code == _TUPLE

    def keep(self, position: int) -> None:
        """Remember this place if everything before it is whole."""
        between_entries = self.closers in _ENTRIES and self.previous == _SETITEMS
        if between_entries and self.closers[0] == _SETITEMS:
            between_entries = self.heights[1] % 2 == 0  # the list is a value, not a key
        between_pairs = self.closers == _DUMP and self.heights[-1] % 2 == 0
        if between_entries or between_pairs:
            self.cut, self.closing = position, bytes(reversed(self.closers))


def close_after_last_entry(data: bytes) -> bytes:
    """Cut and close a pickle that ends before its STOP.

    Args:
        data: Bytes whose tokens `unhang.ingest.pickles.unpickle` has checked.

    Returns:
        A whole pickle of what was complete; empty where nothing was.
    """
    walk, position, size = _Walk(), 0, len(data)
    while position < size:
        code = data[position]
        end = position + 1
        if code in STRING_WIDTH:
            width = STRING_WIDTH[code]
            end += width + int.from_bytes(data[end : end + width], "little")
        else:
            end += FIXED_WIDTH.get(code, 0)
        if end > size:
            break
        walk.step(code)
        position = end
        walk.keep(position)
    if not walk.cut:
        return b""
    return data[: walk.cut] + walk.closing + pickle.STOP
