"""The same evidence in another order gives the same report, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest
from shuffled import in_other_order

from unhang.analysis import diagnose
from unhang.ingest import load

EXAMPLES = sorted(Path("examples").glob("*/"))
CAPTURES = sorted(Path("tests/data/nccl").glob("*/*.tar.gz"))[::12]


@pytest.mark.parametrize("folder", [*EXAMPLES, *CAPTURES], ids=str)
def test_the_order_of_sources_changes_nothing(folder: Path) -> None:
    """Dumps, processes and lines of logs may be read in any order."""
    case = load([folder])
    report = diagnose(case)
    for seed in range(3):
        assert diagnose(in_other_order(case, seed)) == report
