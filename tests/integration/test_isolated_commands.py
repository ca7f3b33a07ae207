"""No command imports what lies in the working directory, however it is started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from planted import HOSTILE, plant
from test_cli_streams import WORDS

from unhang.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
SCRIPT = "import sys\nfrom unhang.__main__ import main\nsys.exit(main())\n"
"""What an installer writes for the entry point (a test compares it)."""


def test_the_entry_point_is_the_one_that_is_isolated() -> None:
    """The console script begins where `python -m unhang` does."""
    assert 'unhang = "unhang.__main__:main"' in (ROOT / "pyproject.toml").read_text()
    assert set(WORDS) == {entry.name for entry in COMMANDS}


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("how", ["script", "module"])
def test_a_command_runs_nothing_of_its_working_directory(
    tmp_path: Path, name: str, how: str
) -> None:
    """Also where PYTHONPATH has an empty entry; what a command reads lies beside the modules."""
    case = tmp_path / "case"
    mark = plant(case, *(each for each in HOSTILE if each != "unhang/"))
    (case / "job.log").write_text("[rank0]: ValueError: no labels\n")
    (case / "saved.txt").write_text("nothing\n")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "unhang"
    script.write_text(SCRIPT)
    start = [str(script)] if how == "script" else ["-m", "unhang"]
    words = [word for word in shlex.split(WORDS[name]) if word not in ("<", "/dev/null")]
    path = os.pathsep if how == "script" else ""
    done = subprocess.run(
        [sys.executable, *start, name, *words], cwd=case, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "UNHANG_RUNTIME_DIR": str(tmp_path / "runtime")},
        capture_output=True, check=False,
    )  # fmt: skip
    assert not mark.exists(), f"{mark.read_text()} was imported"
    assert b"Traceback" not in done.stderr
    assert done.stdout + done.stderr or name == "mcp"
