"""torch.compile neither traces nor compiles what is ours: compiled programs run as without us."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from armed_jobs import ArmedJob
from patience import wait_for

from unhang.record.contact.heartbeat import read_heartbeat

CALLS = 2 * 3 * 2
"""Sends and receives: two functions, three times each."""


def counted(heartbeat: Path) -> bool:
    """Whether the recorder's thread, which counts once a second, has seen all of them."""
    beat = read_heartbeat(heartbeat)
    return beat is not None and beat.recorded == CALLS


def said(place: Path, *, hook: bool, **env: str) -> list[list[str]]:
    """What the ranks of the program print, to their end."""
    place.mkdir()
    with ArmedJob("compiled_ranks.py", 2, place, hook=hook, env=env) as job:
        for rank in range(2):
            job.wait_for(rank, "ended True")
        marks = job.marks()
        assert [mark.failures for mark in marks] == [()] * 2 * hook
        for mark in marks:
            wait_for(partial(counted, mark.heartbeat), f"{CALLS} sends and receives of {mark.rank}")
        return [list(lines) for lines in job.said]


def test_compiled_programs_run_as_without_us(tmp_path: Path) -> None:
    """With the quick way, with Python alone and without a recorder: the same results."""
    plain = said(tmp_path / "plain", hook=False)
    assert [len(lines) for lines in plain] == [7, 7]
    assert said(tmp_path / "compiled", hook=True) == plain
    assert said(tmp_path / "python", hook=True, UNHANG_COMPILED="0") == plain
