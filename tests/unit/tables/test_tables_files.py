from __future__ import annotations

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
