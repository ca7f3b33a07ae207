"""What ranks call in each step, kept and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rehearse.talk import Ranks
from unhang.errors import InputError, OutputError
from unhang.rehearse.schedules import (
    KeptSchedule,
    changes_since,
    keep_schedule,
    read_schedule,
    schedule_of,
)


def job(extra: dict[int, tuple[int, ...]] | None = None, size: int = 4) -> KeptSchedule:
    """Three steps of a loop; with calls more at line 20, by step the ranks that make them."""
    ranks = Ranks(size)
    for step in (1, 2, 3):
        for rank in range(size):
            ranks.call(rank, 10, wait=False)
            if rank in (extra or {}).get(step, ()):
                ranks.call(rank, 20, wait=False, inputs=[[8]])
                ranks.call(rank, 20, wait=False, inputs=[[8]])
            ranks.say(rank, "step")
    for rank in range(size):
        ranks.call(rank, 30, wait=False, op="barrier")
    return schedule_of(ranks.referee)


def test_what_a_commit_adds_is_said_by_step_and_ranks() -> None:
    """Ranks and steps that change alike are one sentence."""
    line = "all_reduce [8] float32 in ranks 0-3 at train.py:20"
    assert changes_since(job(), job({3: (0, 1, 2)})) == [
        f"Step 3 has 2 more calls on ranks 0-2: 2 times {line}."
    ]
    assert changes_since(job({1: (0,), 2: (0,)}), job()) == [
        f"Steps 1-2 have 2 fewer calls each on rank 0: 2 times {line}."
    ]
    assert changes_since(job(), job()) == []


def test_another_order_is_a_change() -> None:
    """Though no call is more or less."""
    orders = []
    for lines in ((10, 20), (20, 10)):
        ranks = Ranks(2)
        for rank in range(2):
            for line in lines:
                ranks.call(rank, line, wait=False, inputs=[[line]])
        orders.append(schedule_of(ranks.referee))
    assert changes_since(*orders) == ["Step 1 makes the same calls in another order on ranks 0-1."]


def test_other_sizes_of_a_job_do_not_compare() -> None:
    """Every call would differ."""
    (said,) = changes_since(job(), job(size=2))
    assert said == "The kept schedule has 4 ranks, and this one 2: they do not compare."


def test_a_schedule_is_read_as_it_was_kept(tmp_path: Path) -> None:
    """Ranks that call the same are written once; it may be replaced by the next."""
    path = tmp_path / "calls.json"
    keep_schedule(job(), path)
    assert read_schedule(path) == job()
    assert [role.ranks for role in read_schedule(path).roles] == [[0, 1, 2, 3]]
    keep_schedule(job({1: (0,)}), path)
    assert [role.ranks for role in read_schedule(path).roles] == [[0], [1, 2, 3]]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", ('{"schema":"unhang.schedule/1","ranks":1,"calls":[],"lines":[],"roles":'
     '[{"ranks":[0],"steps":[[3]]}]}')],
)  # fmt: skip
def test_another_file_is_neither_read_nor_replaced(tmp_path: Path, text: str) -> None:
    """It may be what a user needs."""
    path = tmp_path / "notes.json"
    path.write_text(text)
    with pytest.raises(InputError, match="is no schedule"):
        read_schedule(path)
    with pytest.raises(OutputError, match="is not replaced"):
        keep_schedule(job(), path)
    assert path.read_text() == text
