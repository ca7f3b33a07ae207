"""Ask the tables in SQL, without any way out: no writes, no files, no network, no extensions.

The database may come from a stranger and the SQL from a script: a statement that does anything but
read is refused before it runs, and the engine itself is locked as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unhang.errors import InputError, UsageError
from unhang.tables.database import create_views
from unhang.tables.schema import SCHEMA, TABLES
from unhang.wording import printable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Answer", "ask", "is_parquet_dir", "lock", "open_database", "open_parquet"]

_HINT = "unhang query PATH lists the tables; docs/tables.md explains every column."


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query returns: names and database types of the columns, and the rows to be read."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


def lock(connection: DuckDBPyConnection) -> DuckDBPyConnection:
    """Close every way out of the engine, for good, and return the connection."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def open_database(path: Path) -> DuckDBPyConnection:
    """Open a file that `diagnose --db` wrote, read-only and locked.

    Raises:
        InputError: If it is no such file.
    """
    import duckdb

    config = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    try:
        connection = duckdb.connect(str(path), read_only=True, config=config)
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
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        for table in TABLES:
            file = str(path / f"{table.name}.parquet")
            connection.read_parquet(file).create(table.name)
    except duckdb.Error as error:
        raise InputError(
            f"{path} is no complete set of tables: {_first_line(error)}",
            "Make one with: unhang diagnose DUMPS --parquet DIR",
        ) from error
    create_views(connection)
    return _checked(lock(connection), path)


def _checked(connection: DuckDBPyConnection, path: Path) -> DuckDBPyConnection:
    import duckdb

    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    except duckdb.Error:
        row = None
    if row is None or str(row[0]).split("/")[0] != SCHEMA.split("/")[0]:
        raise InputError(
            f"{path} holds no tables of unhang",
            "Make them with: unhang diagnose DUMPS --db out.duckdb",
        )
    return connection


def ask(connection: DuckDBPyConnection, sql: str) -> Answer:
    """Run one reading statement.

    Raises:
        UsageError: If it is wrong, is not exactly one, or would do anything but read.
    """
    import duckdb

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
        cursor = connection.execute(statements[0])
        described = cursor.description or []
    except duckdb.Error as error:
        raise UsageError(f"the SQL is wrong: {_first_line(error)}", _HINT) from error
    return Answer(
        tuple(str(column[0]) for column in described),
        tuple(str(column[1]) for column in described),
        _rows(cursor),
    )


def _rows(cursor: DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    import duckdb

    try:
        while rows := cursor.fetchmany(10_000):
            yield from rows
    except duckdb.Error as error:
        raise UsageError(f"the query failed: {_first_line(error)}", _HINT) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return printable(lines[0], 300) if lines else type(error).__name__
