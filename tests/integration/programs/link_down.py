"""A job whose network is down for a while, for torchrun: link_down.py SECONDS."""

from __future__ import annotations

import subprocess
import sys
import time

import torch
import torch.distributed as dist

_STEPS, _DOWN_AT = 6, 2


def main() -> None:
    """Reduce; in one step the loopback device is taken down, and TCP sends again once it is up."""
    dist.init_process_group("gloo")
    rank, tensor = dist.get_rank(), torch.ones(200_000)
    for step in range(_STEPS):
        if step == _DOWN_AT and rank == 0:
            down = f"sleep 0.3; ip link set lo down; sleep {sys.argv[1]}; ip link set lo up"
            subprocess.Popen(down, shell=True)  # noqa: S602 - a test's own word
        for _ in range(60 if step == _DOWN_AT else 3):
            dist.all_reduce(tensor)
        time.sleep(0.3)
    print(f"rank {rank} is done", flush=True)


if __name__ == "__main__":
    main()
