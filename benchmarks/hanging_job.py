"""A job for `live_hangs`: forked Gloo ranks with short steps, one of which stops.

python benchmarks/hanging_job.py RANKS STEP_MS STEPS CULPRIT FAULT FILE [FIRST WORLD]

The ranks are those of one node: from FIRST on, of WORLD.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

CHECKPOINT_EVERY = 25


def loader() -> None:
    """Data that never come."""
    time.sleep(100_000)


def lock() -> None:
    """A lock that nobody gives back."""
    held = threading.Lock()
    held.acquire()
    held.acquire()


def file() -> None:
    """A pipe into which nobody writes."""
    read, _write = os.pipe()
    os.read(read, 1)


def skips() -> None:
    """It leaves a call out, and waits in the next one."""
    dist.barrier()


STOPS: dict[str, Callable[[], None]] = {f.__name__: f for f in (loader, lock, file, skips)}


def train(step_ms: int, steps: int, stop: Callable[[], None] | None, moment: Path) -> None:
    """Steps of work and one all_reduce; the culprit stops before the last."""
    data = torch.ones(1024)
    for step in range(steps + 1):
        time.sleep(step_ms / 1000)
        if step == steps and stop is not None:
            moment.write_text(str(time.time()))
            stop()
        dist.all_reduce(data)
        if step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            if dist.get_rank() == 0:
                time.sleep(0.4)
            dist.barrier()


def main(numbers: list[int], fault: str, moment: Path, first: int = 0, world: int = 0) -> None:
    """Fork the ranks, which spares importing torch in each, and wait for them."""
    ranks, step_ms, steps, culprit = numbers
    world = world or ranks
    torch.set_num_threads(1)
    store = f"file://{moment.parent / 'store'}"
    for local in range(ranks):
        rank = first + local
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(world)}
            dist.init_process_group(
                "gloo",
                init_method=store,
                rank=rank,
                world_size=world,
                timeout=dt.timedelta(minutes=30),
            )
            train(step_ms, steps, STOPS[fault] if rank == culprit else None, moment)
            os._exit(0)
    for _ in range(ranks):
        os.wait()


if __name__ == "__main__":
    words = sys.argv[1:]
    main([int(word) for word in words[:4]], words[4], Path(words[5]), *map(int, words[6:]))
