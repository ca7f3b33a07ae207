"""Verdicts on dumps that the real ProcessGroupNCCL wrote, see tests/data/nccl/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unhang.analysis import diagnose
from unhang.analysis.steps import look
from unhang.ingest import load
from unhang.report import Report

DATA = Path(__file__).parents[2] / "data" / "nccl"
CASES = [
    pytest.param(truth.parent / f"{name}.tar.gz", case, id=f"{truth.parent.name}/{name}")
    for truth in sorted(DATA.glob("*/truth.json"))
    for name, case in json.loads(truth.read_text()).items()
]


def problems_named(report: Report) -> tuple[list[str], list[int]]:
    """Codes and culprits of all causes."""
    causes = report.causes
    return [c.code for c in causes], sorted({rank for c in causes for rank in c.culprits})


def test_all_captures_are_there() -> None:
    """No archive is without its truth."""
    assert len(CASES) == len(list(DATA.glob("*/*.tar.gz"))) == 112


@pytest.mark.parametrize(("path", "truth"), CASES)
def test_verdicts_on_real_dumps(path: Path, truth: dict[str, Any]) -> None:
    """The right code and exactly the right ranks; in a job that moves, nobody."""
    report = diagnose(load(path))
    codes, culprits = problems_named(report)
    if truth["status"] == "healthy":
        assert (codes, culprits) == ([], [])
        # Dumps of one moving job come from different moments, which says too little of now.
        assert report.status in ("healthy", *(["insufficient"] if "slow" in path.name else []))
    elif truth["status"] == "either" and not codes:
        assert report.status == "healthy"
    else:
        assert codes[0] in truth["accept"]
        assert culprits in [truth.get("culprits", []), *truth.get("or_culprits", [])]


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("slow_rank-pipe", (0, 1)), ("stall_host-pipe", (5, 9)), ("stall_host-timeout", (15, 18))],
)
def test_dumps_with_timing_show_when_they_were_made(name: str, seconds: tuple[int, int]) -> None:
    """The device is asked at the dump: a call that runs carries that moment as its start."""
    picture, _ = look(load(DATA / "2.13.0-timing" / f"{name}.tar.gz"))
    waited = [age / 1e9 for age in picture.waited_ns.tolist() if age >= 0]
    assert len(waited) == 3  # the fourth has not started a call, or makes none
    assert all(seconds[0] <= age < seconds[1] for age in waited)


def test_a_call_that_finished_at_the_dump_shows_it_too() -> None:
    """Finished, not retired: rank 3 had made its next call 7 ms before."""
    picture, _ = look(load(DATA / "2.9.1" / "slow_rank-pipe.tar.gz"))
    assert [age >= 0 for age in picture.waited_ns.tolist()] == [False, False, False, True]
