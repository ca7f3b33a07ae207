"""Ask the tables in SQL, without any way out: no writes, no files, no network, no extensions.

The database may come from a stranger and the SQL from a script: a statement that does anything but
read is refused before it runs, and the engine itself is locked as well. Memory and time are bounded
for all that a stranger's tables or SQL make the engine do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn

from unhang.errors import InputError, UsageError
from unhang.tables.database import create_views, engine
from unhang.tables.schema import SCHEMA, TABLES
from unhang.wording import printable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

QUERY_S: Final = 60.0
"""How long a query may work, unless the user says otherwise."""

_MOST_MEMORY: Final = 4 << 30
OPEN_S: Final = 60.0
_HINT = "unhang query PATH lists the tables; docs/tables.md explains every column."


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What a query returns: names and database types of the columns, and the rows to be read."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


def lock(connection: DuckDBPyConnection) -> DuckDBPyConnection:
    """Close every way out of the engine and bound its memory, for good; return the connection.

    Raises:
        InputError: The tables that are in memory already need more than that.
    """
    import duckdb

    try:
        connection.execute("SET temp_directory = ''")
        connection.execute(f"SET memory_limit = '{memory_limit()}B'")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"the tables need more than {memory_limit() >> 20:,} MiB of memory",
            "Write them to a file and ask that: unhang diagnose PATH --db out.duckdb",
        ) from error
    return connection


def memory_limit() -> int:
    """Bytes for a query: 4 GiB, or half of what the machine has; 1 GiB where none can tell."""
    if not hasattr(os, "sysconf"):  # not on Windows
        return _MOST_MEMORY // 4
    return min(_MOST_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


_MOST_THREADS: Final = 8
"""Each takes address space for its stack, which is bounded where a query runs apart: on a node of
192 cores the stacks alone would take 1.5 GiB of it."""
_CONFIG: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": str(min(os.cpu_count() or 1, _MOST_THREADS)),
}


def open_database(path: Path) -> DuckDBPyConnection:
    """Open a file that `diagnose --db` wrote, read-only and locked.

    Raises:
        InputError: If it is no such file.
    """
    duckdb = engine()
    try:
        connection = duckdb.connect(
            str(path), read_only=True, config={**_CONFIG, "memory_limit": f"{memory_limit()}B"}
        )
    except duckdb.Error as error:
        raise InputError(
            f"{path} is no DuckDB file that can be read: {_first_line(error)}",
            "Make one with: unhang diagnose DUMPS --db out.duckdb",
        ) from error
    return _checked(lock(connection), path)


def is_parquet_dir(path: Path) -> bool:
    """Whether `diagnose --parquet` wrote this directory."""
    return (path / "meta.parquet").is_file() and (path / "calls.parquet").is_file()


def open_parquet(path: Path) -> DuckDBPyConnection:
    """Open a directory that `diagnose --parquet` wrote: read into memory, then locked.

    Raises:
        InputError: If a file is missing or cannot be read.
    """
    duckdb = engine()
    limits = {"memory_limit": f"{memory_limit()}B", "temp_directory": ""}
    connection = duckdb.connect(":memory:", config={**_CONFIG, **limits})
    try:
        with _Clock(connection, OPEN_S).running():
            for table in TABLES:
                file = str(path / f"{table.name}.parquet")
                connection.read_parquet(file).create(table.name)
            create_views(connection)
    except duckdb.Error as error:
        raise InputError(
            f"{path} is no complete set of tables: {_first_line(error)}",
            "Make one with: unhang diagnose DUMPS --parquet DIR",
        ) from error
    return _checked(lock(connection), path)


def _checked(connection: DuckDBPyConnection, path: Path) -> DuckDBPyConnection:
    import duckdb

    try:
        with _Clock(connection, OPEN_S).running():
            row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    except (duckdb.Error, MemoryError):
        row = None
    if row is None or str(row[0]).split("/")[0] != SCHEMA.split("/")[0]:
        raise InputError(
            f"{path} holds no tables of unhang",
            "Make them with: unhang diagnose DUMPS --db out.duckdb",
        )
    return connection


class _Clock:
    """Interrupts the engine when it has worked for so long; time between its steps is free."""

    def __init__(self, connection: DuckDBPyConnection, seconds: float) -> None:
        self.connection, self.seconds, self.left, self.struck = connection, seconds, seconds, False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around one step of the engine."""
        begun = monotonic()
        timer = threading.Timer(max(self.left, 0.0), self._strike)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.left -= monotonic() - begun

    def _strike(self) -> None:
        self.struck = True
        self.connection.interrupt()


def ask(connection: DuckDBPyConnection, sql: str, time_limit_s: float = QUERY_S) -> QueryResult:
    """Run one reading statement.

    Args:
        connection: As the functions above return it.
        sql: The statement.
        time_limit_s: How long the engine may work on it.

    Raises:
        UsageError: If it is wrong, is not exactly one, would do anything but read, or takes more
            time or memory than it may.
    """
    import duckdb

    clock = _Clock(connection, time_limit_s)
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise UsageError(f"one statement is needed, not {len(statements)}", _HINT)
        kind = statements[0].type.name
        if kind != "SELECT":
            raise UsageError(
                f"this is {kind}, and a query may only read",
                "SELECT, WITH, FROM, DESCRIBE, SHOW and SUMMARIZE are what it takes.",
            )
        with clock.running():
            cursor = connection.execute(statements[0])
        described = cursor.description or []
    except (duckdb.Error, MemoryError) as error:
        _refuse("the SQL is wrong", error, clock)
    return QueryResult(
        tuple(str(column[0]) for column in described),
        tuple(str(column[1]) for column in described),
        _rows(cursor, clock),
    )


def _rows(cursor: DuckDBPyConnection, clock: _Clock) -> Iterator[tuple[Any, ...]]:
    import duckdb

    try:
        while True:
            with clock.running():
                rows = cursor.fetchmany(10_000)
            if not rows:
                return
            yield from rows
    except (duckdb.Error, MemoryError) as error:
        _refuse("the query failed", error, clock)


def _refuse(what: str, error: Exception, clock: _Clock) -> NoReturn:
    """Say what the engine's error means to the user who asked."""
    import duckdb

    if clock.struck:
        raise too_long(clock.seconds) from error
    if isinstance(error, (duckdb.OutOfMemoryException, MemoryError)):
        raise too_much() from error
    raise UsageError(f"{what}: {_first_line(error)}", _HINT) from error


def too_long(seconds: float) -> UsageError:
    """What is said of a query that did not end in time."""
    return UsageError(
        f"the query took longer than {seconds:g} s",
        "Ask for less, or allow more: --time-limit SECONDS",
    )


def too_much() -> UsageError:
    """What is said of a query that needs more memory than it may have."""
    return UsageError(
        f"the query needs more than {memory_limit() >> 20:,} MiB of memory",
        "Ask for less: fewer columns, fewer rows, a LIMIT.",
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return printable(lines[0], 300) if lines else type(error).__name__
