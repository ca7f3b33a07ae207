"""One of eight Gloo ranks: 5 waits for its data loader, 6 holds the GIL in C, others all_reduce.

It adds one byte, its rank, to the file READY just before it stops going on.
"""

import ctypes
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """A data set whose first item never comes."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        time.sleep(1_000)
        return index


def ready(rank: int) -> None:
    """Tell the test."""
    with Path(os.environ["READY"]).open("ab") as file:
        file.write(bytes([rank]))


def hold_the_gil() -> None:
    """Sleep in C without letting go of the interpreter."""
    ctypes.PyDLL(None).sleep(1_000)


def train(rank: int) -> None:
    """One step that never ends."""
    if rank == 5:
        loader = DataLoader(Slow(), num_workers=1)
        ready(rank)
        next(iter(loader))
    ready(rank)
    if rank == 6:
        hold_the_gil()
    dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    os.environ.setdefault("RANK", os.environ.get("SLURM_PROCID", ""))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank())
