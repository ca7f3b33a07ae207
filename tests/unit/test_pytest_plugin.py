"""Which tests are rehearsed, and with what; that they are is a test with torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TEST = """\
import pytest

@pytest.fixture
def never():
    raise RuntimeError("a fixture of the ranks")

@pytest.mark.rehearse({options})
def test_ranks(never):
    pass

def test_plain():
    pass
"""


def run(folder: Path, options: str, *words: str) -> str:
    """What pytest prints."""
    (folder / "test_it.py").write_text(TEST.format(options=options))
    plugins = ("-p", "no:cacheprovider", "-p", "unhang.integrations.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(folder), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_marked_tests_are_items_of_their_own(tmp_path: Path) -> None:
    """As all others are named and chosen."""
    found = run(tmp_path, "ranks=2", "--collect-only", "--strict-markers")
    assert found.splitlines()[:2] == ["test_it.py::test_ranks", "test_it.py::test_plain"]


def test_what_is_no_option_of_the_mark_is_said(tmp_path: Path) -> None:
    """Before any rank starts, and no fixture of the ranks is made here."""
    said = run(tmp_path, "rank=2")
    assert (
        "rehearse takes ranks, nodes, steps, limit, and test_it.py::test_ranks gives rank" in said
    )
    assert "a fixture of the ranks" not in said
    assert "1 failed, 1 passed" in said
