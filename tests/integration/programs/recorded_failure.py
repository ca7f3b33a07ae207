"""A job for torchrun whose rank 2 finds its disk full while the others wait for it."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def save(path: str) -> None:
    """What a full disk does."""
    raise OSError(28, "No space left on device", path)


@record
def main() -> None:
    """Train a step, then save on one rank."""
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 2:
        save("/ckpt/step_100/rank_2.pt")
    dist.all_reduce(torch.ones(4))


sys.exit(main())
