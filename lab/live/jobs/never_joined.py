"""One rank waits for data that never come, while its peers are in all_reduce."""

from __future__ import annotations

import queue

import common
import torch
import torch.distributed as dist

LAST = 4


def loaded(place: common.Place) -> queue.Queue[torch.Tensor]:
    """All batches of this rank; one rank's loader has died a batch too early."""
    batches: queue.Queue[torch.Tensor] = queue.Queue()
    for _ in range(LAST + (not place.is_odd)):
        batches.put(torch.full((16, 16), float(place.rank)))
    return batches


def train(place: common.Place) -> None:
    """Train as data-parallel jobs do: one gradient reduction a step."""
    batches = loaded(place)
    for step in range(LAST + 1):
        batch = batches.get()  # lab: culprits stay, step 4, armed site
        gradients = batch * (0.1 * step)
        dist.all_reduce(gradients)  # lab: victims wait, step 4, site


train(common.join())
