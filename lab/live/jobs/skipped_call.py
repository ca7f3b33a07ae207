"""One rank leaves out one all_reduce; the job goes on, off by one, until the calls run out."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist

LAST = 5
ODD_STEP = 2


def train(place: common.Place) -> None:
    """Reduce gradients and loss in each step; a rank with a bad loss forgets its peers."""
    for step in range(LAST + 1):
        gradients = torch.ones(8)
        loss = torch.full((8,), float("nan") if place.is_odd and step == ODD_STEP else 1.0)
        dist.all_reduce(gradients)
        if torch.isnan(loss).any():
            continue
        dist.all_reduce(loss)  # lab: victims wait, step 5, site
    common.work_on()  # lab: culprits stay


train(common.join())
