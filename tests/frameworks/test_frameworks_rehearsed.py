"""The same jobs of real frameworks rehearsed: each without trouble is healthy, each other found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_jobs import TORCHRUN

from unhang.isolated import python_command

PROGRAMS = Path(__file__).parent / "programs"
SIZE, ODD = 3, 1
OWN_START = ("lightning", "spawn")
"""What starts its ranks itself; Ray's workers are no processes of the script's."""
FRAMEWORKS = (
    "ddp", "fsdp2", "dtensor", "pipelining", "dcp", "accelerate", "trainer", *OWN_START,
)  # fmt: skip


def rehearsed(folder: Path, which: str, fault: str) -> dict[str, Any]:
    """The report on a job of three ranks."""
    own = which in OWN_START
    start = [sys.executable] if own else [str(TORCHRUN), "--nproc-per-node", str(SIZE)]
    job = [*start, str(PROGRAMS / "jobs.py"), which, fault]
    command = python_command("unhang", "rehearse", "--format", "json", "--", *job)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("which", FRAMEWORKS)
def test_a_job_without_trouble_is_healthy(tmp_path: Path, which: str) -> None:
    """All its calls meet."""
    report = rehearsed(tmp_path, which, "none")
    assert report["status"] == "healthy", report["summary"]


@pytest.mark.parametrize("which", FRAMEWORKS)
@pytest.mark.parametrize("fault", ["leaves", "fails", "mismatch"])
def test_the_rank_is_named(tmp_path: Path, which: str, fault: str) -> None:
    """With its line."""
    report = rehearsed(tmp_path, which, fault)
    cause = next(f for f in report["findings"] if f["role"] == "cause")
    assert (report["status"], cause["culprits"]) == ("problem", [ODD]), report["summary"]
    lines = (PROGRAMS / "trouble.py").read_text().splitlines()
    wanted = {n for n, line in enumerate(lines, 1) if line.endswith(f"# {fault}: here")}
    told = {s["line"] for s in cause["sites"] if s["file"].endswith("trouble.py")}
    assert wanted <= told, report["summary"]
