"""A case as tables: DuckDB, Parquet, and SQL that can only read.

`schema` says what there is, `columns` makes it from a Case, `database` writes it, `query` asks it,
and `apart` has it asked in a process of its own.
"""

from __future__ import annotations

from unhang.tables.apart import asking
from unhang.tables.database import connect, engine_soon, write_database, write_parquet, written
from unhang.tables.query import QueryResult, ask, is_parquet_dir, lock, open_database, open_parquet
from unhang.tables.schema import SCHEMA, TABLES, VIEWS

__all__ = [
    "SCHEMA",
    "TABLES",
    "VIEWS",
    "QueryResult",
    "ask",
    "asking",
    "connect",
    "engine_soon",
    "is_parquet_dir",
    "lock",
    "open_database",
    "open_parquet",
    "write_database",
    "write_parquet",
    "written",
]
