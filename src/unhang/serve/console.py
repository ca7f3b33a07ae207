"""The console: a statement in SQL, its answer as a table or as CSV, and what can be asked."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from unhang.reports.html import text_of
from unhang.serve.pages import framed, table_of
from unhang.wording import printable

_EXAMPLE = "SELECT op, count(*) AS calls FROM calls GROUP BY op ORDER BY calls DESC"
_EXAMPLES = (
    "SELECT rank, max(seq) AS last FROM calls GROUP BY rank ORDER BY last, rank",
    "SELECT rank, seq, op, state FROM calls WHERE state <> 'completed' ORDER BY rank, seq",
    _EXAMPLE,
)
"""Each is run by a test."""


def console_page(
    key: str, sql: str, names: Sequence[str], rows: Sequence[Sequence[object]], said: str
) -> str:
    """A statement and what it gave.

    Args:
        key: Of the case.
        sql: What was asked, or "".
        names: Columns.
        rows: Of the answer.
        said: Why there is none, or what was cut.
    """
    return framed("SQL", _console_lines(key, sql, names, rows, said))


def _console_lines(
    key: str, sql: str, names: Sequence[str], rows: Sequence[Sequence[object]], said: str
) -> Iterator[str]:
    yield f'<p><a href="/case/{key}/">the case</a></p>'
    yield f'<form action="/case/{key}/sql" method="post"><p><label>One reading statement:<br>'
    yield f'<textarea name="sql" rows="5" cols="90">{text_of(sql or _EXAMPLE)}</textarea></label>'
    yield '</p><p><button type="submit">ask</button> '
    yield '<button type="submit" name="as" value="csv">as CSV</button></p></form>'
    if said:
        yield f'<p role="status">{text_of(said)}</p>'
    if not names:
        yield from _examples()
    if names:
        cells = ([text_of(printable(str(value), 300)) for value in row] for row in rows)
        yield from table_of(names, cells)


def csv_of(names: Sequence[str], rows: Sequence[Sequence[object]], said: str) -> str:
    """An answer as CSV; what was cut is a last line that begins with "#"."""
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(names)
    lines.writerows(rows)
    return text.getvalue() + (f"# {said}\r\n" if said else "")


def _examples() -> Iterator[str]:
    """Statements that can be copied, and what there is to ask."""
    from unhang.tables.schema import TABLES, VIEWS

    yield "<h2>For example</h2>"
    yield from (f"<pre>{text_of(sql)}</pre>" for sql in _EXAMPLES)
    yield "<h2>Tables</h2>"
    rows = (
        (
            f"<code>{text_of(table.name)}</code>",
            text_of(table.meaning),
            text_of(", ".join(column.name for column in table.columns)),
        )
        for table in (*TABLES, *VIEWS)
    )
    yield from table_of(("table", "holds", "columns"), rows, "tables")
