"""What the recorder adds to the calls of a real Gloo job: CPU time of the thread that calls.

Two ranks make the same calls, in short blocks by turns with torch's own methods and with the
wrapped ones; neighbouring blocks are compared, so that whatever else the machine does meets both
alike.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figures import Section, show
from benchmarks.recorder import answer, start

__all__ = ["main"]

CALLS, PAIRS = 200, 200
BUDGETS = {"all_reduce": "≤ 6 µs", "send, receive": "≤ 20 µs", "exchange": "≤ 1.1 times"}


def work() -> dict[str, list[list[float]]]:
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
    return {name: _by_turns(call, dist.barrier) for name, call in calls.items()}


def _by_turns(call: Callable[[], None], meet: Callable[[], object]) -> list[list[float]]:
    import torch.distributed as dist

    from unhang.record.calls import wrap

    owners = {name: dist.Work if name == "wait" else dist.ProcessGroup for name in wrap.ORIGINALS}
    armed = {name: owner.__dict__[name] for name, owner in owners.items()}

    def use(methods: dict[str, Callable[..., Any]]) -> None:
        for name, owner in owners.items():
            setattr(owner, name, methods[name])

    rows = []
    for number in range(PAIRS):
        row = [0.0] * 4
        for kind in (0, 1) if number % 2 else (1, 0):
            use(armed if kind else wrap.ORIGINALS)
            meet()
            call()
            begin, cpu = time.perf_counter_ns(), time.thread_time_ns()
            for _ in range(CALLS):
                call()
            row[kind] = (time.thread_time_ns() - cpu) / CALLS / 1e3
            row[2 + kind] = (time.perf_counter_ns() - begin) / CALLS / 1e3
        rows.append(row)
    use(armed)
    return rows


def main(*, quick: bool = False) -> Section:
    """Measure; `quick` changes nothing, it takes half a minute."""
    del quick
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as name:
        place = Path(name)
        store = f"file://{place / 'store'}"
        ranks = [
            start("", place, module=__spec__.name, RANK=str(rank), BENCH_STORE=store)
            for rank in (0, 1)
        ]
        found = [answer(rank) for rank in ranks]
    rows = []
    for call, budget in BUDGETS.items():
        both = [row for each in found for row in each[call]]  # type: ignore[attr-defined]
        plain, armed, wall, later = (
            statistics.median(column) for column in zip(*both, strict=True)
        )
        added = statistics.median(row[1] - row[0] for row in both)
        rows.append(
            (call, f"{plain:.1f} µs", f"{armed:.1f} µs", f"{added:+.1f} µs",
             f"{later / wall:.2f} times", budget)
        )  # fmt: skip
    return Section(
        title="Recorder in a real Gloo job",
        text=f"Two ranks, {PAIRS} pairs of blocks of {CALLS} calls, with and without the recorder "
        "by turns. CPU time of the calling thread; medians, and the median of the differences.",
        columns=("call and wait", "without", "with", "added", "wall", "budget"),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    if "--worker" in sys.argv:
        print(json.dumps(work()))
    else:
        print(show(main(quick="--quick" in sys.argv)))
