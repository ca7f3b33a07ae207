"""Ranks enter their tensor-parallel and data-parallel groups in crossed order: a circle of waiting.

Ranks are a grid: each pair of neighbours is a tensor-parallel group, all even and all odd ranks
are the data-parallel groups.
"""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 2
TENSOR_FIRST = (0, 3)


def groups(place: common.Place) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Make all groups; return this rank's tensor-parallel and data-parallel one."""
    tensor, data = {}, {}
    for first in range(0, place.world, 2):
        tensor[first // 2] = dist.new_group([first, first + 1], group_desc="tp")
    for parity in (0, 1):
        data[parity] = dist.new_group(list(range(parity, place.world, 2)), group_desc="dp")
    return tensor[place.rank // 2], data[place.rank % 2]


def step_in_order(tensor: dist.ProcessGroup, data: dist.ProcessGroup) -> None:
    """Reduce activations, then gradients, as all ranks should."""
    dist.all_reduce(torch.ones(4), group=tensor)
    dist.all_reduce(torch.ones(8), group=data)


def step_by_luck(place: common.Place, tensor: dist.ProcessGroup, data: dist.ProcessGroup) -> None:
    """Start with whatever is ready first on this rank."""
    if place.rank % 4 in TENSOR_FIRST:
        dist.all_reduce(torch.ones(4), group=tensor)  # lab: all wait, step 2, site
        dist.all_reduce(torch.ones(8), group=data)
    else:
        dist.all_reduce(torch.ones(8), group=data)  # lab: all wait, step 2, site
        dist.all_reduce(torch.ones(4), group=tensor)


def train(place: common.Place) -> None:
    """Train in order, then not."""
    tensor, data = groups(place)
    for step in range(LAST + 1):
        if step < LAST:
            step_in_order(tensor, data)
        else:
            step_by_luck(place, tensor, data)


train(common.join())
