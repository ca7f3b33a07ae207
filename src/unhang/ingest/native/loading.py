"""Drive the compiled decoder over many files: batches, the case's columns, and the rest.

The library's threads read, decode and write without the interpreter's lock. What is new in a batch
is numbered in between, in the order of the files, so that the case comes out the same each time.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unhang.ingest.columns.decoded import ROW_DTYPES, BadDump, Decoded, DumpColumns, PlainDict
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.normalise import describe, finish, own_entries
from unhang.ingest.discover.sniff import MAX_FILE_BYTES
from unhang.ingest.discover.sources import Source
from unhang.ingest.native import library as native
from unhang.ingest.native.library import Int32s, Int64s, Library
from unhang.ingest.native.translate import Translator
from unhang.model import Note

Found = tuple[Source, Decoded | None]

_BATCH_BYTES = 32 << 20
_BATCH_FILES = 4096
_MAX_THREADS = 16
_SLOW = 8 << 20
"""Bytes of dumps that the Python reader takes a second for."""

_SPARE = 1.05
"""More rows than those of the first batch let expect."""

_WRITTEN = tuple(key for key in ROW_DTYPES if key != "origin")
"""Columns that the library writes, in its order."""


def native_reader(size: int, shared: Dictionaries, notes: list[Note]) -> NativeReader | None:
    """A reader that decodes with the library; None where there is none.

    Args:
        size: Bytes of all dumps.
        shared: Receives names, stacks and so on.
        notes: Receives why reading is slow and what would help, where that is so.
    """
    library = native.found()
    if isinstance(library, Library):
        return NativeReader(shared, library, notes=notes)
    if size >= _SLOW:
        text = (
            f"the slow Python reader read the dumps, since {library}: a wheel for this platform, "
            "or an installation with Rust's cargo, is 100 times faster"
        )
        notes.append(Note("info", "reading", text))
    return None


@dataclass(slots=True)
class _Table:
    """Columns that are filled batch by batch; memory is taken where they are written."""

    columns: DumpColumns
    room: int
    used: int = 0

    @classmethod
    def of(cls, room: int) -> _Table:
        """A table with room for so many rows."""
        columns = {
            key: np.zeros(room, kind) if key == "origin" else np.empty(room, kind)
            for key, kind in ROW_DTYPES.items()
        }
        return cls(DumpColumns(columns), room)


class NativeReader:
    """Decodes the files of one case."""

    def __init__(
        self,
        shared: Dictionaries,
        library: Library,
        threads: int = 0,
        notes: list[Note] | None = None,
    ) -> None:
        self.shared = shared
        self.library = library
        self.notes = [] if notes is None else notes
        self._threads = threads or min(_cores(), _MAX_THREADS)
        self._reader = library.open(self._threads)
        weakref.finalize(self, library.close, self._reader)
        self._translators = [
            Translator(library, self._reader, index, shared) for index in range(self._threads)
        ]
        self._table = _Table.of(0)
        self._known: dict[tuple[int, bytes], tuple[PlainDict, Decoded]] = {}

    def read(self, sources: Sequence[Source]) -> Iterator[list[Found]]:
        """Read files, in their order, batch by batch; None for those left to the Python reader."""
        left = sum(source.size for source in sources)
        for batch in _batches(sources):
            size = sum(source.size for source in batch)
            yield self._batch(batch, size, left)
            left -= size

    def read_bytes(self, data: bytes) -> Decoded | None:
        """Read one file that lies in memory; None where it is left to the Python reader."""
        outcomes = self.library.decode_bytes(self._reader, data)
        start = -1 if outcomes is None else self._written(outcomes, 1)
        if outcomes is None or start < 0:
            return None
        return self._one(len(data), outcomes[0].tolist(), start + int(outcomes[0, 3]))

    def _batch(self, sources: list[Source], size: int, left: int) -> list[Found]:
        paths = [os.fsencode(source.path) for source in sources]
        sizes = [source.size if source.size <= MAX_FILE_BYTES else 0 for source in sources]
        outcomes = self.library.decode(self._reader, paths, sizes)
        start = -1 if outcomes is None else self._written(outcomes, left / max(size, 1))
        if outcomes is None or start < 0:
            self.notes.append(Note("warning", "reading", "the compiled decoder failed on a batch"))
            return [(source, None) for source in sources]
        stops = (start + np.cumsum(outcomes[:, 3])).tolist()
        return [
            (source, self._one(source.size, outcome, stop))
            for source, outcome, stop in zip(sources, outcomes.tolist(), stops, strict=True)
        ]

    def _written(self, outcomes: Int64s, share: float) -> int:
        """Write the rows of a batch behind those before; returns where they begin, or -1.

        Args:
            outcomes: Of the batch.
            share: How many such batches are left, this one included.
        """
        rows = int(outcomes[:, 3].sum())
        tables: list[Int32s] = []
        for index, translator in enumerate(self._translators):
            translator.look()
            tables += translator.tables(outcomes[outcomes[:, 1] == index])
        if self._table.used + rows > self._table.room:
            self._table = _Table.of(rows + int(rows * share * _SPARE))
        start = self._table.used
        columns = [self._table.columns.columns[key][start : start + rows] for key in _WRITTEN]
        if not self.library.write(self._reader, outcomes, columns, tables):
            return -1
        self._table.used += rows
        return start

    def _one(self, size: int, outcome: list[int], stop: int) -> Decoded | None:
        """One file of a batch; None where the Python reader has to look at it."""
        status, memory, _, rows, first, count, _, _, first_used, used = outcome
        if status == native.UNUSUAL or (status == native.CUT and not rows and not count):
            return None
        try:
            top, decoded = self._described(memory, first, count)
            decoded.table, decoded.start, decoded.stop = self._table.columns, stop - rows, stop
            decoded.used = self._translators[memory].used(first_used, used)
            if not _is_dump(top, rows):
                return None
            finish(decoded, own_entries(top), self.shared, size)
        except (BadDump, RecursionError):
            return None
        decoded.truncated = status == native.CUT
        return None if decoded.truncated and not decoded.tells_of_calls else decoded

    def _described(self, memory: int, first: int, count: int) -> tuple[PlainDict, Decoded]:
        """Everything of a dump but its entries, which ranks in step with each other say alike."""
        translator = self._translators[memory]
        key = memory, translator.key(first, count)
        if key not in self._known:
            top = translator.top(first, count)
            self._known[key] = top, describe(top, self.shared.memberships)
        top, decoded = self._known[key]
        return top, replace(decoded, remarks=[*decoded.remarks])


def _is_dump(top: dict[str, object], rows: int) -> bool:
    """Whether this is surely a dump; the Python reader has the last word on what is not."""
    return bool(rows) or "pg_config" in top or "pg_status" in top


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def _batches(sources: Sequence[Source]) -> Iterator[list[Source]]:
    batch: list[Source] = []
    size = 0
    for source in sources:
        batch.append(source)
        size += source.size
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
