"""A sample of `make fuzz`: what lies beside dumps, and archives, spoilt."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

FUZZER = Path(__file__).parents[2] / "fuzz" / "beside.py"


def test_spoilt_files_beside_dumps_cost_notes_alone() -> None:
    """Nothing ends in an exception, for long, or in much memory."""
    done = subprocess.run(
        [sys.executable, FUZZER, "--count", "300"], capture_output=True, text=True, check=False
    )
    assert "'wrong': 0, 'inputs': 300" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_an_input_is_made_again_from_its_number() -> None:
    """What was found can be looked at, packed or not."""
    fuzzer = runpy.run_path(str(FUZZER))
    one, other = fuzzer["Maker"](), fuzzer["Maker"]()
    assert all(one.make(number) == other.make(number) for number in range(60))
