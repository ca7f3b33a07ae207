"""One rank receives from a peer that never sends to it; the others reduce without it."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 2


def train(place: common.Place) -> None:
    """Reduce; in the last step one rank expects a block that nobody sends."""
    source = (place.odd + 1) % place.world
    for step in range(LAST + 1):
        if place.is_odd and step == LAST:
            dist.recv(torch.ones(8), source)  # lab: culprits stay, step 2
        dist.all_reduce(torch.ones(8))  # lab: victims wait, step 2, site


train(common.join())
