"""One rank reduces in double precision, its peers in single."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 3


def train(place: common.Place) -> None:
    """Reduce gradients; one rank was started with another precision."""
    for step in range(LAST + 1):
        dtype = torch.float64 if place.is_odd and step == LAST else torch.float32
        gradients = torch.ones(64, 64, dtype=dtype)
        dist.all_reduce(gradients)  # lab: all wait, step 3, site
    common.work_on()  # lab: all stay


train(common.join())
