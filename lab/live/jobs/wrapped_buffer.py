"""A rank never joins after the recorder's buffer has wrapped, at different points on each rank.

The first two ranks call twice as much as the rest, so the same sixteen entries reach back half as
far there.
"""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 20


def train(place: common.Place) -> None:
    """Reduce in all ranks; the first two have a group of their own as well."""
    pair = dist.new_group([0, 1], group_desc="tp")
    for step in range(LAST + 1):
        if place.rank in (0, 1):
            dist.all_reduce(torch.ones(4), group=pair)
        if place.is_odd and step == LAST:
            common.work_on()  # lab: culprits stay, step 20
        dist.all_reduce(torch.ones(16))  # lab: victims wait, step 20, site


train(common.join())
