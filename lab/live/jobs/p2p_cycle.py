"""All ranks of a ring receive before they send: a circle of receives."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 2


def pass_round(place: common.Place, block: torch.Tensor, *, send_first: bool) -> None:
    """Pass a block to the next rank of the ring."""
    after, before = (place.rank + 1) % place.world, (place.rank - 1) % place.world
    if send_first:
        dist.send(block, after)
    dist.recv(block, before)  # lab: all stay, step 2, site
    if not send_first:
        dist.send(block, after)


def train(place: common.Place) -> None:
    """Reduce, pass on; in the last step the ring has lost the rank that sends first."""
    for step in range(LAST + 1):
        dist.all_reduce(torch.ones(8))
        pass_round(place, torch.ones(8), send_first=place.rank == 0 and step < LAST)


train(common.join())
