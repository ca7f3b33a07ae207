"""Two faults that have nothing to do with each other: each half of the job misses a rank."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 3


def train(place: common.Place) -> None:
    """Train two halves side by side; the last rank of each gets no data any more."""
    half = place.world // 2
    halves = [
        dist.new_group(list(range(half)), group_desc="replica"),
        dist.new_group(list(range(half, place.world)), group_desc="replica"),
    ]
    mine = halves[place.rank >= half]
    for step in range(LAST + 1):
        if step == LAST and place.rank in (half - 1, place.world - 1):
            common.next_batch()  # lab: culprits stay, step 3
        dist.all_reduce(torch.ones(8), group=mine)  # lab: victims wait, step 3, site


train(common.join())
