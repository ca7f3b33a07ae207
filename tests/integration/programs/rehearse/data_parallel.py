"""Data-parallel training on GPUs, written as for a cluster: data_parallel.py FAULT."""

import os
import queue
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

FAULT = sys.argv[1]


def save(model, step):
    dist.barrier()
    if dist.get_rank() == 0:
        if FAULT == "save":
            dist.all_reduce(torch.tensor([float(step)], device="cuda"))  # the fault: save
        torch.save(model.state_dict(), os.devnull)


def agreed(rank):
    plan = [{"steps": 4} if rank == 0 else None]
    dist.broadcast_object_list(plan, src=0)
    return plan[0]["steps"] - (FAULT == "uneven" and rank == 2)


def prefetched(steps):
    """Batches that a thread moves to the device, on a stream of its own."""
    ready, side = queue.Queue(2), torch.cuda.Stream()

    def move():
        for _ in range(steps):
            with torch.cuda.stream(side):
                ready.put(torch.randn(4, 8).to("cuda", non_blocking=True))

    threading.Thread(target=move, daemon=True).start()
    for _ in range(steps):
        batch = ready.get()
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        yield batch


def main():
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(f"cuda:{local}")
    model = DistributedDataParallel(model, device_ids=[local])
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)  # asks for CUDA's version
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=torch.cuda.graph_pool_handle()):
        torch.zeros(2, device="cuda").add_(1)
    for step, batch in enumerate(prefetched(agreed(rank))):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch).square().mean()
        scaler.scale(loss).backward()  # the fault: uneven
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if step == 2:
            save(model, step)
    if FAULT == "root":
        dist.broadcast(loss.detach(), src=1 if rank == 3 else 0)  # the fault: root
    # One value a channel is enough where peers have others.
    nn.SyncBatchNorm(2).to(f"cuda:{local}")(torch.randn(1, 2, device="cuda"))
    everything = [torch.empty(rank + 1, device="cuda") for rank in range(ranks)]
    dist.all_gather(everything, torch.ones(rank + 1, device="cuda"))
    worst = torch.tensor(float(rank), device="cuda")
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    if worst.item() == ranks - 1:  # a real value decides
        dist.barrier()
    dist.destroy_process_group()


main()
