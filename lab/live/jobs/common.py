"""What every job of the lab does before and after its own story; no fault lives here."""

from __future__ import annotations

import os
import queue
import threading
from typing import NamedTuple

import torch
import torch.distributed as dist


class Place(NamedTuple):
    """Who this process is, and who misbehaves."""

    rank: int
    world: int
    odd: int

    @property
    def is_odd(self) -> bool:
        """Whether this rank is the one with the fault."""
        return self.rank == self.odd


def join() -> Place:
    """Join the job as the launcher's environment says."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    return Place(rank, world, int(os.environ.get("ODD_RANK", world - 1)))


def next_batch() -> torch.Tensor:
    """Ask a data loader whose worker has gone: this never returns."""
    return queue.Queue[torch.Tensor]().get()


def work_on() -> None:
    """Do something else than communicate, for ever."""
    threading.Event().wait()
