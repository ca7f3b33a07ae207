"""One rank's process is stopped: its connections stay open and nothing answers."""

from __future__ import annotations

import os
import signal

import common
import torch
import torch.distributed as dist

LAST = 3


def train(place: common.Place) -> None:
    """Reduce gradients until one rank is frozen."""
    for step in range(LAST + 1):
        if place.is_odd and step == LAST:
            os.kill(os.getpid(), signal.SIGSTOP)
        gradients = torch.ones(16, 16)
        dist.all_reduce(gradients)  # lab: victims wait, step 3, site


train(common.join())
