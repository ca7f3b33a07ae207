"""Drive the compiled decoder over many files: batches, threads, and what to do with the rest.

Threads only read and decode; their results are translated in the order of the files, so that the
case comes out the same each time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np

from unhang.ingest.columns.decoded import BadDump, Decoded, DumpColumns
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.normalise import describe, finish, own_entries
from unhang.ingest.columns.rows import work_of
from unhang.ingest.discover.archives import MAX_FILE_BYTES
from unhang.ingest.discover.sniff import FileKind, kind_of
from unhang.ingest.discover.sources import Source
from unhang.ingest.fast import layout
from unhang.ingest.fast.layout import Bytes, Int64s
from unhang.ingest.fast.memory import Batch, Memory
from unhang.ingest.fast.translate import Translator

__all__ = ["FastReader"]

_BATCH_BYTES = 4 << 20
_BATCH_FILES = 2048
_MAX_THREADS = 8


@dataclass(slots=True)
class _Work:
    """One batch on its way: its files, and what a thread made of them."""

    sources: list[Source]
    translator: Translator
    batch: Batch


@dataclass(slots=True)
class FastReader:
    """Decodes the files of one case."""

    shared: Dictionaries
    threads: int = field(default_factory=lambda: min(_cores(), _MAX_THREADS))

    def read(self, sources: Sequence[Source]) -> Iterator[list[tuple[Source, Decoded | None]]]:
        """Read files, in their order, batch by batch; None for those left to the general path."""
        free: SimpleQueue[Translator] = SimpleQueue()
        for _ in range(self.threads):
            free.put(Translator(Memory(), self.shared))
        waiting: deque[Future[_Work]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            for batch in _batches(sources):
                waiting.append(pool.submit(_decode, batch, free))
                if len(waiting) > 2 * self.threads:
                    yield self.finished(waiting.popleft().result())
            while waiting:
                yield self.finished(waiting.popleft().result())

    def finished(self, work: _Work) -> list[tuple[Source, Decoded | None]]:
        """Translate a batch."""
        try:
            _leave_out_bombs(work)
            table = work.translator.table(work.batch)
        except (BadDump, RecursionError, TypeError, ValueError):
            return [(source, None) for source in work.sources]
        several = _with_several_threads(work.batch)
        found: list[tuple[Source, Decoded | None]] = []
        for index, source in enumerate(work.sources):
            status = int(work.batch.outcome[index, 0])
            decoded = None
            if status != layout.UNUSUAL:
                decoded = self.one(work, index, table, several=bool(several[index]))
            found.append((source, decoded))
        work.translator.memory.take_back(work.batch)
        return found

    def one(self, work: _Work, index: int, table: DumpColumns, *, several: bool) -> Decoded | None:
        """One file of a batch; None where the general path has to look at it."""
        status, start, stop, first, end = work.batch.outcome[index].tolist()
        strange = any((table.columns[key][start:stop] < 0).any() for key in ("state", "pg"))
        if strange or (status == layout.CUT and start == stop and first == end):
            return None
        try:
            top = work.translator.top(work.batch.tops[first:end])
            decoded = describe(top, self.shared.memberships)
            decoded.table, decoded.start, decoded.stop = table, start, stop
            if several:
                numbers = work.batch.rows[layout.K_THREAD, start:stop]
                table.columns["thread"][start:stop] = work.translator.threads_of(numbers)
            if not _is_dump(top, stop - start):
                return None
            finish(decoded, own_entries(top), self.shared, work.sources[index].size)
        except (BadDump, RecursionError):
            return None
        decoded.truncated = status == layout.CUT
        return None if decoded.truncated and not decoded.tells_of_calls else decoded


def _leave_out_bombs(work: _Work) -> None:
    """Make files unusual that refer to the same lists again and again."""
    rows = work.batch.rows
    sums = np.concatenate(([0], np.cumsum(work.translator.elements(work.batch))))
    for source, outcome in zip(work.sources, work.batch.outcome, strict=True):
        start, stop = outcome[1:3].tolist()
        if sums[stop] - sums[start] > work_of(source.size):
            outcome[0] = layout.UNUSUAL
            rows[[layout.K_SIGNATURE, layout.K_FRAMES], start:stop] = -1


def _is_dump(top: dict[str, object], rows: int) -> bool:
    """Whether this is surely a dump; the general path has the last word on what is not."""
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


def _decode(sources: list[Source], free: SimpleQueue[Translator]) -> _Work:
    """Read and decode a batch: a thread's work, most of it without the interpreter's lock."""
    translator = free.get()
    try:
        buffer = translator.memory.empty_buffer(sum(_size_of(source) for source in sources))
        batch = translator.memory.decode(buffer, _fill(buffer, sources))
    finally:
        free.put(translator)
    return _Work(sources, translator, batch)


def _size_of(source: Source) -> int:
    return source.size if source.size <= MAX_FILE_BYTES else 0


def _fill(buffer: Bytes, sources: list[Source]) -> Int64s:
    """Read the files behind each other; nothing of one that changed, or is no pickle.

    Returns:
        Where each file begins in the buffer, and where the last one ends.
    """
    view = buffer.data
    bounds = [0]
    for source in sources:
        start = bounds[-1]
        got = _read_into(view[start : start + _size_of(source)], source)
        bounds.append(start + got)
    return np.array(bounds, np.int64)


def _read_into(view: memoryview, source: Source) -> int:
    try:
        file = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        if (
            os.fstat(file).st_size != len(view)
            or kind_of(os.pread(file, 2, 0)) is not FileKind.PICKLE
        ):
            return 0
        done = 0
        while done < len(view) and (got := os.readv(file, [view[done:]])):
            done += got
    except OSError:
        return 0
    else:
        return done if done == len(view) else 0
    finally:
        os.close(file)


def _with_several_threads(batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each file of a batch whether its calls were made by more than one thread."""
    several = np.zeros(len(batch.outcome), np.bool_)
    starts, stops = batch.outcome[:, 1], batch.outcome[:, 2]
    filled = np.flatnonzero(stops > starts)
    if len(filled):
        numbers = batch.rows[layout.K_THREAD]
        lowest = np.minimum.reduceat(numbers, starts[filled])
        highest = np.maximum.reduceat(numbers, starts[filled])
        several[filled] = lowest != highest
    return several
