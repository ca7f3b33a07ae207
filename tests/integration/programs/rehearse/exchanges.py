"""Sends and receives between neighbours: exchanges.py FAULT."""

import sys

import torch
import torch.distributed as dist

FAULT = sys.argv[1]
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
following, previous = (rank + 1) % ranks, (rank - 1) % ranks
mine, theirs = torch.full((4,), float(rank)), torch.empty(4)

both = [dist.isend(mine, following), dist.irecv(theirs, previous)]
for work in both:
    work.wait()
assert theirs[0] == previous
batch = [dist.P2POp(dist.irecv, theirs, following), dist.P2POp(dist.isend, mine, previous)]
for work in dist.batch_isend_irecv(batch):
    work.wait()
assert theirs[0] == following

if FAULT == "ring":
    dist.recv(theirs, previous)  # the fault: ring
    dist.send(mine, following)
if FAULT == "left-over" and rank == 0:
    left = dist.isend(mine, 1)  # the fault: left-over
if FAULT == "key":
    store = dist.TCPStore("localhost", 29600, ranks, is_master=rank == 0)
    store.set(f"ready{rank}", "1")
    store.get("ready1" if rank != 1 else "ready9")  # the fault: key
dist.barrier()
