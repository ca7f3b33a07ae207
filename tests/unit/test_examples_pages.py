"""The pages of the captured hangs show what the command prints today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pages_are_up_to_date() -> None:
    """A change of the report changes the pages, too."""
    command = [sys.executable, "examples/refresh.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run: python examples/refresh.py\n{done.stdout}{done.stderr}"
