"""Fill a DuckDB database from a case, and write it as one file or as Parquet.

Nothing that exists is overwritten unless that is asked for, and a file appears whole or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unhang._version import __version__
from unhang.case import Case
from unhang.casedir.reports import keep_private
from unhang.errors import MissingExtraError, OutputError
from unhang.report import Report
from unhang.tables.collectives import collective_columns, collective_ids
from unhang.tables.columns import Coded, Columns, call_chunks, small_tables
from unhang.tables.schema import TABLES, VIEWS, Column, Table
from unhang.wording import printable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["connect", "create_views", "engine", "write_database", "write_parquet"]


def engine() -> Any:  # noqa: ANN401 - a module
    """DuckDB, which is an optional dependency.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError("Asking in SQL, and writing tables,", "sql") from error
    return duckdb


def connect(
    case: Case, report: Report | None = None, path: Path | None = None
) -> DuckDBPyConnection:
    """Return a connection to a database that holds the case.

    Args:
        case: What was read.
        report: The verdict; without it `findings` and the words of `ranks` stay empty.
        path: File of the database, which must not exist; None for memory.
    """
    connection: DuckDBPyConnection = engine().connect(str(path or ":memory:"), config=_CONFIG)
    for table in TABLES:
        connection.execute(_ddl(table))
    for name, columns in small_tables(case, report, __version__).items():
        _insert(connection, name, columns)
    ids = collective_ids(case)
    for chunk in call_chunks(case, ids):
        _insert(connection, "calls", chunk)
    _insert(connection, "collectives", collective_columns(case, ids))
    create_views(connection)
    return connection


_CONFIG = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def create_views(connection: DuckDBPyConnection) -> None:
    """Create the views, each from its own .sql file."""
    for view in VIEWS:
        connection.execute(_sql(f"views/{view.name}.sql"))


def _sql(name: str) -> str:
    return files("unhang.tables").joinpath(name).read_text(encoding="utf-8")


def _ddl(table: Table) -> str:
    columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
    return f"CREATE TABLE {table.name} ({columns})"


def _insert(connection: DuckDBPyConnection, name: str, columns: Columns) -> None:
    """Insert columns; what the case writes as "not known" becomes NULL."""
    table = next(table for table in TABLES if table.name == name)
    coded = {key: each for key, each in columns.items() if isinstance(each, Coded)}
    plain = {key: coded[key].numbers if key in coded else each for key, each in columns.items()}
    if len(next(iter(plain.values()))) == 0:
        return
    texts = {f"of_{key}": each.texts.tolist() for key, each in coded.items()}
    wanted = ", ".join(_expression(column, columns) for column in table.columns)
    connection.register("incoming", plain)
    connection.execute(f"INSERT INTO {name} SELECT {wanted} FROM incoming", texts)  # noqa: S608 - our names
    connection.unregister("incoming")


def _expression(column: Column, columns: Columns) -> str:
    values, quoted = columns[column.name], f'"{column.name}"'
    if isinstance(values, Coded):
        return f"list_extract($of_{column.name}, {quoted} + 1)"
    if values.dtype == np.float64:
        quoted = f"CASE WHEN isnan({quoted}) THEN NULL ELSE {quoted} END"
    if column.absent is not None:
        quoted = f"nullif({quoted}, {column.absent})"
    return f"TRY_CAST({quoted} AS {column.type})"


def write_database(case: Case, report: Report | None, path: str, *, force: bool = False) -> None:
    """Write the tables as one DuckDB file.

    Raises:
        OutputError: If the file exists and `force` is not given, or if it cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise OutputError(f"{path} is a directory", "Name a file in it, like out.duckdb.")
    if target.exists() and not force:
        raise OutputError(f"{path} is there already", "Name another file, or add --force.")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with _writing(path):
        try:
            connect(case, report, part).close()
            keep_private(part, target)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
            part.with_name(part.name + ".wal").unlink(missing_ok=True)


def write_parquet(case: Case, report: Report | None, path: str, *, force: bool = False) -> None:
    """Write the tables as one Parquet file each into a directory.

    Raises:
        OutputError: If the directory holds anything and `force` is not given, or if it cannot be
            written.
    """
    target = Path(path)
    if target.exists() and not target.is_dir():
        raise OutputError(f"{path} is not a directory", "Name a new or empty directory.")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise OutputError(f"{path} is not empty", "Name a new directory, or add --force.")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with _writing(path):
        try:
            part.mkdir(parents=True)
            with connect(case, report) as connection:
                for table in TABLES:
                    file = str(part / f"{table.name}.parquet")
                    connection.table(table.name).write_parquet(file, compression="zstd")
            keep_private(part, target)
            target.mkdir(mode=part.stat().st_mode & 0o777, parents=True, exist_ok=True)
            for table in TABLES:
                (part / f"{table.name}.parquet").replace(target / f"{table.name}.parquet")
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Turn what can go wrong on a disk into an OutputError about `path`."""
    duckdb = engine()
    try:
        yield
    except (OSError, duckdb.IOException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OutputError(
            f"{path} cannot be written: {printable(why.splitlines()[0], 200)}",
            "Name another place.",
        ) from error
