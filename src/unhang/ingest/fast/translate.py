"""From the numbers of one thread's strings and nodes to those of the case.

Each distinct name, stack or signature is turned into a Python value once for each thread, checked
by the same functions as on the general path, and from then on a table lookup for whole columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unhang.ingest.columns.decoded import ROW_DTYPES, Column, DumpColumns, PlainDict
from unhang.ingest.columns.dictionaries import (
    MAX_FRAMES,
    Dictionaries,
    clean_dtypes,
    clean_frame,
    clean_shapes,
    clean_text,
)
from unhang.ingest.columns.rows import STATES, elements_of
from unhang.ingest.columns.values import local_ids
from unhang.ingest.fast import layout
from unhang.ingest.fast.layout import Int32s, Int64s
from unhang.ingest.fast.memory import Batch, Memory
from unhang.ingest.pickles.unpickle import readable
from unhang.model import Signature

__all__ = ["Translator"]

_UNKNOWN = -2
_MANY = 2**31 - 1


@dataclass(slots=True)
class _Lookup:
    """Numbers of the case by numbers of the memory; the last place stands for -1."""

    make: Callable[[int], int]
    table: Int32s = field(default_factory=lambda: np.array([-1], np.int32))

    def column(self, numbers: Int64s, used: int) -> Int32s:
        """Translate a column; what is met for the first time is made."""
        if used >= len(self.table):
            table = np.full(2 * used + 1, _UNKNOWN, np.int32)
            table[: len(self.table) - 1] = self.table[:-1]
            table[-1] = -1
            self.table = table
        found = self.table[numbers]
        missing = found == _UNKNOWN
        if missing.any():
            for number in np.unique(numbers[missing]).tolist():
                self.table[number] = self.make(number)
            found = self.table[numbers]
        return found


class Translator:
    """Translates what one memory decodes."""

    def __init__(self, memory: Memory, shared: Dictionaries) -> None:
        self.memory = memory
        self.shared = shared
        self._texts: dict[int, str] = {}
        self._values: dict[int, object] = {}
        self._frames: dict[int, int] = {}
        self._strings = {"name": _Lookup(self._name), "state": _Lookup(self._state)}
        self._sizes = {
            "signature": _Lookup(self._signature_size),
            "stack": _Lookup(self._stack_size),
        }
        self._nodes = {
            "signature": _Lookup(self._signature),
            "stack": _Lookup(self._stack),
            "thread": _Lookup(self._thread),
            "pg": _Lookup(self._group),
        }

    def elements(self, batch: Batch) -> Int64s:
        """How many elements of lists each row of a batch refers to, as the general path counts."""
        nodes = int(self.memory.state[layout.NODES_USED])
        stacks = self._sizes["stack"].column(batch.rows[layout.K_FRAMES], nodes)
        signatures = self._sizes["signature"].column(batch.rows[layout.K_SIGNATURE], nodes)
        return np.maximum(stacks, 0).astype(np.int64) + signatures

    def _stack_size(self, number: int) -> int:
        return min(int(self.memory.nodes[layout.NODE_WIDTH * number + 3]), MAX_FRAMES)

    def _signature_size(self, number: int) -> int:
        return min(elements_of(*self.node_parts(number)), _MANY)

    def table(self, batch: Batch) -> DumpColumns:
        """The rows of a batch as columns of the case; a state or group that is none is -1.

        Args:
            batch: What this translator's memory has decoded.
        """
        rows, state = batch.rows, self.memory.state
        columns: dict[str, Column] = {
            "record_id": rows[layout.K_RECORD],
            "seq": rows[layout.K_SEQ],
            "p2p_seq": rows[layout.K_P2P_SEQ],
            "op_id": rows[layout.K_OP],
            "pg_id": local_ids(rows[layout.K_PG_ID]),
            "created_ns": rows[layout.K_CREATED],
            "started_ns": rows[layout.K_STARTED],
            "completed_ns": rows[layout.K_COMPLETED],
            "timeout_ms": rows[layout.K_TIMEOUT],
            "duration_ms": rows[layout.K_DURATION].view(np.float64),
            "retired": rows[layout.K_RETIRED],
            "is_p2p": rows[layout.K_IS_P2P],
            "origin": np.zeros(rows.shape[1], np.int8),
        }
        strings, nodes = int(state[layout.STRINGS_USED]), int(state[layout.NODES_USED])
        keys = {"name": layout.K_NAME, "state": layout.K_STATE}
        for name, lookup in self._strings.items():
            columns[name] = lookup.column(rows[keys[name]], strings)
        keys = {
            "signature": layout.K_SIGNATURE, "stack": layout.K_FRAMES, "thread": layout.K_THREAD,
            "pg": layout.K_GROUP,
        }  # fmt: skip
        for name, lookup in self._nodes.items():
            columns[name] = lookup.column(rows[keys[name]], nodes)
        return DumpColumns({key: columns[key].astype(kind) for key, kind in ROW_DTYPES.items()})

    def threads_of(self, numbers: Int64s) -> Int32s:
        """Threads of one file in which several have calls: namesakes are "name", "name #2"."""
        found, first = np.unique(numbers, return_index=True)
        labels = {-1: -1}
        times: Counter[str] = Counter()
        for number in found[np.argsort(first)].tolist():
            if number < 0:
                continue
            text = clean_text(self.node_parts(number)[0])
            times[text] += 1
            labels[number] = self.shared.thread(text, times[text])
        return np.array([labels[number] for number in numbers.tolist()], np.int32)

    def top(self, pairs: Int64s) -> PlainDict:
        """What a dump holds beside torch's entries."""
        return {self.text(key): self.value(tag, value) for key, tag, value in pairs.tolist()}

    def text(self, number: int) -> str:
        """A string, read as on the general path."""
        text = self._texts.get(number)
        if text is None:
            at = layout.STRING_WIDTH * number
            start, length = self.memory.strings[at + 1 : at + 3].tolist()
            text = readable(self.memory.text[start : start + length].tobytes())
            self._texts[number] = text
        return text

    def value(self, tag: int, value: int) -> Any:  # noqa: ANN401 - whatever a dump holds
        """A value of the decoder as Python's. Containers are shared: nobody may change them."""
        if tag == layout.STRING:
            return self.text(value)
        if tag == layout.INT:
            return value
        if tag == layout.NODE:
            return self.node(value)
        if tag == layout.BOOL:
            return bool(value)
        return float(np.int64(value).view(np.float64)) if tag == layout.FLOAT else None

    def node(self, number: int) -> Any:  # noqa: ANN401 - whatever a dump holds
        """A container."""
        found = self._values.get(number)
        if found is None:
            kind, children = self.children(number)
            values = [self.value(tag, value) for tag, value in children]
            if kind == layout.DICT:
                found = {
                    key: value
                    for key, value in zip(values[::2], values[1::2], strict=True)
                    if isinstance(key, (str, int))
                }
            else:
                found = values if kind == layout.LIST else tuple(values)
            self._values[number] = found
        return found

    def children(self, number: int) -> tuple[int, list[list[int]]]:
        """Kind of a node, and (tag, value) of each child."""
        at = layout.NODE_WIDTH * number
        kind, start, length = self.memory.nodes[at + 1 : at + 4].tolist()
        end = start + layout.PAIR_WIDTH * length
        return kind, self.memory.children[start:end].reshape(-1, layout.PAIR_WIDTH).tolist()

    def _name(self, number: int) -> int:
        return self.shared.names[clean_text(self.text(number))]

    def _state(self, number: int) -> int:
        """A state, or -1 for an unknown word."""
        state = STATES.get(self.text(number))
        return -1 if state is None else int(state)

    def _group(self, number: int) -> int:
        """A pair of name and description, or -1 for what is none."""
        pair = self.node(number)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:  # noqa: PLR2004 - a pair
            return -1
        return self.shared.groups[clean_text(pair[0]), clean_text(pair[1])]

    def _thread(self, number: int) -> int:
        return self.shared.thread(clean_text(self.node_parts(number)[0]), 1)

    def _stack(self, number: int) -> int:
        kind, children = self.children(number)
        if kind not in (layout.LIST, layout.TUPLE):
            return -1
        return self.shared.numbered_stack(self._frame(*c) for c in children[:MAX_FRAMES])

    def _frame(self, tag: int, value: int) -> int:
        if tag != layout.NODE:
            return self.shared.frames[clean_frame(None)]
        found = self._frames.get(value)
        if found is None:
            found = self._frames[value] = self.shared.frames[clean_frame(self.node(value))]
        return found

    def _signature(self, number: int) -> int:
        inputs, outputs, kinds, out_kinds = self.node_parts(number)
        return self.shared.signatures[
            Signature(
                clean_shapes(inputs),
                clean_shapes(outputs),
                clean_dtypes(kinds),
                clean_dtypes(out_kinds),
            )
        ]

    def node_parts(self, number: int) -> list[Any]:
        """The children of a node of our own making, as Python's values."""
        return [self.value(tag, value) for tag, value in self.children(number)[1]]
