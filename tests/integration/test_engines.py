"""A serving engine stands still, live: its worker is named by its title, without a recorder.

All twelve faults are run by `python -m lab engines`.
"""

from __future__ import annotations

from pathlib import Path

from patience import PATIENCE_S

from lab.engines.command import looked_at
from lab.engines.faults import FAULTS
from lab.engines.running import started


def test_a_worker_that_stands_in_a_step_is_named(tmp_path: Path) -> None:
    """Its peer waits for it in the collective of that step, and the engine for both."""
    fault = FAULTS["worker-stuck"]
    with started(fault, tmp_path, PATIENCE_S) as standing:
        report = looked_at(standing.processes())
    assert fault.wrong(report) == ""
    assert report["findings"][0]["culprits"] == [1]
