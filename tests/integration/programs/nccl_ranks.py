"""Two NCCL ranks, forked; the second does not come to the last all_reduce: `nccl_ranks.py PORT`.

On a machine with one GPU both use it: a host id for each keeps NCCL from refusing that.
"""

import datetime as dt
import os
import sys
import time

import torch
import torch.distributed as dist


def train(rank: int) -> None:
    """Some steps that end, one that does not."""
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", timeout=dt.timedelta(minutes=10))
    data = torch.ones(1024, device="cuda")
    for _ in range(5):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(100_000)  # here
    dist.all_reduce(data)
    torch.cuda.synchronize()


os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1], "WORLD_SIZE": "2"}
for number in range(2):
    if os.fork() == 0:
        os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "NCCL_HOSTID": f"h{number}"}
        train(number)
        os._exit(0)
for _ in range(2):
    os.wait()
