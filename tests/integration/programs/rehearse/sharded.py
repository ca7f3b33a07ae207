"""FSDP2 over tensor parallelism, then a pipeline over the same ranks: sharded.py FAULT."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

FAULT = sys.argv[1]


class Block(nn.Module):  # noqa: D101
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return self.down(self.up(x).relu())


mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
rank, ranks = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(Block(), Block()).cuda()
for block in model:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(4, 16, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if FAULT == "half" and mesh.get_local_rank("tp") == 0:
        dist.all_reduce(torch.ones(1, device="cuda"))  # the fault: half

device = torch.device("cuda", rank)
stage = PipelineStage(nn.Linear(16, 16).to(device), rank, ranks, device)
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
batch = torch.randn(8, 16, device=device)
words = {0: {"args": (batch,)}, ranks - 1: {"target": batch}}.get(rank, {})
schedule.step(*words.pop("args", ()), **words)
