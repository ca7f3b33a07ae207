"""One rank waits for data that never come, while its peers are in all_reduce."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 4


def load(place: common.Place, step: int) -> torch.Tensor:
    """Get the next batch."""
    if place.is_odd and step == LAST:
        return common.next_batch()  # lab: culprits stay, step 4, armed site
    return torch.full((16, 16), float(place.rank))


def train(place: common.Place) -> None:
    """Train as data-parallel jobs do: one gradient reduction a step."""
    for step in range(LAST + 1):
        gradients = load(place, step) * 0.1
        dist.all_reduce(gradients)  # lab: victims wait, step 4, site


train(common.join())
