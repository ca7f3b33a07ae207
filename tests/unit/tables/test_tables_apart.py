"""SQL runs in a process of its own, which may use so much memory and time and no more."""

from __future__ import annotations

import datetime as dt
import decimal
import sys
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pytest

from unhang.analysis import diagnose
from unhang.errors import InputError, UsageError
from unhang.ingest import load
from unhang.tables import apart, ask, asking, open_database, write_database, write_parquet
from unhang.tables.wire import HEAD, MOST_BYTES, decoded, framed

DUMPS = Path(__file__).parents[3] / "examples" / "never-joined-armed" / "dumps"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small case as a DuckDB file."""
    path = tmp_path_factory.mktemp("tables") / "case.duckdb"
    case = load([DUMPS])
    write_database(case, diagnose(case), str(path))
    return path


def rows(path: Path, sql: str, **more: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - as asking takes them
    """What a statement returns."""
    with asking(path, sql, **more) as answer:
        return list(answer.rows)


def test_an_answer_is_the_one_of_the_engine_here(database: Path) -> None:
    """Names, types and rows of every usual kind."""
    sql = "SELECT rank, op, count(*) AS n, list(seq) AS l FROM calls GROUP BY ALL ORDER BY ALL"
    with open_database(database) as connection:
        here = ask(connection, sql)
        wanted = (here.names, here.types, list(here.rows))
    with asking(database, sql) as answer:
        assert (answer.names, answer.types, list(answer.rows)) == wanted
    assert len(wanted[2]) > 3


def test_more_rows_than_one_message_come_all(database: Path) -> None:
    """And a reader that has enough ends it."""
    assert rows(database, "SELECT range FROM range(50_000)") == [(n,) for n in range(50_000)]
    with asking(database, "SELECT range FROM range(1_000_000_000)") as answer:
        assert next(answer.rows) == (0,)


def test_a_directory_of_parquet_is_asked_too(tmp_path: Path) -> None:
    """As `diagnose --parquet` writes it."""
    write_parquet(load([DUMPS]), None, str(tmp_path / "tables"))
    assert rows(tmp_path / "tables", "SELECT count(*) > 0 FROM calls") == [(True,)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nope", "the SQL is wrong"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("COPY calls TO 'x.csv'", "may only read"),
        ("FROM read_text('/etc/hostname')", "the SQL is wrong"),
        ("SELECT error('stop') FROM range(3)", "stop"),
    ],
)
def test_a_refusal_is_the_one_of_the_engine_here(database: Path, sql: str, said: str) -> None:
    """With its exit code, which is that of wrong use."""
    with pytest.raises(UsageError, match=said):
        rows(database, sql)


def test_a_file_of_another_is_said(tmp_path: Path) -> None:
    """A DuckDB file without our tables, and a file of text."""
    duckdb.connect(str(tmp_path / "other.duckdb")).close()
    (tmp_path / "text.duckdb").write_text("hello")
    for name, said in (("other", "holds no tables of unhang"), ("text", "is no DuckDB file")):
        with pytest.raises(InputError, match=said):
            rows(tmp_path / f"{name}.duckdb", "SELECT 1")


def test_strings_of_an_expression_are_bounded(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not in the limit of the engine, in a statement or in a view of a stranger's."""
    monkeypatch.setattr(apart, "memory_limit", lambda: 512 << 20)
    with pytest.raises(UsageError, match="of memory"):
        rows(database, "SELECT length(repeat('x', 3_000_000_000))")
    hostile = tmp_path / "hostile.duckdb"
    hostile.write_bytes(database.read_bytes())
    with duckdb.connect(str(hostile)) as connection:
        connection.execute("ALTER TABLE meta RENAME TO meta0")
        connection.execute(
            "CREATE VIEW meta AS SELECT key, CASE WHEN length(repeat(value, 40000000)) > 0 "
            "THEN value END AS value FROM meta0, range(40)"
        )
    with pytest.raises((UsageError, InputError), match=r"of memory|holds no tables"):
        rows(hostile, "SELECT 1")
    assert rows(database, "SELECT 1") == [(1,)]


def instead(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Another program in the place of ours."""
    monkeypatch.setattr(apart, "python_command", lambda _: [sys.executable, "-c", code])


def test_an_engine_that_does_not_come_back_is_ended(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not interrupted inside an expression, before the tables are open and after."""
    opened = (
        f"import sys, time; sys.stdout.buffer.write({framed('opened')!r}); sys.stdout.flush(); "
    )
    monkeypatch.setattr(apart, "_LATE_S", 0.2)
    instead(monkeypatch, opened + "time.sleep(600)")
    with pytest.raises(UsageError, match=r"took longer than 0\.1 s"):
        rows(database, "SELECT 1", time_limit_s=0.1)
    monkeypatch.setattr(apart, "OPEN_S", 0.2)
    instead(monkeypatch, "import time; time.sleep(600)")
    with pytest.raises(UsageError, match="took longer"):
        rows(database, "SELECT 1")


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; os.abort()",
        "import sys; sys.stdin.read(); sys.stdout.write('x')",
        f"import sys; sys.stdin.read(); sys.stdout.buffer.write({HEAD.pack(MOST_BYTES + 1)!r} * 9)",
        f"import sys; sys.stdin.read(); sys.stdout.buffer.write({HEAD.pack(1000)!r})",
    ],
)
def test_an_engine_that_ends_is_said(
    database: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """What ends it is nearly always memory: the system's killer, or its own abort."""
    instead(monkeypatch, code)
    with pytest.raises(UsageError, match="of memory"):
        rows(database, "SELECT 1")


def test_values_travel_as_they_are_shown() -> None:
    """Whole numbers of any size, what is not a number, lists in lists; the rest as text."""
    same = [None, True, 1, -(1 << 63), 1 << 100, -(1 << 127), 1.5, "ä\0", b"\xff", [1, ["x"]],
            {"a": {"b": [None]}}, (1, (2, "x")), float("inf")]  # fmt: skip
    assert decoded(framed(same)[HEAD.size :]) == same
    told = [
        dt.date(2024, 1, 2),
        dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc),
        dt.timedelta(days=1, seconds=2),
        decimal.Decimal("1.50"),
        uuid.UUID(int=7),
    ]
    assert decoded(framed(told)[HEAD.size :]) == [str(value) for value in told]
    with pytest.raises(ValueError, match="larger"):
        framed("x" * (MOST_BYTES + 1))
