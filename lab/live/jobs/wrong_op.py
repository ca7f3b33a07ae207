"""One rank gathers where its peers reduce."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 3


def share(place: common.Place, loss: torch.Tensor, step: int) -> None:
    """Bring the losses together; one rank is of another mind how."""
    if place.is_odd and step == LAST:
        losses = [torch.empty_like(loss) for _ in range(place.world)]
        dist.all_gather(losses, loss)  # lab: culprits wait, step 3, site
    else:
        dist.all_reduce(loss)  # lab: victims wait, step 3, site


def train(place: common.Place) -> None:
    """Share the loss in each step."""
    for step in range(LAST + 1):
        share(place, torch.ones(8, 8), step)


train(common.join())
