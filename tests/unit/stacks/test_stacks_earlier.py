"""Stacks that earlier versions saved say the same as when they were saved."""

from __future__ import annotations

import json

import pytest

from unhang.analysis.sources.stacks import RankLook, looks_of
from unhang.stacks.reading import parse_stacks

QUIET = {"worked_s": 1.21, "worked_cpu_s": 0.0, "worked_bytes": 0, "worked_stored": 0}
SOCKET = ["readinto", "/usr/lib/python3.11/socket.py", 706]
SLEEP = ["nap", "/home/user/data.py", 31]
CALL = ["get_objects", "/opt/lib/python3.11/site-packages/ray/_private/worker.py", 1007]


def saved(frame: list[object] = SLEEP, **fields: object) -> RankLook:
    """What is made of a sample as versions before the series of looks saved it."""
    row = {"rank": 0, "host": "node01", "pid": 7, "state": "S", "tool": "py-spy", **fields}
    row["threads"] = [{"name": "MainThread", "tid": 7, "stack": 0, "is_main": True}]
    return look_of(row, [frame])


def look_of(row: dict[str, object], frames: list[list[object]]) -> RankLook:
    """The look of a saved sample."""
    stacks = [list(range(len(frames)))]
    text = {"schema": "unhang.stacks/1", "frames": frames, "stacks": stacks, "samples": [row]}
    return looks_of(parse_stacks(json.dumps(text).encode(), "stacks/run.json").samples)[0]


@pytest.mark.parametrize(
    ("look", "works"),
    [
        (saved(), None),
        (saved(**QUIET), False),
        (saved(**QUIET | {"worked_cpu_s": 0.9}), True),
        (saved(**QUIET | {"worked_cpu_s": 0.9}, says=True), True),
        (saved(**QUIET | {"worked_bytes": 120_000}), True),
        (saved(**QUIET | {"worked_bytes": 20_000}), False),
        (saved(**QUIET | {"worked_bytes": 20_000, "worked_stored": 20_000}), True),
        (saved(SOCKET, **QUIET | {"worked_bytes": 20_000}), True),
        (saved(**QUIET, says=True), True),
        (saved(**QUIET, turns=True), True),
        (saved(**QUIET, fed=True, wait_channel="pipe_read"), True),
        (saved(**QUIET, fed=True, wait_channel="futex_wait_queue"), False),
        (saved(**QUIET, helped=True), False),
        (saved(**QUIET, helped=True, wait_channel="hrtimer_nanosleep"), True),
        (saved(CALL, **QUIET, tasks_cpu_s=2.0), True),
        (saved(CALL, **QUIET, tasks_cpu_s=0.1), False),
        (saved(**QUIET | {"worked_s": -1.0}), None),
        (saved(**QUIET | {"worked_s": "soon", "worked_cpu_s": 0.9}), None),
    ],
)
def test_sums_and_flags_mean_what_they_meant(look: RankLook, *, works: bool | None) -> None:
    """CPU time and bytes of a second or two, and flags of the half minute before."""
    assert look.works is works


def test_a_sleeper_that_was_watched_is_told_from_one_that_was_not() -> None:
    """A short sleep ends by itself only where it was seen not to be one of many."""
    assert saved(**QUIET, wakes_s=4.0, sleeps=True).wakes
    assert not saved(**QUIET, wakes_s=4.0).wakes


@pytest.mark.parametrize("when", ["before it could be looked at", "while it was looked at"])
def test_an_end_was_a_sentence(when: str) -> None:
    """It is a fact now, whatever the sentence says."""
    row: dict[str, object] = {"rank": 0, "host": "node01", "pid": 7, "threads": []}
    assert look_of({**row, "error": f"it ended {when}"}, []).gone
    assert look_of({**row, "error": "its process is over", "gone": True}, []).gone
    assert not look_of({**row, "error": "it is no Python process"}, []).gone
