"""What only reads files works where the system is not Linux, and where nothing was compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unhang.ingest.native import library

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "elsewhere.py"
CASE = str(ROOT / "examples" / "never-joined")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("diagnose", CASE), 1, "culprit    rank 2"),
        (("diagnose", CASE, "--format", "html"), 1, "<html"),
        (("diagnose", CASE, "--format", "json"), 1, '"unhang.report/1"'),
        (("entries", CASE), 0, "all_reduce"),
        (("query", CASE, "SELECT count(*) AS stuck FROM stuck_calls"), 0, "stuck"),
        (("logs", str(ROOT / "README.md")), 3, "lost"),
        (("explain", "UH101"), 0, "never"),
    ],
)
def test_it_reads_without_what_only_linux_has(words: tuple[str, ...], code: int, said: str) -> None:
    """Other systems have other modules; the verdict, the pages and SQL need none of Linux'."""
    command = [sys.executable, PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout


def test_it_reads_the_same_where_nothing_was_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pure wheel's verdict is that of the others."""
    from unhang.cli.main import main

    said = []
    for found in (library.found, lambda: "this installation has no compiled decoder"):
        monkeypatch.setattr(library, "found", found)
        assert main(["diagnose", CASE]) == 1
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
