"""Jobs of real frameworks under `unhang run`: a rank that hangs, leaves, differs, or works alone.

`make test-frameworks` runs it, in an environment of its own (requirements/frameworks.txt).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ports import free_port
from run_jobs import TORCHRUN, Outcome, run_job

PROGRAMS = Path(__file__).parent / "programs"
JOBS = PROGRAMS / "jobs.py"
SIZE, ODD, BUSY = 3, 1, 0
OWN_START = ("lightning", "ray", "spawn")
"""What starts its ranks itself."""

FRAMEWORKS = ("ddp", "fsdp2", "dtensor", "pipelining", "dcp", "accelerate", "trainer",
              "shell", *OWN_START)  # fmt: skip
CODES = {
    "stuck": ("UH101", "UH302"),
    "leaves": ("UH106",),
    "fails": ("UH106",),
    "mismatch": ("UH202",),
}

RAY_TELLS = "UH793"
"""Ray passes on what ended the training function, and keeps the process."""


def command_of(which: str, fault: str) -> list[str]:
    """The command line that starts a job of three ranks."""
    if which in OWN_START:
        return [sys.executable, str(JOBS), which, fault]
    if which == "shell":
        ranks = " ".join(map(str, range(SIZE)))
        one = f"RANK=$r LOCAL_RANK=$r WORLD_SIZE={SIZE} {sys.executable} {JOBS} ddp {fault}"
        return ["bash", "-c", f"for r in {ranks}; do {one} & done; wait"]
    return [str(TORCHRUN), "--nproc-per-node", str(SIZE), "--master-port", str(free_port()),
            str(JOBS), which, fault]  # fmt: skip


def launch(folder: Path, which: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """Run a job to its end, or to the end that `unhang run` makes."""
    for name, value in (
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", str(free_port())),
        ("RAY_AUTH_MODE", "disabled"),
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("TOKENIZERS_PARALLELISM", "false"),
    ):
        monkeypatch.setenv(name, value)
    options = ("--hang-after", "8", "--grace", "0", "--on-hang", "kill")
    return run_job(folder, options, command_of(which, fault))


def line_of(fault: str) -> set[int]:
    """Numbers of the lines at which the culprit of a fault stands."""
    lines = (PROGRAMS / "trouble.py").read_text().splitlines()
    return {n for n, line in enumerate(lines, 1) if line.endswith(f"# {fault}: here")}


def lines_told(outcome: Outcome) -> set[int]:
    """Where the culprit stands, by the verdict."""
    sites = (s for s in outcome.cause["sites"] if s["role"] == "culprit")
    return {site["line"] for site in sites if site["file"].endswith("trouble.py")}


@pytest.mark.parametrize("which", FRAMEWORKS)
@pytest.mark.parametrize("fault", CODES)
def test_the_rank_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, fault: str
) -> None:
    """The one culprit and what it did; with its line, where it hangs or leaves."""
    outcome = launch(tmp_path, which, fault, monkeypatch)
    cause = outcome.cause
    codes = (*CODES[fault], RAY_TELLS) if which == "ray" else CODES[fault]
    assert (cause["code"] in codes, cause["culprits"]) == (True, [ODD]), outcome.said
    if fault != "mismatch":
        assert lines_told(outcome) == line_of(fault), outcome.said


@pytest.mark.parametrize("which", FRAMEWORKS)
@pytest.mark.parametrize("fault", ["pause", "saves"])
def test_work_of_one_rank_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, fault: str
) -> None:
    """It may raise an alarm; never with more than low confidence, and the job is left to end."""
    outcome = launch(tmp_path, which, fault, monkeypatch)
    assert outcome.code == 0, outcome.said
    for case in outcome.cases:
        cause = Outcome(0, outcome.said, [case]).cause
        assert (cause["confidence"], cause["culprits"]) == ("low", [BUSY]), outcome.said
