"""Jobs whose ranks end while they are asked."""

from __future__ import annotations

import time
from pathlib import Path

from lab.live.job import started


def test_a_rank_that_has_ended_answers_nothing(tmp_path: Path) -> None:
    """Neither the question nor the end of the job fails because nobody reads it any more."""
    script = tmp_path / "ends.py"
    script.write_text("")
    with started(script, 1, {}, tmp_path, 60.0) as job:
        (rank,) = job.ranks
        assert rank.process.wait(60) == 0
        rank.send("state")
        assert rank.receive(time.monotonic() + 60) is None
        assert [state.life for state in job.states()] == ["ended"]
