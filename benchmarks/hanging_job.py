"""A job for `hang_verdict`: forked Gloo ranks, one of which stops in its data loader.

python benchmarks/hanging_job.py RANKS PORT CULPRIT
"""

import datetime as dt
import os
import sys
import time

import torch
import torch.distributed as dist

STEPS = 20


def load_batch() -> None:
    """Data that never come."""
    time.sleep(100_000)


def train(*, stops: bool) -> None:
    """Steps of one all_reduce each; the culprit does not come back from its data."""
    for step in range(STEPS + 1):
        if step == STEPS and stops:
            load_batch()
        dist.all_reduce(torch.ones(1024))


def main(ranks: int, port: str, culprit: int) -> None:
    """Fork the ranks, which spares importing torch in each, and wait for them."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    for rank in range(ranks):
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            dist.init_process_group("gloo", timeout=dt.timedelta(minutes=30))
            train(stops=rank == culprit)
            os._exit(0)
    for _ in range(ranks):
        os.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
