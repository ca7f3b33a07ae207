"""Ranks that the script starts itself."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    both = torch.ones(1)
    dist.all_reduce(both)
    assert both.item() == ranks
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
