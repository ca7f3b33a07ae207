"""A hang on real NCCL under `unhang run`; needs a GPU, one is enough."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ports import free_port
from run_jobs import kill, run_job

from unhang.ingest import load

PROGRAM = Path(__file__).parent / "programs" / "nccl_ranks.py"


@pytest.mark.gpu
def test_a_rank_that_nccl_waits_for_is_named_at_its_line(tmp_path: Path) -> None:
    """The dumps are those of torch's NCCL recorder, with what ours adds."""
    outcome = run_job(tmp_path, kill(), [sys.executable, str(PROGRAM), str(free_port())])
    lines = PROGRAM.read_text().splitlines()
    stops = next(number for number, line in enumerate(lines, 1) if line.endswith("# here"))
    assert outcome.cause["culprits"] == [1], outcome.said
    assert stops in {site["line"] for site in outcome.cause["sites"]}
    case = load([outcome.only_case])
    assert {dump.backend for dump in case.dumps} == {"nccl"}
    assert case.world_size == 2
