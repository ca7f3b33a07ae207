"""One rank left out one all_reduce; at the end it is at the barrier, its peers one call behind."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 5
ODD_STEP = 1


def validate(place: common.Place, step: int) -> None:
    """Share the validation loss; one rank takes no part, once."""
    if place.is_odd and step == ODD_STEP:
        return
    dist.all_reduce(torch.ones(8))  # lab: victims wait, step 5, site


def train(place: common.Place) -> None:
    """Reduce gradients, validate, meet at the end."""
    for step in range(LAST + 1):
        dist.all_reduce(torch.ones(8))
        validate(place, step)
    dist.barrier()  # lab: culprits wait


train(common.join())
