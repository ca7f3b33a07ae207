"""What is heard of the command's output: lines that say that something stands still, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.run.child.hearing import Hearing
from unhang.run.child.streams import Stream

NO_BLOCK = "[shm_broadcast.py:456] No available shared memory broadcast block found in 60 second."
WATCHDOG = (
    "[rank1]:[E ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600001"
)
ZERO = (
    "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, "
    "Running: 4 reqs, Waiting: 2 reqs"
)


@pytest.fixture
def heard(tmp_path: Path) -> Hearing:
    """What the pump keeps of one pipe."""
    (tmp_path / "output.log").touch()
    return Hearing((Stream("output", (1, 2), "pipe"),), str(tmp_path))


def printed(hearing: Hearing, *lines: str, end: str = "\n") -> str:
    """What is news once the command has printed these lines."""
    with (Path(hearing.folder) / "output.log").open("a") as file:
        file.write("".join(f"{line}{end}" for line in lines))
    return hearing.news()


def test_a_line_that_something_stands_is_heard_once(heard: Hearing) -> None:
    """The engine repeats it each minute; a line of another sort is news again."""
    assert printed(heard, "step 1", "step 2") == ""
    assert printed(heard, NO_BLOCK) == NO_BLOCK
    assert printed(heard, NO_BLOCK, "step 3") == ""
    assert printed(heard, WATCHDOG).startswith("[rank1]:[E ProcessGroupNCCL.cpp:629]")
    assert heard.news() == ""


def test_a_line_is_heard_once_it_is_whole(heard: Hearing) -> None:
    """It may be written in two pieces, and the log may begin anew."""
    assert printed(heard, NO_BLOCK[:40], end="") == ""
    assert printed(heard, NO_BLOCK[40:]) == NO_BLOCK
    (Path(heard.folder) / "output.log").rename(Path(heard.folder) / "output.log.1")
    assert printed(heard, WATCHDOG)


def test_rates_of_zero_while_requests_run_are_heard(heard: Hearing) -> None:
    """One report may come while a prompt is read; two in a row are a standstill."""
    assert printed(heard, ZERO) == ""
    assert printed(heard, "GET /health 200") == ""
    assert printed(heard, ZERO).startswith("Engine 000")


def test_our_own_words_and_streams_that_are_not_kept_are_not_heard(tmp_path: Path) -> None:
    """What we say of such a line would be heard as one; a terminal is not read."""
    hearing = Hearing((Stream("output", (1, 2), "pipe"),), str(tmp_path))
    assert printed(hearing, f"unhang: the log says {NO_BLOCK!r}") == ""
    assert Hearing((Stream("output", (1, 2), "", why_not="a terminal"),), "").news() == ""
