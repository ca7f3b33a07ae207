"""From the numbers of one memory's strings and nodes to those of the case.

Each distinct name, stack or signature is turned into a Python value once for each memory, checked
by the same functions as in the Python reader; whole columns are then a table lookup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unhang.ingest.columns.decoded import PlainDict
from unhang.ingest.columns.dictionaries import (
    MAX_FRAMES,
    Dictionaries,
    clean_dtypes,
    clean_frame,
    clean_shapes,
    clean_text,
)
from unhang.ingest.native.library import Int32s, Int64s, Library
from unhang.model import Signature
from unhang.wording import readable

MAX_PAIRS = 256
"""Pairs of group and local id of one file that the decoder tells apart."""

# Tags of values, and kinds of nodes, as in values.rs and interning.rs.
_BOOL, _INT, _FLOAT, _STRING, _NODE = 2, 3, 4, 5, 6
_LIST, _DICT = 0, 2


class Translator:
    """Translates what one memory of a reader decodes."""

    def __init__(self, library: Library, reader: int, memory: int, shared: Dictionaries) -> None:
        self.shared = shared
        self._views: Callable[[], list[Any]] = lambda: library.views(reader, memory)
        self._texts: dict[int, str] = {}
        self._values: dict[int, object] = {}
        self._frames: dict[int, int] = {}
        self._known: list[Int32s] = [np.zeros(0, np.int32)] * 5
        self._make = (self._name, self._signature, self._stack, self._thread, self._group)

    def look(self) -> None:
        """Look at the memory again, after the reader was used."""
        (
            self._strings, self._text, self._nodes, self._children,
            *self._distinct, self._tops, self.threads, self._used,
        ) = self._views()  # fmt: skip

    def tables(self, outcomes: Int64s) -> tuple[Int32s, ...]:
        """Numbers of the case: of names, signatures, stacks, groups, and of the files' threads.

        Args:
            outcomes: Of the files that this memory has just decoded.
        """
        for index, make in enumerate(self._make):
            known = self._known[index]
            new = self._distinct[index][len(known) :].tolist()
            if new:
                made = np.array([make(number) for number in new], np.int32)
                self._known[index] = np.concatenate((known, made))
        names, signatures, stacks, threads, groups = self._known
        return names, signatures, stacks, groups, self._of_threads(outcomes, threads)

    def _of_threads(self, outcomes: Int64s, known: Int32s) -> Int32s:
        """Threads of all files; namesakes within a file are "name", "name #2"."""
        numbers: Int32s = known[self.threads]
        for first, count in outcomes[outcomes[:, 7] > 1, 6:8].tolist():
            times: Counter[str] = Counter()
            for place in range(first, first + count):
                text = self._thread_name(int(self._distinct[3][self.threads[place]]))
                times[text] += 1
                numbers[place] = self.shared.thread(text, times[text])
        return numbers

    def key(self, first: int, count: int) -> bytes:
        """The same for what says the same."""
        return bytes(self._tops[first : first + count].tobytes())

    def top(self, first: int, count: int) -> PlainDict:
        """What a dump holds next to torch's entries."""
        pairs = self._tops[first : first + count].tolist()
        return {self.text(key): self.value(tag, value) for key, tag, value in pairs}

    def used(self, first: int, count: int) -> tuple[tuple[int, int], ...] | None:
        """The groups that a file's calls use, with their local ids; None for too many."""
        if count > MAX_PAIRS:
            return None
        groups = self._known[4]
        pairs = self._used[first : first + count].tolist()
        return tuple((int(groups[group]), local) for group, local in pairs)

    def text(self, number: int) -> str:
        """A string, read as in the Python reader."""
        text = self._texts.get(number)
        if text is None:
            start, length = self._strings[number, 1:].tolist()
            text = readable(self._text[start : start + length].tobytes())
            self._texts[number] = text
        return text

    def value(self, tag: int, value: int) -> Any:  # noqa: ANN401 - whatever a dump holds
        """A value of the decoder as Python's. Containers are shared: no caller may change them."""
        if tag == _STRING:
            return self.text(value)
        if tag == _INT:
            return value
        if tag == _NODE:
            return self.node(value)
        if tag == _BOOL:
            return bool(value)
        return float(np.int64(value).view(np.float64)) if tag == _FLOAT else None

    def node(self, number: int) -> Any:  # noqa: ANN401 - whatever a dump holds
        """A container."""
        found = self._values.get(number)
        if found is None:
            kind, children = self.children(number)
            values = [self.value(tag, value) for tag, value in children]
            if kind == _DICT:
                found = dict(zip(values[::2], values[1::2], strict=True))
            else:
                found = values if kind == _LIST else tuple(values)
            self._values[number] = found
        return found

    def children(self, number: int) -> tuple[int, Sequence[tuple[int, int]]]:
        """Kind of a node, and (tag, value) of each child."""
        kind, start, length = self._nodes[number, 1:].tolist()
        return kind, self._children[start : start + length].tolist()

    def _parts(self, number: int) -> list[Any]:
        """The children of a node of the decoder's own making, as Python's values."""
        return [self.value(tag, value) for tag, value in self.children(number)[1]]

    def _name(self, number: int) -> int:
        return self.shared.names[clean_text(self.text(number))]

    def _group(self, number: int) -> int:
        name, description = self.node(number)
        return self.shared.groups[clean_text(name), clean_text(description)]

    def _thread(self, number: int) -> int:
        return self.shared.thread(self._thread_name(number), 1)

    def _thread_name(self, number: int) -> str:
        return clean_text(self._parts(number)[0])

    def _stack(self, number: int) -> int:
        children = self.children(number)[1][:MAX_FRAMES]
        return self.shared.numbered_stack(self._frame(*child) for child in children)

    def _frame(self, tag: int, value: int) -> int:
        if tag != _NODE:
            return self.shared.frames[clean_frame(None)]
        found = self._frames.get(value)
        if found is None:
            found = self._frames[value] = self.shared.frames[clean_frame(self.node(value))]
        return found

    def _signature(self, number: int) -> int:
        inputs, outputs, kinds, out_kinds = self._parts(number)
        return self.shared.signatures[
            Signature(
                clean_shapes(inputs),
                clean_shapes(outputs),
                clean_dtypes(kinds),
                clean_dtypes(out_kinds),
            )
        ]
