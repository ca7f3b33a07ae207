"""Query the tables of a case in SQL, read-only and without access to files.

PATH is a file that `unhang diagnose --db` wrote, a directory that `--parquet` wrote, or anything
that `unhang diagnose` reads. Without SQL the tables are listed; docs/tables.md explains them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.case_paths import add_reading_arguments, case_options, load_case
from unhang.cli.shared.output import add_look_arguments, look_of, look_options
from unhang.errors import UsageError

if TYPE_CHECKING:
    from unhang.tables import QueryResult

EXAMPLES = """unhang query dumps/ "FROM stuck_calls"
unhang query out.duckdb "SELECT op, count(*) AS calls FROM calls GROUP BY op ORDER BY calls DESC"
unhang query out.duckdb "FROM arrivals WHERE is_last" --format csv
unhang query out.duckdb"""

TABLE_LIMIT = 1000
_TIME_LIMIT_S = 60.0
_MOST_S = 7 * 24 * 3600.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang query`."""
    parser.add_argument("path", metavar="PATH", help="database, Parquet directory, or dumps")
    parser.add_argument("sql", nargs="?", metavar="SQL", help="one reading statement")
    add_reading_arguments(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=("table", "csv", "json"), default="table")
    output.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help=f"rows at most, 0 for all; default: {TABLE_LIMIT} in a table, else all",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=_TIME_LIMIT_S,
        metavar="S",
        help=f"time limit of the query (default: {_TIME_LIMIT_S:g})",
    )
    add_look_arguments(output)


def run(args: argparse.Namespace) -> int:
    """Open the tables, ask, print."""
    if args.limit is not None and args.limit < 0:
        raise UsageError(f"--limit {args.limit} is not a number of rows", "0 shows all.")
    if not 0 < args.time_limit <= _MOST_S:
        raise UsageError(f"--time-limit {args.time_limit:g} is not a time", "Seconds, above 0.")
    if args.sql is not None and not args.sql.strip():
        raise UsageError("the SQL is empty", "Leave it out to list the tables.")
    from unhang.tables import asking

    with (
        _tables(args) as path,
        asking(path, _LISTING if args.sql is None else args.sql, args.time_limit) as answer,
    ):
        _print(answer, args)
    return 0


_LISTING = """
SELECT t.name, t.kind, string_agg(c.column_name, ', ' ORDER BY c.column_index) AS columns
FROM (
    SELECT table_name AS name, 'table' AS kind FROM duckdb_tables() WHERE NOT internal
    UNION ALL SELECT view_name, 'view' FROM duckdb_views() WHERE NOT internal
) t
JOIN duckdb_columns() c ON c.table_name = t.name
GROUP BY t.name, t.kind
ORDER BY t.kind, t.name
"""


@contextmanager
def _tables(args: argparse.Namespace) -> Iterator[Path]:
    """Where the tables are; those of dumps are written for as long as they are asked."""
    from unhang import tables

    path = Path(args.path)
    if (path.is_dir() and tables.is_parquet_dir(path)) or (path.is_file() and _is_database(path)):
        yield path
    else:
        from unhang.analysis import diagnose

        case = load_case(case_options(args, [args.path]))
        with tables.written(case, diagnose(case)) as made:
            yield made


def _is_database(path: Path) -> bool:
    """DuckDB files carry "DUCK" behind the checksum of their first block."""
    if path.suffix in (".duckdb", ".ddb"):
        return True
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError:
        return False


def _print(answer: QueryResult, args: argparse.Namespace) -> None:
    from itertools import islice

    from unhang.cli.shared.listing import csv_lines, draw_table, json_lines

    if args.format == "table":
        limit = TABLE_LIMIT if args.limit is None else args.limit
        look = look_of(look_options(args), sys.stdout, os.environ)
        sys.stdout.write(draw_table(answer.names, answer.rows, look, limit))
        return
    rows = islice(answer.rows, args.limit) if args.limit else answer.rows
    if args.format == "csv":
        sys.stdout.writelines(csv_lines(answer.names, rows))
    else:
        records = (dict(zip(answer.names, row, strict=True)) for row in rows)
        sys.stdout.writelines(json_lines(records))
