"""The tables of a case: every column with its type and its meaning, in one place: `schema.txt`.

The DDL, the columns that are filled, docs/tables.md and the tests all come from there. Units stand
in the names (`_ns`, `_ms`, `_s`); NULL always means "not known". It refuses to hold data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

SCHEMA = "unhang.tables/1"

_TABLE = re.compile(r"(table|view) (\w+): (.+)")
_COLUMN = re.compile(r"(\w+) ([A-Z]+(?:\[\])*)(?: (-?\d+))?: (.+)")


class Column(NamedTuple):
    """One column.

    Attributes:
        absent: The number that stands for "not known" in the case's numpy column, or None.
    """

    name: str
    type: str
    meaning: str
    absent: int | None = None


class Table(NamedTuple):
    """One table or view."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


def read_schema(text: str) -> Iterator[tuple[str, Table]]:
    """Each table, as what it stands there: "table" or "view".

    Raises:
        ValueError: A line is of no such form, or names a column that the first part lacks.
    """
    first, *rest = text.replace("\n    ", " ").split("\n\n")[1:]
    shared = {column.name: column for column in _columns(first, {})}
    for part in rest:
        head, _, lines = part.partition("\n")
        found = _TABLE.fullmatch(head)
        if found is None:
            raise ValueError(f"no table or view: {head}")
        yield found[1], Table(found[2], found[3], tuple(_columns(lines, shared)))


def _columns(lines: str, shared: dict[str, Column]) -> Iterator[Column]:
    for line in lines.splitlines():
        if found := _COLUMN.fullmatch(line):
            name, kind, absent, meaning = found.groups()
            yield Column(name, kind, meaning, None if absent is None else int(absent))
        elif (names := line.split(", ")) and shared.keys() >= set(names):
            yield from (shared[name] for name in names)
        else:
            raise ValueError(f"no column: {line}")


_ALL = tuple(read_schema(files(__package__).joinpath("schema.txt").read_text(encoding="utf-8")))
TABLES = tuple(table for kind, table in _ALL if kind == "table")
VIEWS = tuple(table for kind, table in _ALL if kind == "view")
BY_NAME = {table.name: table for table in TABLES}
