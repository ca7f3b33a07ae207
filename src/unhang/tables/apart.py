"""Ask tables in a process of its own, with an end to its memory and a deadline on the clock.

Whatever a stranger's tables or SQL make the engine do, it is that process which it happens to:
`unhang.tables.asked`, started isolated and ended here.
"""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final

import msgspec

from unhang.errors import InputError, UsageError
from unhang.isolated import python_command
from unhang.tables.database import engine
from unhang.tables.query import (
    OPEN_S,
    QUERY_S,
    QueryResult,
    is_parquet_dir,
    memory_limit,
    too_long,
    too_much,
)
from unhang.tables.wire import HEAD, MOST_BYTES, OPENED, decoded

_LATE_S: Final = 5.0
"""For the engine's own clock to strike first, which ends a query with the better sentence."""
_PIECE: Final = 64 << 10


@contextmanager
def asking(path: Path, sql: str, time_limit_s: float = QUERY_S) -> Iterator[QueryResult]:
    """Run one reading statement on a DuckDB file, or on a directory of Parquet files.

    Args:
        path: As `write_database` or `write_parquet` wrote it, or another program.
        sql: The statement.
        time_limit_s: How long the engine may work on it.

    Yields:
        The answer; its rows come while they are read, and no longer than this lasts.

    Raises:
        InputError: There are no tables of ours.
        MissingExtraError: DuckDB is not installed.
        UsageError: The SQL is wrong, would do anything but read, or takes more time or memory than
            it may; also while rows are read.
    """
    if find_spec("duckdb") is None:
        engine()  # says so
    order = {
        "path": str(path.absolute()),
        "parquet": is_parquet_dir(path),
        "sql": sql,
        "seconds": float(time_limit_s),
        "memory": memory_limit(),
    }
    with subprocess.Popen(  # noqa: S603 - our own module
        python_command("unhang.tables.asked"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},  # one a thread takes 64 MiB of addresses
    ) as process:
        try:
            assert process.stdin is not None  # noqa: S101 - we asked for pipes
            assert process.stdout is not None  # noqa: S101 - the same
            with suppress(BrokenPipeError), process.stdin as pipe:  # it says so by its silence
                pipe.write(msgspec.msgpack.encode(order))
            messages = _messages(_Pipe(process.stdout, OPEN_S + _LATE_S), time_limit_s)
            head = next(messages)
            yield QueryResult(tuple(head["names"]), tuple(head["types"]), _rows(messages))
        finally:
            process.kill()


@dataclass(slots=True)
class _Pipe:
    """What a process writes, with an end to waiting for it; time between the waits is free."""

    stream: IO[bytes]
    left_s: float
    held: bytes = b""

    def take(self, size: int) -> bytes:
        """So many bytes; fewer at the end.

        Raises:
            TimeoutError: They do not come in time.
        """
        pieces = [self.held]
        have = len(self.held)
        while have < size and (piece := self._piece()):
            pieces.append(piece)
            have += len(piece)
        data = b"".join(pieces)
        self.held = data[size:]
        return data[:size]

    def _piece(self) -> bytes:
        begun = monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.stream, selectors.EVENT_READ)
            ready = selector.select(max(self.left_s, 0.0))
        self.left_s -= monotonic() - begun
        if not ready:
            raise TimeoutError
        return os.read(self.stream.fileno(), _PIECE)


def _messages(pipe: _Pipe, time_limit_s: float) -> Iterator[Any]:
    """The messages after the tables are open; a refusal is raised."""
    try:
        while True:
            head = pipe.take(HEAD.size)
            size = HEAD.unpack(head)[0] if len(head) == HEAD.size else MOST_BYTES + 1
            data = pipe.take(size) if size <= MOST_BYTES else b""
            if size > MOST_BYTES or len(data) < size:
                raise too_much()  # It is out of memory, or the system has ended it for that.
            message = decoded(data)
            if message == OPENED:
                pipe.left_s = time_limit_s + _LATE_S
            elif isinstance(message, dict) and "refused" in message:
                kind = UsageError if message["wrong_use"] else InputError
                raise kind(message["refused"], message["hint"])
            else:
                yield message
    except TimeoutError:
        raise too_long(time_limit_s) from None


def _rows(messages: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    for message in messages:
        if message is None:
            return
        yield tuple(message)
