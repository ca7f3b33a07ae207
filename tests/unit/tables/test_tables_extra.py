"""Without DuckDB, which is an extra, whatever needs it says so in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unhang.cli.main import main

HUNG = Path(__file__).parents[3] / "examples" / "never-joined"


@pytest.mark.parametrize(
    "words",
    [
        ("query", "CASE", "FROM ranks"),
        ("query", "CASE"),
        ("query", "a.duckdb", "FROM ranks"),
        ("query", "TABLES", "FROM ranks"),
        ("diagnose", "CASE", "--db", "out.duckdb"),
        ("diagnose", "CASE", "--parquet", "out"),
    ],
)
def test_the_command_to_install_it_is_named(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, no verdict that would look complete, nothing written."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.chdir(tmp_path)
    tables = tmp_path / "tables"
    tables.mkdir()
    for name in ("a.duckdb", "tables/meta.parquet", "tables/calls.parquet"):
        (tmp_path / name).touch()
    places = {"CASE": str(HUNG), "TABLES": str(tables)}
    assert main([places.get(word, word) for word in words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "pip install 'unhang[sql]'" in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.duckdb", "tables"]


def test_the_verdict_needs_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The main job works without it."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["diagnose", str(HUNG)]) == 1
    assert "rank 2" in capsys.readouterr().out
