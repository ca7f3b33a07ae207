"""Programs that were drawn (`lab/nccl/programs.py`) and showed a wrong verdict: kept as jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lab.nccl.faults import NcclFault


def _job(  # noqa: PLR0913 - as many facts as a program has
    name: str,
    says: str,
    body: str,
    wrong: str,
    at: tuple[int, int, int],
    *,
    codes: tuple[str, ...] = (),
    culprits: tuple[int, ...] = (),
    ranks: int = 4,
    waits: str = "steps",
    steps: int = 5,
    also: tuple[tuple[int, ...], ...] = (),
    knobs: Mapping[str, str] | None = None,
    unseen: bool = False,
    **more: object,
) -> NcclFault:
    """A job of a program.

    Args:
        name: Of the job.
        says: What happens, in a sentence.
        body: Lines such as "ring world 256", separated by commas.
        wrong: What goes wrong.
        at: On which rank, in which step, at which line.
        codes: Accepted codes of the cause.
        culprits: Who is to be named.
        ranks: How many processes.
        waits: When hosts wait for their devices.
        steps: How many.
        also: Other sets that the dumps allow as well.
        knobs: Of the fake device.
        unseen: Whether its dumps are those of a job that is idle.
        more: Other fields of the program.
    """
    lines = [line.split() for line in body.split(", ")]
    calls = [{"op": op, "on": on, "n": int(n), "root": 0} for op, on, n in lines]
    rank, step, line = at
    spec = {"body": calls, "fault": wrong, "rank": rank, "step": step, "line": line}
    spec |= {"steps": steps, "waits": waits, "warm": True, **more}
    device = {"LAB_PROGRAM": json.dumps(spec), **(knobs or {})}
    answers = ranks - (wrong == "killed")
    return NcclFault(
        name, says, codes, culprits, also, ranks, answers, device=device, unseen=unseen
    )


_ALL = (
    _job(
        "coalesced_network",
        "The network stops in coalesced gathers of two groups: all are in them.",
        "reduce_scatter first 1024, scatter pairs 256, coalesced_gather halves 256",
        "net", (2, 0, 2), codes=("UH401",), ranks=6, knobs={"FAKE_NET_AFTER": "8"},
    ),
    _job(
        "uneven_size",
        "Rank 1 reduces other sizes once, among uneven calls that end at once.",
        "all_reduce world 64, reduce_scatter_uneven world 1024",
        "size", (1, 3, 0), codes=("UH202",), culprits=(1,), ranks=3, waits="end",
    ),
    _job(
        "moving_far_ahead",
        "Nothing is wrong: hosts are a hundred steps ahead, and were dumped on the way.",
        "all_gather_base world 256, turns world 256, all_to_all_uneven halves 256",
        "moving", (1, 1, 0), ranks=6, waits="end", steps=100_000, pause_s=0.02,
    ),
    _job(
        "extra_in_order",
        "Rank 3 exchanges twice before it gathers with rank 1.",
        "all_to_all_uneven world 64, coalesced_gather strided 64",
        "extra", (3, 1, 0), codes=("UH102",), culprits=(3,), waits="calls",
    ),
    _job(
        "first_of_group",
        "Rank 1 stands still before the first call of a group; rank 0 waits in making it.",
        "all_gather_uneven world 256, coalesced_gather pairs 256, broadcast world 64",
        "stall", (1, 0, 1), codes=("UH101",), steps=8, warm=False,
    ),
    _job(
        "pair_unmade",
        "Rank 5 stands still before its first receive; rank 4 waits in making the pair.",
        "reduce_scatter_base first 64, chain copy 1024",
        "stall", (5, 0, 1), codes=("UH302", "UH101"), culprits=(5,), also=((),), ranks=8, steps=3,
        waits="end",
    ),
    _job(
        "exchange_unseen",
        "Rank 1 stands still before a batch, of which torch's hook records no end.",
        "all_gather_base copy 256, ring world 256",
        "stall", (1, 0, 1), codes=("UH101", "UH302"), culprits=(1,), ranks=3, waits="calls",
    ),
    _job(
        "extra_exchange",
        "Rank 3 exchanges once more than its mate; the other pair is through with as many.",
        "there_and_back halves 256, reduce_scatter_uneven first 64",
        "extra", (3, 0, 0), codes=("UH302",), culprits=(3,), waits="calls", steps=3,
    ),
    _job(
        "first_calls",
        "Rank 1 stands still before its first calls; who makes that of a group leaves no record.",
        "reduce_scatter_base pairs 256, chain copy 64",
        "stall", (1, 0, 0), codes=("UH101",), unseen=True,
    ),
    _job(
        "uneven_network",
        "The network stops in an uneven gather, which reads completed at once.",
        "all_gather_uneven copy 1024",
        "net", (2, 0, 0), codes=("UH401",), knobs={"FAKE_NET_AFTER": "5"}, unseen=True,
    ),
    _job(
        "batches_left_out",
        "Rank 1 stands still before a batch: unfinished calls of torch's hook show none.",
        "ring first 256",
        "stall", (1, 2, 0), codes=("UH302",), ranks=2, unseen=True,
    ),
    _job(
        "exchange_behind",
        "Rank 3 gathers before its exchange with rank 2, all others after theirs.",
        "pairs world 1024, coalesced_gather copy 256",
        "swap", (3, 1, 1), codes=("UH301",),
    ),
    _job(
        "exchange_shifted",
        "Rank 2 leaves an exchange out, so that the next one meets that, behind a gather.",
        "ring halves 64, all_gather world 64, all_to_all_list halves 64",
        "skip", (2, 1, 0), codes=("UH301", "UH302"), culprits=(2,), also=((),), ranks=3,
        waits="end",
    ),
    _job(
        "sends_ended",
        "Nothing is wrong: the last calls are sends and receives by themselves.",
        "chain world 64, all_gather world 1024, chain pairs 256",
        "none", (3, 0, 1), waits="calls",
    ),
    _job(
        "half_exchange",
        "Rank 1 leaves the receive of an exchange out, and goes on to a collective.",
        "ring world 64, all_reduce world 32",
        "half", (1, 2, 0), codes=("UH302", "UH301"), culprits=(1,), also=((),),
    ),
    _job(
        "moving_apart",
        "Nothing is wrong: no call was in flight when any rank was dumped, each a moment later.",
        "turns world 64, all_reduce halves 64, all_reduce world 64",
        "moving", (0, 0, 0), steps=100_000, pause_s=0.3,
    ),
    _job(
        "moving_uneven",
        "Nothing is wrong: dumped a moment after an uneven gather, which reads completed at once.",
        "all_gather_uneven world 64, all_reduce halves 64",
        "moving", (0, 0, 0), steps=100_000, pause_s=0.3,
    ),
    _job(
        "moving_halves",
        "Nothing is wrong: ends are noticed up to a second late, and were not yet.",
        "all_reduce halves 64, all_reduce world 64",
        "moving", (0, 0, 0), steps=100_000, pause_s=0.001,
    ),
    _job(
        "killed_elsewhere",
        "Rank 0 is killed before an exchange, for whose end the peers of its peers wait.",
        "ring strided 64, all_reduce upper 256, scatter halves 64",
        "killed", (0, 0, 2), codes=("UH103", "UH106"), culprits=(0,),
    ),
    _job(
        "split_dtype",
        "Rank 1 exchanges halves once in a list of parts, which ends all the same.",
        "all_reduce world 64, all_to_all_list world 64",
        "dtype", (1, 3, 1), codes=("UH203",), culprits=(1,),
    ),
    _job(
        "moving_slow",
        "Not stuck: rank 5 is late by 50 ms in each step, and was dumped on the way.",
        "all_gather copy 64, all_to_all_list world 64, all_reduce world 256",
        "slow", (5, 0, 1), ranks=6, waits="calls", steps=100_000, slow=5, slow_s=0.05,
    ),
)  # fmt: skip

FOUND = {fault.name: fault for fault in _ALL}
"""By name, as `FAULTS`."""
