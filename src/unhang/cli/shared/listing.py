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

MAX_CELL = 2000
_ENOUGH, _GAP = 24, 3


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
    """Return rows for people: as a table, or as a list of fields where a table would not fit.

    Args:
        names: Heads of the columns.
        rows: What is in them.
        look: What the page may use.
        limit: Rows at most; 0 for all. What is left out is said.
    """
    from unhang.reports.paint import to_ascii

    def text(value: Any) -> str:  # noqa: ANN401 - any value of a database
        words = "" if value is None else printable(str(value), MAX_CELL)
        return words if look.unicode else to_ascii(words)

    source = iter(rows)
    cells = [[*map(text, row)] for row in (islice(source, limit) if limit else source)]
    heads = [*map(text, names)]
    page = (_as_table if _fits(heads, cells, look.width) else _as_fields)(heads, cells, look)
    if limit and next(source, None) is not None:
        page += f"... and more: these are the first {limit:,} rows (--limit 0 shows all)\n"
    return page


def _fits(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> bool:
    """Whether every column gets room for its head and for most of its text."""
    wanted = 0
    for place, head in enumerate(heads):
        widest = max((len(row[place]) for row in cells), default=0)
        wanted += max(len(head), min(widest, _ENOUGH)) + _GAP
    return wanted - _GAP <= width


def _as_table(heads: Sequence[str], cells: Sequence[Sequence[str]], look: Look) -> str:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from unhang.reports.paint import paint

    style = box.SIMPLE_HEAD if look.unicode else box.ASCII2
    table = Table(box=style, show_edge=False, pad_edge=False)
    for place, head in enumerate(heads):
        widest = max((len(row[place]) for row in cells), default=0)
        least = max(len(head), min(widest, _ENOUGH))
        table.add_column(Text(head), overflow="fold", min_width=least)
    for row in cells:
        table.add_row(*map(Text, row))
    return paint(table, look)


def _as_fields(heads: Sequence[str], cells: Sequence[Sequence[str]], look: Look) -> str:
    """A field a line, an empty line between rows."""
    from rich.table import Table
    from rich.text import Text

    from unhang.reports.paint import paint

    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for number, row in enumerate(cells):
        if number:
            table.add_row("", "")
        for head, cell in zip(heads, row, strict=True):
            table.add_row(Text(head, style="dim"), Text(cell))
    return paint(table, look)
