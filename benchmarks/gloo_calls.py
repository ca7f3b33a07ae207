"""What the recorder adds to the calls of a real Gloo job: CPU time of the thread that calls.

Two ranks make the same calls, in short blocks by turns with torch's own methods and with the
wrapped ones; neighbouring blocks are compared, so that whatever else the machine does meets both
alike.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Section, scratch
from benchmarks.recorder import answer, start

CALLS, PAIRS, STEPS = 40, 1000, 5
ROWS, WIDTH, LAYERS = 64, 256, 4
BUDGETS = {"all_reduce": "≤ 6 µs", "send, receive": "≤ 20 µs", "exchange": "≤ 1.1 times",
           "pipelined step": "", "DDP step": "≤ 0.5 %"}  # fmt: skip


def work(pairs: int) -> dict[str, list[list[float]]]:
    """In a rank: by kind of call, rows of CPU and wall time in µs, plain and armed."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    store = os.environ["BENCH_STORE"]
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    torch.set_num_threads(1)
    data, other, peer = torch.ones(256), torch.ones(256), 1 - rank

    def all_reduce() -> None:
        dist.all_reduce(data)

    def send_receive() -> None:
        if rank:
            dist.recv(data, peer)
        else:
            dist.send(data, peer)

    def exchange() -> None:
        works = [dist.isend(data, peer), dist.irecv(other, peer)]
        for each in works:
            if each is not None:
                each.wait()

    calls = {"all_reduce": all_reduce, "send, receive": send_receive, "exchange": exchange}
    rows = {name: _by_turns(call, dist.barrier, CALLS, pairs) for name, call in calls.items()}
    steps = {"pipelined step": _pipelined(rank), "DDP step": _data_parallel()}
    return rows | {
        name: _by_turns(step, dist.barrier, STEPS, pairs // 20) for name, step in steps.items()
    }


def _pipelined(rank: int) -> Callable[[], None]:
    """A step of two stages, one a rank, and four microbatches, as its schedule has them (1F1B)."""
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    layers = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
    stage = PipelineStage(torch.nn.Sequential(*layers), rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    data = torch.randn(ROWS, WIDTH)

    def step() -> None:
        if rank == 0:
            schedule.step(data)
        else:
            schedule.step(target=data)

    return step


def _data_parallel() -> Callable[[], None]:
    """A step of DDP, and an all_reduce of the loss, as programs log it."""
    import torch
    import torch.distributed as dist

    layers = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    data = torch.randn(ROWS, WIDTH)

    def step() -> None:
        loss = model(data).square().mean()
        loss.backward()
        dist.all_reduce(loss.detach())

    return step


def _by_turns(
    call: Callable[[], None], meet: Callable[[], object], calls: int, pairs: int
) -> list[list[float]]:
    import torch.distributed as dist

    from unhang.record.calls import wrap

    owners = {name: dist.Work if name == "wait" else dist.ProcessGroup for name in wrap.ORIGINALS}
    armed = {name: owner.__dict__[name] for name, owner in owners.items()}

    def use(methods: dict[str, Callable[..., Any]]) -> None:
        for name, owner in owners.items():
            setattr(owner, name, methods[name])

    rows = []
    for number in range(pairs):
        row = [0.0] * 4
        for kind in (0, 1) if number % 2 else (1, 0):
            use(armed if kind else wrap.ORIGINALS)
            meet()
            call()
            begin, cpu = time.perf_counter_ns(), time.thread_time_ns()
            for _ in range(calls):
                call()
            row[kind] = (time.thread_time_ns() - cpu) / calls / 1e3
            row[2 + kind] = (time.perf_counter_ns() - begin) / calls / 1e3
        rows.append(row)
    use(armed)
    return rows


def recorder_jobs(*, quick: bool) -> Section:
    """Measure, which takes minutes where waking a process is slow; `quick` takes a tenth."""
    pairs = PAIRS // 10 if quick else PAIRS
    with scratch() as place:
        told = {"BENCH_STORE": f"file://{place / 'store'}", "BENCH_PAIRS": str(pairs)}
        ranks = [start("", place, module=__name__, RANK=str(rank), **told) for rank in (0, 1)]
        found = [answer(rank) for rank in ranks]
    rows = []
    for call, budget in BUDGETS.items():
        both = [row for each in found for row in each[call]]  # type: ignore[attr-defined]
        plain, armed, wall, _ = (statistics.median(column) for column in zip(*both, strict=True))
        added = statistics.median(row[1] - row[0] for row in both)
        times = statistics.median(row[3] / row[2] for row in both)
        rows.append(
            (call, f"{plain:,.1f} µs", f"{armed:,.1f} µs", f"{added:+.1f} µs",
             f"{added / wall:.2%}", f"{times:.2f} times", budget)
        )  # fmt: skip
    return Section(
        title="Recorder in a real Gloo job",
        text=f"Two ranks, {pairs} pairs of blocks of {CALLS} calls, {pairs // 20} of {STEPS} "
        "steps, with and without the recorder by turns. CPU time of the calling thread; medians, "
        "the median of the differences and its share of the wall time without. Wall time: the "
        "median of the ratios of neighbours, since the machine's own speed drifts.",
        columns=("call and wait", "without", "with", "added", "share", "wall", "budget"),
        rows=tuple(rows),
    )


SECTIONS = {"recorder_jobs": recorder_jobs}

if __name__ == "__main__":
    print(json.dumps(work(int(os.environ["BENCH_PAIRS"]))))
