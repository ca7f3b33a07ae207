"""One of four Gloo ranks, with the recorder armed: rank 3 never comes to the second all_reduce.

It makes a file with its rank's name in READY just before it stops going on.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

import unhang


def load_batch() -> None:
    """Data that never come."""
    time.sleep(1_000)


def train(rank: int) -> None:
    """One step that ends, one that does not."""
    dist.all_reduce(torch.ones(4))
    Path(os.environ["READY"], str(rank)).touch()
    if rank == 3:
        load_batch()
    dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    os.environ.setdefault("RANK", os.environ.get("SLURM_PROCID", ""))
    torch.set_num_threads(1)
    unhang.arm()
    dist.init_process_group("gloo")
    train(dist.get_rank())
