"""A model of 2 GB in each rank, sharded in two dimensions: large.py FAULT."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

FAULT = sys.argv[1]
WIDE = 8192


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(*(nn.Linear(WIDE, WIDE, device="cuda") for _ in range(8)))
    for number, layer in enumerate(model):
        style = ColwiseParallel() if number % 2 == 0 else RowwiseParallel()
        fully_shard(parallelize_module(layer, mesh["tp"], style), mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2):
        loss = model(torch.randn(4, WIDE, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if FAULT == "log" and rank == 3 and step == 1:
            dist.broadcast(loss.detach(), src=0)  # the fault: log
        names = [None] * 4
        dist.all_gather_object(names, f"rank {rank}")
        assert names == [f"rank {other}" for other in range(4)]  # objects are real
        if loss.item() < 0:  # what is read is made up
            return
        print(f"step {step}: {loss:.3f}")
    torch.save(model.state_dict(), os.devnull)
    if FAULT == "mask":
        weight = torch.randn(WIDE, WIDE, device="cuda")
        dist.all_reduce(weight[weight > 0])  # the fault: mask
    dist.destroy_process_group()


main()
