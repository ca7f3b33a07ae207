from __future__ import annotations

import pytest

from unhang.analysis.sources.stacks import looks_of, looks_with_dumps
from unhang.case import Case, Dump
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.testing import worked

LOADING = (Frame("load", "/home/user/data.py", 31),)
SAVING = (Frame("save", "/home/user/train.py", 90),)


def test_a_dump_tells_where_an_unseen_rank_stood() -> None:
    """The main thread's stack in the dump counts where nobody looked from outside, once."""
    seen = ProcessSample(0, "node01", 100, (ThreadStack("MainThread", 1, SAVING, is_main=True),))
    case = Case(
        dumps=(
            Dump(0, rank=0, source="rank_0", main_stack=LOADING),
            Dump(1, rank=1, source="rank_1", main_stack=LOADING, host="node02", pid=7),
            Dump(2, rank=2, source="rank_2"),
        ),
        samples=(seen,),
    )
    looks = looks_with_dumps(case, looks_of(case.samples))
    assert {rank: look.frames for rank, look in looks.items()} == {0: SAVING, 1: LOADING}
    assert (looks[1].host, looks[1].pid, looks[1].moved) == ("node02", 7, None)


COLLECTIVE = (Frame("all_reduce", "torch/distributed/distributed_c10d.py", 9), *SAVING)
SOCKET = (Frame("readinto", "/usr/lib/python3.11/socket.py", 706), *LOADING)
DEVICE = (Frame("synchronize", "torch/cuda/__init__.py", 9), *SAVING)


@pytest.mark.parametrize(
    ("frames", "state", "cpu_s", "io", "moves"),
    [
        (LOADING, "R", 0.9, 0, True),
        (LOADING, "S", 0.0, 1 << 20, True),
        (LOADING, "S", 0.01, 1_000, False),
        (LOADING, "S", 0.0, 20_000, False),
        (SOCKET, "S", 0.0, 20_000, True),
        (SOCKET, "S", 0.0, 1_000, False),
        (LOADING, "T", 0.9, 0, False),
        (COLLECTIVE, "R", 0.9, 0, False),
        (DEVICE, "R", 0.9, 0, False),
    ],
)
def test_work_is_movement_unless_it_is_a_wait_that_spins(
    frames: tuple[Frame, ...], state: str, cpu_s: float, io: int, *, moves: bool
) -> None:
    """CPU time and bytes between two looks, for whoever waits neither for peers nor a device."""
    thread = ThreadStack("MainThread", 1, frames, is_main=True)
    looks = worked(state=state, cpu_s=cpu_s, moved=io)
    sample = ProcessSample(0, "node01", 100, (thread,), state=state, looks=looks)
    assert looks_of([sample])[0].moves is moves


def test_where_nobody_measured_work_nothing_is_said_of_it() -> None:
    """A saved stack alone does not tell."""
    sample = ProcessSample(0, "node01", 100, (ThreadStack("MainThread", 1, LOADING),))
    look = looks_of([sample])[0]
    assert (look.works, look.moves) == (None, False)


RAY = "/opt/venv/lib/python3.11/site-packages/ray/_private/worker.py"


@pytest.mark.parametrize(("tasks_s", "moves"), [(2.0, True), (0.08, False), (-1.0, False)])
def test_a_rank_that_waits_for_tasks_of_ray_moves_while_they_compute(
    tasks_s: float, *, moves: bool
) -> None:
    """They are no processes below it; those that keep house for Ray are no tasks."""
    waits = (Frame("get_objects", RAY, 1007), Frame("get", RAY, 3009), *LOADING)
    for frames, expected in ((waits, moves), (LOADING, False)):
        sample = ProcessSample(
            0, "node01", 100, (ThreadStack("MainThread", 1, frames, is_main=True),), state="S",
            looks=worked(tasks_s=tasks_s),
        )  # fmt: skip
        assert looks_of([sample])[0].moves is expected
