"""Large dumps of a node are reduced before they travel, where unhang is installed there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.makedumps import dump, write

from unhang.collect.node import parts
from unhang.collect.node.parts import reduced
from unhang.ingest import load


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | Path]:
    """Two dumps, one of them in memory, that are taken for large."""
    monkeypatch.setattr(parts, "SMALL", 0)
    write(tmp_path / "ours", {f"rank_{rank}": dump(5) for rank in range(2)})
    paths = [tmp_path / "ours" / f"rank_{rank}" for rank in range(2)]
    return {"dumps/nccl/rank_0": paths[0], "dumps/nccl/rank_1": paths[1].read_bytes()}


def test_dumps_become_one_part(files: dict[str, bytes | Path], tmp_path: Path) -> None:
    """With everything that the dumps held."""
    (tmp_path / "scratch").mkdir()
    found, note = reduced(files, tmp_path / "scratch", "node-7")
    assert note == ""
    assert list(found) == ["dumps/node-7.part"]
    case = load(found["dumps/node-7.part"])
    assert [(each.rank, each.stop - each.start) for each in case.dumps] == [(0, 5), (1, 5)]


def test_small_dumps_travel_as_they_are(
    files: dict[str, bytes | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is gained by reducing them, and other tools read them."""
    monkeypatch.setattr(parts, "SMALL", 1 << 20)
    assert reduced(files, tmp_path, "n") == (files, "")


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("echo 'No module named unhang' >&2; exit 1", "unhang is not installed on this node"),
        ("echo 'error: the disk is full' >&2; exit 2", "reducing them failed (error: the disk"),
    ],
)
def test_where_they_cannot_be_reduced_they_travel_and_a_note_says_why(
    python: str,
    why: str,
    files: dict[str, bytes | Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node without unhang, and one where it fails."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{python}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (tmp_path / "scratch").mkdir()
    found, note = reduced(files, tmp_path / "scratch", "n")
    assert found == files
    assert why in note
