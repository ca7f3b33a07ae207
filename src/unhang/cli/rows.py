"""Printing rows for people and programs: a table that fits, CSV, or JSON.

What goes to a program is complete and exact; what goes to a terminal is made printable.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from unhang.reports.look import Look
from unhang.wording import printable

__all__ = ["MAX_CELL", "csv_lines", "draw_table", "json_lines"]

MAX_CELL = 2000


def json_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a JSON array, a record a line, without holding all of them."""
    yield "["
    before = ""
    for record in records:
        text = json.dumps(_plain(record), allow_nan=False, default=str)
        yield f"{before}\n{text}"
        before = ","
    yield "\n]\n"


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a database
    """Turn what JSON has no word for into what it has."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def csv_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield CSV with a head; lists as JSON, NULL as nothing."""
    yield _csv_line(names)
    for row in rows:
        yield _csv_line([_csv_cell(value) for value in row])


def _csv_line(row: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()


def _csv_cell(value: Any) -> Any:  # noqa: ANN401 - any value of a database
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(_plain(value), default=str)
    return value


def draw_table(
    names: Sequence[str], rows: Iterable[Sequence[Any]], look: Look, limit: int = 0
) -> str:
    """Return rows as a table that keeps the page's width; `limit` rows at most, 0 for all."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from unhang.reports.paint import paint, to_ascii

    def text(value: Any) -> Text:  # noqa: ANN401 - any value of a database
        words = "" if value is None else printable(str(value), MAX_CELL)
        return Text(words if look.unicode else to_ascii(words))

    table = Table(
        box=box.SIMPLE_HEAD if look.unicode else box.ASCII2, show_edge=False, pad_edge=False
    )
    for name in names:
        table.add_column(text(name), overflow="fold")
    source = iter(rows)
    for row in islice(source, limit) if limit else source:
        table.add_row(*map(text, row))
    page = paint(table, look)
    if limit and next(source, None) is not None:
        page += f"... and more: these are the first {limit:,} rows (--limit 0 shows all)\n"
    return page
