from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from case_samples import stuck_case

from unhang.errors import InputError, OutputError, UsageError
from unhang.tables import (
    TABLES,
    ask,
    connect,
    is_parquet_dir,
    lock,
    open_database,
    open_parquet,
    write_database,
    write_parquet,
)

TABLES_LOCKED = lock(connect(stuck_case()))
COUNT = "SELECT count(*) FROM calls_flat"


def test_a_database_file_can_be_asked_again(tmp_path: Path) -> None:
    """What is written is what is read, views included; only the named file is left."""
    write_database(stuck_case(), None, str(tmp_path / "out.duckdb"))
    assert [path.name for path in tmp_path.iterdir()] == ["out.duckdb"]
    with open_database(tmp_path / "out.duckdb") as tables:
        assert list(ask(tables, COUNT).rows) == [(10,)]


def test_parquet_files_can_be_asked_again(tmp_path: Path) -> None:
    """One file a table, and the same answers."""
    write_parquet(stuck_case(), None, str(tmp_path / "new" / "pq"))
    found = {path.name for path in (tmp_path / "new" / "pq").iterdir()}
    assert found == {f"{table.name}.parquet" for table in TABLES}
    assert is_parquet_dir(tmp_path / "new" / "pq")
    with open_parquet(tmp_path / "new" / "pq") as tables:
        assert list(ask(tables, COUNT).rows) == [(10,)]
        written = connect(stuck_case()).execute("SELECT * FROM signatures").fetchall()
        assert list(ask(tables, "SELECT * FROM signatures").rows) == written


@pytest.mark.parametrize("write", [write_database, write_parquet])
def test_nothing_is_overwritten_unless_forced(write: Callable[..., None], tmp_path: Path) -> None:
    """What is there stays as it was; --force replaces it."""
    path = tmp_path / "out"
    write(stuck_case(), None, str(path))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(OutputError) as caught:
        write(stuck_case(), None, str(path))
    assert "--force" in caught.value.hint
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    write(stuck_case(), None, str(path), force=True)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """No half of a database, and one sentence about where."""
    with pytest.raises(OutputError, match="cannot be written"):
        write_database(stuck_case(), None, str(tmp_path / "missing" / "out.duckdb"))
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        write_parquet(stuck_case(), None, str(tmp_path / "file"))
    with pytest.raises(OutputError):
        write_parquet(stuck_case(), None, str(tmp_path / "file" / "below"))
    with pytest.raises(OutputError):
        write_database(stuck_case(), None, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE mine (i INTEGER)",
        "DROP TABLE calls",
        "DELETE FROM calls",
        "COPY calls TO 'stolen.csv'",
        "EXPORT DATABASE 'stolen'",
        "ATTACH 'other.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "EXPLAIN ANALYZE CREATE TABLE mine (i INTEGER)",
        "SELECT 1; DROP TABLE calls",
        "",
        "SELECT * FROM nowhere",
        "SELEC 1",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_csv('https://example.org/a.csv')",
    ],
)
def test_sql_can_only_read_the_tables(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever writes, leaves the database or is wrong ends in one sentence; nothing happens."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        list(ask(TABLES_LOCKED, sql).rows)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []
    assert list(ask(TABLES_LOCKED, "SELECT count(*) FROM calls").rows) == [(10,)]


def test_failures_while_rows_are_read_are_sentences_too() -> None:
    """Some mistakes show only at a later row."""
    with pytest.raises(UsageError):
        list(ask(TABLES_LOCKED, "SELECT error('x\x1b[2J') FROM calls").rows)


def test_a_strangers_view_cannot_read_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database from outside may hold anything; it gets no access to this machine."""
    monkeypatch.chdir(tmp_path)
    Path("secret.txt").write_text("secret")
    write_database(stuck_case(), None, str(tmp_path / "out.duckdb"))
    with duckdb.connect(str(tmp_path / "out.duckdb")) as hostile:
        hostile.execute("CREATE VIEW v AS SELECT * FROM read_text('secret.txt')")
    with open_database(tmp_path / "out.duckdb") as tables, pytest.raises(UsageError):
        list(ask(tables, "SELECT * FROM v").rows)


def test_what_is_no_database_is_an_input_error(tmp_path: Path) -> None:
    """Random bytes, foreign databases and incomplete directories are named as what they are."""
    (tmp_path / "bytes.duckdb").write_bytes(b"\x93" * 5000)
    duckdb.connect(str(tmp_path / "foreign.duckdb")).execute("CREATE TABLE t (i INT)").close()
    for name in ("bytes.duckdb", "foreign.duckdb"):
        with pytest.raises(InputError):
            open_database(tmp_path / name)
    write_parquet(stuck_case(), None, str(tmp_path / "pq"))
    (tmp_path / "pq" / "notes.parquet").unlink()
    with pytest.raises(InputError):
        open_parquet(tmp_path / "pq")


ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
LONG = "SELECT a.range FROM range(10000000000) a, range(100000) b"


@pytest.mark.parametrize("way", ["database", "parquet", "memory"])
def test_every_way_to_the_tables_is_bounded(way: str, tmp_path: Path) -> None:
    """Memory and spilling are limited, and the SQL cannot lift that."""
    if way == "database":
        write_database(stuck_case(), None, str(tmp_path / "a.duckdb"))
        connection = open_database(tmp_path / "a.duckdb")
    elif way == "parquet":
        write_parquet(stuck_case(), None, str(tmp_path / "a"))
        connection = open_parquet(tmp_path / "a")
    else:
        connection = lock(connect(stuck_case()))
    ((memory, spill),) = ask(
        connection, "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    ).rows
    number, unit = memory.split()
    assert unit == "MiB" or (unit == "GiB" and float(number) <= 4)
    assert spill == ""


@pytest.mark.parametrize("sql", [ENDLESS, LONG])
def test_a_query_without_end_is_ended(sql: str) -> None:
    """Whether it computes or pours out rows: a sentence with what to do."""
    with pytest.raises(UsageError, match=r"longer than 0\.2 s"):
        deque(ask(lock(connect(stuck_case())), sql, time_limit_s=0.2).rows, maxlen=0)


def test_a_query_that_needs_too_much_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own words name settings that are locked."""
    monkeypatch.setattr("unhang.tables.query._MOST_MEMORY", 256 << 20)
    with pytest.raises(UsageError, match="256 MiB of memory"):
        deque(ask(lock(connect(stuck_case())), "SELECT list(range) FROM range(10000000000)").rows)


def test_tables_of_other_columns_are_no_tables(tmp_path: Path) -> None:
    """Parquet files by our names that hold something else: an input error."""
    write_parquet(stuck_case(), None, str(tmp_path / "a"))
    (tmp_path / "a" / "groups.parquet").replace(tmp_path / "a" / "calls.parquet")
    write_parquet(stuck_case(), None, str(tmp_path / "b"))
    (tmp_path / "b" / "groups.parquet").replace(tmp_path / "a" / "groups.parquet")
    with pytest.raises(InputError, match="no complete set of tables"):
        open_parquet(tmp_path / "a")


def test_a_strangers_table_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view in the place of a table is only asked for so long."""
    monkeypatch.setattr("unhang.tables.query.OPEN_S", 0.2)
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        endless = ENDLESS.replace("count(*)", "'schema' AS key, max(n) AS value")
        connection.execute(f"CREATE VIEW meta AS {endless}")
    with pytest.raises(InputError, match="holds no tables"):
        open_database(tmp_path / "a.duckdb")
