"""A script that starts itself again for its second rank, as Lightning does, on two GPUs."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist

assert torch.cuda.device_count() >= 2
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
other = None
if "LOCAL_RANK" not in os.environ:
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    env = os.environ | {"RANK": "1", "LOCAL_RANK": "1"}
    other = subprocess.Popen([sys.executable, sys.argv[0], *sys.argv[1:]], env=env)
dist.init_process_group("nccl")
both = torch.ones(1, device="cuda")
dist.all_reduce(both)
assert both.item() == 2
dist.destroy_process_group()
if other:
    other.wait()
