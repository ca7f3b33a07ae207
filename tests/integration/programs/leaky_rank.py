"""Two ranks that tell their secrets wherever a job can: `leaky_rank.py fails|hangs [OPTIONS]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import timedelta


def work(rank: int, fault: str) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist

    said = json.loads(os.environ["SAID"])
    local = said["local"]
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    dist.all_reduce(torch.ones(2))
    for line in said["lines"]:
        print(line, flush=True)
    if rank == 1 and fault == "fails":
        raise ValueError(said["error"])
    if rank == 1:
        print("ready", flush=True)
        threading.Event().wait()
    dist.all_reduce(torch.ones(2))
    print(local)


def launch() -> int:
    """Start both ranks with the same words, and end as the second does."""
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]
    code = ranks[1].wait()
    ranks[0].kill()
    ranks[0].wait()
    return code


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit(launch())
    work(int(os.environ["RANK"]), sys.argv[1])
