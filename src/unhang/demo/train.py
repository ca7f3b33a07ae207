"""A small training job that hangs: `unhang demo` runs it. Usage: train.py RANKS FILE.

Data-parallel on the CPU, over Gloo. The storage of one rank stops answering, so its data loader
waits, so its peers wait for its gradients: nothing fails, and nothing moves any more.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

ODD_RANK, LAST_SHARD = 1, 40


class Shards:
    """Samples from a storage that answers one rank no more after a while."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        if dist.get_rank() == ODD_RANK and index == LAST_SHARD:
            self.read_shard()
        return torch.ones(16)

    def read_shard(self) -> None:
        """Wait for the storage."""
        while True:
            time.sleep(1000)


def train() -> None:
    """Every step: data, forward, backward, and in it the exchange of gradients."""
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Shards(), batch_size=8):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main(ranks: int, meeting: str) -> None:
    """Be a launcher too: fork the ranks, which spares importing torch in each of them."""
    torch.set_num_threads(1)
    children = []
    for rank in range(ranks):
        if child := os.fork():
            children.append(child)
            continue
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
        dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=ranks)
        train()
        os._exit(0)
    for child in children:
        os.waitpid(child, 0)


main(int(sys.argv[1]), sys.argv[2])
