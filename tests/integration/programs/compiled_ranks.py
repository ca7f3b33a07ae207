"""Ranks whose calls are made in regions that torch.compile compiles; each prints what came out."""

import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

warnings.filterwarnings("ignore")
dist.init_process_group("gloo")
RANK, ONE = dist.get_rank(), torch.ones(4)


def later(data):
    work = dist.all_reduce(data, async_op=True)
    if work is not None:
        work.wait()
    parts = [torch.zeros_like(data) for _ in range(2)]
    dist.all_gather(parts, data)
    dist.barrier()
    return torch.stack(parts).sum()


def exchange(data):
    got = torch.zeros_like(data)
    works = [dist.isend(data, 1 - RANK), dist.irecv(got, 1 - RANK)]
    for work in works:
        work.wait()
    return (got + 1).sum()


def batch(data):
    got = torch.zeros_like(data)
    out, back = dist.P2POp(dist.isend, data, 1 - RANK), dist.P2POp(dist.irecv, got, 1 - RANK)
    for work in dist.batch_isend_irecv([out, back]):
        work.wait()
    return got.sum()


def rooted(data):
    dist.broadcast(data, 1)
    dist.reduce(data, 0)
    return data.sum()


def whole(data):
    return functional.wait_tensor(functional.all_reduce(data, "sum", dist.group.WORLD)).sum()


def group(data):
    dist.all_reduce(data, group=dist.new_group([0, 1]))
    return data.sum()


for function in (later, exchange, batch, rooted, group, whole):
    compiled = torch.compile(function, backend="eager", fullgraph=function is whole)
    print(function.__name__, [compiled(ONE.clone()).item() for _ in range(3)], flush=True)
dist.destroy_process_group()
print("ended", "torch._dynamo" in sys.modules, flush=True)
sys.stdin.read()  # the recorder's thread counts once a second, and the test reads what it counted
