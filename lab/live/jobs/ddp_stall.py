"""DistributedDataParallel, whose reducer calls from C++; one rank runs out of data."""

from __future__ import annotations

import common
import torch
from torch.nn.parallel import DistributedDataParallel

LAST = 3


def load(place: common.Place, step: int) -> torch.Tensor:
    """Get the next batch."""
    if place.is_odd and step == LAST:
        return common.next_batch()  # lab: culprits stay, step 3
    return torch.ones(8, 16)


def train(place: common.Place) -> None:
    """Train a small network; nothing in here mentions a collective."""
    network = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(LAST + 1):
        batch = load(place, step)
        loss = model(batch).square().mean()
        loss.backward()  # lab: victims wait, step 3, site
        optimizer.step()
        optimizer.zero_grad()


train(common.join())
