"""One rank's last batch is shorter, and so is what it reduces."""

from __future__ import annotations

import os

import common
import torch
import torch.distributed as dist

LAST = 3
WIDTH = 4
ODD_WIDTH = int(os.environ.get("ODD_WIDTH", "3"))


def train(place: common.Place) -> None:
    """Reduce per-sample losses; nobody drops the incomplete last batch."""
    for step in range(LAST + 1):
        width = ODD_WIDTH if place.is_odd and step == LAST else WIDTH
        losses = torch.ones(width)
        dist.all_reduce(losses)  # lab: all wait, step 3, site
    common.work_on()  # lab: all stay


train(common.join())
