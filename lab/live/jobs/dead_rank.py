"""One rank dies without a word, as the kernel's OOM killer makes it, while its peers reduce."""

from __future__ import annotations

import os
import signal

import common
import torch
import torch.distributed as dist

LAST = 3


def train(place: common.Place) -> None:
    """Reduce gradients until one rank is gone."""
    for step in range(LAST + 1):
        if place.is_odd and step == LAST:
            os.kill(os.getpid(), signal.SIGKILL)
        gradients = torch.ones(16, 16)
        dist.all_reduce(gradients)  # lab: victims wait, step 3, site
    common.work_on()  # lab: victims stay


train(common.join())
