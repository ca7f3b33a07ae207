"""Every captured hang gets its right verdict, through the command line, as a user would see it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.live.faults import FAULTS
from lab.score.adapters import verdict_of
from lab.score.verdict import disagreements
from lab.truth import read_truth

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
EXIT_CODES = {"healthy": 0, "problem": 1, "slow": 1, "insufficient": 3}


def unhang(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in the root of the checkout."""
    return subprocess.run(
        [sys.executable, "-m", "unhang", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_live_fault_has_an_example() -> None:
    """The folders and the table of faults are the same set."""
    assert {path.parent.name for path in EXAMPLES.glob("*/truth.json")} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_the_verdict_is_right(name: str) -> None:
    """Status, culprits, code and source lines agree with the truth, and so does the exit code."""
    done = unhang("diagnose", f"examples/{name}", "--format", "json")
    report = json.loads(done.stdout)
    assert disagreements(read_truth(EXAMPLES / name), verdict_of(report)) == []
    assert done.returncode == EXIT_CODES[report["status"]]


def test_the_healthy_job_has_no_cause() -> None:
    """Nothing is wrong: nobody is blamed for anything, and the exit code says so."""
    done = unhang("diagnose", "examples/healthy", "--format", "json")
    findings = json.loads(done.stdout)["findings"]
    assert [finding for finding in findings if finding["role"] == "cause"] == []
    assert done.returncode == 0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/dumps/*/*")), ids=str)
def test_captures_hold_no_place_of_the_machine(path: Path) -> None:
    """Paths are neutral: what was captured is public."""
    data = path.read_bytes()
    assert b"/home/user/job/" in data
    assert str(ROOT).encode() not in data
    assert str(Path(sys.prefix)).encode() not in data
