from __future__ import annotations

from unhang.analysis.lookouts import looks_with_dumps
from unhang.case import Case, Dump
from unhang.model import Frame, ProcessSample, ThreadStack

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
    looks = looks_with_dumps(case)
    assert {rank: look.frames for rank, look in looks.items()} == {0: SAVING, 1: LOADING}
    assert (looks[1].host, looks[1].pid, looks[1].moved) == ("node02", 7, None)
