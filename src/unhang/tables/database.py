"""Fill a DuckDB database from a case, and write it as one file or as Parquet.

Nothing that exists is overwritten unless that is asked for, and a file appears whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unhang._version import __version__
from unhang.case import Case
from unhang.casedir.reports import keep_private
from unhang.errors import MissingExtraError, OutputError
from unhang.report import Report
from unhang.tables.calls import (
    CallColumns,
    Coded,
    alike_columns,
    call_columns,
    call_texts,
    same_columns,
)
from unhang.tables.collectives import collective_columns, collective_ids
from unhang.tables.columns import small_tables
from unhang.tables.schema import BY_NAME, TABLES, VIEWS, Column, Table
from unhang.wording import printable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Judged: TypeAlias = Report | Callable[[], Report] | None
"""A verdict, what waits for one, or none."""


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


def engine_soon() -> None:
    """Load DuckDB next to the work that comes before the tables: it takes a tenth of a second.

    Raises:
        MissingExtraError: It is not installed.
    """
    if find_spec("duckdb") is None:
        engine()  # says so
    ThreadPoolExecutor(1).submit(engine)


def connect(case: Case, report: Judged = None, path: Path | None = None) -> DuckDBPyConnection:
    """Return a connection to a database that holds the case.

    Args:
        case: What was read.
        report: The verdict, or what waits for it and is asked once the calls are in; without it
            `findings` and the words of `ranks` stay empty.
        path: File of the database, which must not exist; None for memory.
    """
    connection: DuckDBPyConnection = engine().connect(str(path or ":memory:"), config=_CONFIG)
    ids = collective_ids(case)
    connection.execute("; ".join(_ddl(table) for table in TABLES if table.name != "calls"))
    with ThreadPoolExecutor(1) as other:  # numpy sorts there while the engine inserts here
        collectives = other.submit(collective_columns, case, ids)
        _insert_calls(connection, case, ids)
        told = report() if callable(report) else report
        for name, columns in small_tables(case, told, __version__).items():
            _insert(connection, BY_NAME[name], columns)
        _insert(connection, BY_NAME["collectives"], collectives.result())
    create_views(connection)
    return connection


def _insert_calls(connection: DuckDBPyConnection, case: Case, ids: npt.NDArray[np.int64]) -> None:
    """Fill `calls`, the table that is large: a view of what the engine stores quickly.

    Strings are stored as ENUMs, which cost it a third of text. Columns in which all calls are alike
    are a row of their own: of most programs a third of all columns. Those that equal another one,
    like rank and dump where each rank left one, are that one.
    """
    texts, alike = call_texts(case), alike_columns(case, ids)
    for name, values in texts.items():
        _create_enum(connection, f"calls_{name}", values)
    columns = BY_NAME["calls"].columns
    stored = [c._replace(type=f"calls_{c.name}") if c.name in texts else c for c in columns]
    differ = [c for c in stored if c.name not in alike]
    same = same_columns(case, ids, differ)
    each = Table("calls_each", "", tuple(c for c in differ if c.name not in same))
    one = Table("calls_alike", "", tuple(c for c in stored if c.name in alike))
    connection.execute(_ddl(each, _RUNS))
    connection.execute("SET preserve_insertion_order = false")  # else one thread inserts them all
    for chunk in call_columns(case, ids, texts, [c.name for c in each.columns]):
        _insert(connection, each, chunk)
    connection.execute("RESET preserve_insertion_order")
    if alike:
        connection.execute(_ddl(one))
        _insert(connection, one, next(call_columns(case, ids, texts, alike, 1)))
    shown = ", ".join(f'"{same.get(c.name, c.name)}" AS "{c.name}"' for c in columns)
    _view(connection, _CODED, shown, "calls_each, calls_alike" if alike else "calls_each")
    shown = ", ".join(f'"{c.name}"::{c.type} AS "{c.name}"' for c in columns)
    _view(connection, "calls", shown, _CODED)


def _view(connection: DuckDBPyConnection, name: str, shown: str, where: str) -> None:
    connection.execute(f"CREATE VIEW {name} AS SELECT {shown} FROM {where}")  # noqa: S608 - our names


def _create_enum(connection: DuckDBPyConnection, name: str, values: npt.NDArray[Any]) -> None:
    given = "SELECT DISTINCT unnest($texts) AS text ORDER BY text"
    connection.execute(f"CREATE TYPE {name} AS ENUM ({given})", {"texts": values.tolist()})


_CODED = "calls_coded"
"""The calls with ENUMs for strings; Parquet has no such type, and gets strings."""

_RUNS = ("dump_id", "rank", "state", "retired")
"""Columns that stay the same for many calls: told so, the engine needs half of the time."""

_CONFIG = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def create_views(connection: DuckDBPyConnection) -> None:
    """Create the views, each from its own .sql file."""
    for view in VIEWS:
        connection.execute(_sql(f"views/{view.name}.sql"))


def _sql(name: str) -> str:
    return files("unhang.tables").joinpath(name).read_text(encoding="utf-8")


def _ddl(table: Table, runs: Collection[str] = ()) -> str:
    rle = dict.fromkeys(runs, " USING COMPRESSION rle")
    columns = ", ".join(f'"{c.name}" {c.type}{rle.get(c.name, "")}' for c in table.columns)
    return f"CREATE TABLE {table.name} ({columns})"


def _insert(connection: DuckDBPyConnection, table: Table, columns: CallColumns) -> None:
    """Insert columns; what the case writes as "not known" becomes NULL."""
    own = {column.name: columns[column.name] for column in table.columns}
    coded = {key: each for key, each in own.items() if isinstance(each, Coded)}
    plain = {key: coded[key].numbers if key in coded else each for key, each in own.items()}
    if len(next(iter(plain.values()))) == 0:
        return
    texts = {f"of_{key}": each.texts.tolist() for key, each in coded.items()}
    wanted = ", ".join(_expression(column, own) for column in table.columns)
    connection.register("incoming", plain)
    connection.execute(f"INSERT INTO {table.name} SELECT {wanted} FROM incoming", texts)  # noqa: S608 - our names
    connection.unregister("incoming")


def _expression(column: Column, columns: CallColumns) -> str:
    values, quoted = columns[column.name], f'"{column.name}"'
    if isinstance(values, Coded):
        return f"list_extract($of_{column.name}::{column.type}[], {quoted} + 1)"
    if values.dtype == np.float64:
        quoted = f"CASE WHEN isnan({quoted}) THEN NULL ELSE {quoted} END"
    if column.absent is not None:
        quoted = f"nullif({quoted}, {column.absent})"
    return f"TRY_CAST({quoted} AS {column.type})"


def write_database(case: Case, report: Judged, path: str, *, force: bool = False) -> None:
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


@contextmanager
def written(case: Case, report: Judged) -> Iterator[Path]:
    """The tables of a case as a file that no other user reads, and that is gone afterwards.

    Raises:
        OutputError: It cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="unhang-tables-") as folder:
        path = Path(folder) / "case.duckdb"
        write_database(case, report, str(path))
        yield path


def write_parquet(case: Case, report: Judged, path: str, *, force: bool = False) -> None:
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
                for name in (table.name for table in TABLES):
                    rows = connection.table(_CODED if name == "calls" else name)
                    rows.write_parquet(str(part / f"{name}.parquet"), compression="zstd")
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
