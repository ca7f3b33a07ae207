"""Nothing hangs, but one rank comes last to every call since half of the run."""

from __future__ import annotations

import time

import common
import torch
import torch.distributed as dist

STEPS = 16
SLOW_FROM = 6
SLOW_S = 0.04


def compute(place: common.Place, step: int) -> torch.Tensor:
    """Compute gradients; the odd rank's processor has become slow."""
    if place.is_odd and step >= SLOW_FROM:
        time.sleep(SLOW_S)
    return torch.ones(32, 32)


def train(place: common.Place) -> None:
    """Reduce gradients, some of them early and some late."""
    for step in range(STEPS):
        gradients = compute(place, step)
        dist.all_reduce(gradients)  # lab: site
    common.work_on()  # lab: all stay


train(common.join())
