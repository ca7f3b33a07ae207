"""A small case made by hand, with something in every table."""

from __future__ import annotations

from unhang.case import Case, Dump
from unhang.casebuilder import CallRow, CaseBuilder
from unhang.model import (
    DumpStatus,
    Frame,
    Group,
    LogEvent,
    Note,
    OpName,
    ProcessSample,
    Signature,
    ThreadStack,
)

WORLD = Group("0", "default_pg", (0, 1, 2, 3), backend="nccl")
PAIR = Group("1", "pp", (1, 3))
ALL_REDUCE = OpName("nccl:all_reduce", "nccl", "all_reduce")
SEND = OpName("nccl:send 0->1", "nccl", "send", 0, 1)
RECV = OpName("nccl:recv 1<-0", "nccl", "recv", 0, 1)
BATCH_END = OpName("nccl:coalesced", "nccl", "coalesced")
SIZES = Signature(((4, 4), (2,)), ((4, 4), (2,)), ("Float", "Half"), ("Float", "Half"))

TORCH_FRAME = Frame("all_reduce", "/opt/lib/python3.11/site-packages/torch/distributed/c10d.py", 9)
TRAIN_FRAME = Frame("train_step", "/home/user/train.py", 88)
MAIN_FRAME = Frame("main", "/home/user/train.py", 101)
STACK = (TORCH_FRAME, TRAIN_FRAME, MAIN_FRAME)

START_NS = 1_763_640_000_000_000_000
MS = 1_000_000


def reduce_row(seq: int, rank: int, *, done: bool = True) -> CallRow:
    """One all_reduce of a rank, which arrives `rank` ms after rank 0."""
    created = START_NS + seq * 1000 * MS + rank * MS
    return CallRow(
        WORLD,
        ALL_REDUCE,
        record_id=seq - 1,
        seq=seq,
        p2p_seq=0,
        op_id=seq,
        state=2 if done else 0,
        retired=done,
        signature=SIZES,
        created_ns=created,
        completed_ns=created + 5 * MS if done else 0,
        timeout_ms=600_000,
        thread="python",
        frames=STACK,
    )


def stuck_case() -> Case:
    """Four ranks: rank 2 has not called all_reduce #3, rank 3 left an unreadable file.

    Ranks 1 and 3 exchange something in a batch; the member stays "scheduled", its end is complete.
    """
    builder = CaseBuilder()
    for rank in range(3):
        rows = [reduce_row(seq, rank) for seq in (1, 2)]
        if rank == 1:
            rows.append(
                CallRow(PAIR, SEND, record_id=2, seq=0, p2p_seq=1, is_p2p=True, signature=SIZES)
            )
            rows.append(
                CallRow(
                    PAIR,
                    BATCH_END,
                    record_id=3,
                    seq=0,
                    p2p_seq=1,
                    is_p2p=True,
                    state=2,
                    retired=True,
                )
            )
        if rank < 2:
            rows.append(reduce_row(3, rank, done=False))
        dump = Dump(
            0,
            rank,
            f"dumps/rank_{rank}",
            backend="nccl",
            version="2.10",
            host=f"node{rank // 2 + 1:02}",
            pid=100 + rank,
            time_ns=START_NS + 10_000 * MS,
            main_stack=(MAIN_FRAME,) if rank == 2 else (),
        )
        index = builder.add_dump(dump, rows)
        builder.add_status(index, WORLD, (3 if rank < 2 else 2, -1, 2), pg_id=0)
        builder.add_status(index, None, (0, -1, 0), pg_id=7)
    builder.add_dump(Dump(0, 3, "dumps/rank_3", DumpStatus.UNREADABLE))
    builder.notes.append(Note("error", "dumps/rank_3", "is no dump"))
    sample = ProcessSample(
        2,
        "node02",
        102,
        (ThreadStack("MainThread", 1, (MAIN_FRAME,), is_main=True, holds_gil=True),),
        state="S",
        sample=1,
        cpu_s=1.5,
        tool="py-spy",
    )
    event = LogEvent("UH712", "cause", 2, "No space left on device", "out.log:7", fields={"a": "b"})
    return builder.build(world_size=4, samples=[sample], log_events=[event], incident="i1")
