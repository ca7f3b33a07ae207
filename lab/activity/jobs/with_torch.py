"""The same with torch: what ranks of real jobs do; run as `python torch_programs.py NAME`.

A rank that waits has its peer as a child, which stands outside of the call.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from common import main, program, ready
from torch.utils.data import DataLoader, Dataset

_PEER = "ACTIVITY_PEER"


def _pair() -> bool:
    """Set up a Gloo job of two ranks; True in the one that is recorded, whose peer is its child."""
    torch.set_num_threads(1)
    path = os.environ.get(_PEER)
    if path is None:
        path = tempfile.mktemp(prefix="activity-store-")  # noqa: S306 - a FileStore makes it
        subprocess.Popen([sys.executable, __file__, sys.argv[1]], env={**os.environ, _PEER: path})
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=2)
        dist.barrier()
        ready()
        return True
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=1, world_size=2)
    dist.barrier()
    return False


def _stand() -> None:
    threading.Event().wait()


@program("waits")
def all_reduce_without_peer() -> None:
    """The classic hang."""
    if _pair():
        dist.all_reduce(torch.ones(10))
    _stand()


@program("waits")
def recv_without_send() -> None:
    """A receive whose sender does something else."""
    if _pair():
        dist.recv(torch.ones(10), 1)
    _stand()


@program("waits")
def work_wait_without_peer() -> None:
    """`work.wait()` of an asynchronous call."""
    if _pair():
        dist.all_reduce(torch.ones(10), async_op=True).wait()
    _stand()


@program("waits")
def store_key_that_no_rank_sets() -> None:
    """A blocking `store.get`."""
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    ready()
    store.get("never")


@program("waits")
def init_without_peer() -> None:
    """`init_process_group` whose second rank never comes."""
    path = tempfile.mktemp(prefix="activity-store-")  # noqa: S306 - a FileStore makes it
    ready()
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=2)


class _Slow(Dataset[torch.Tensor]):
    def __init__(self, apart_s: float) -> None:
        self.apart_s = apart_s

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.apart_s)
        return torch.randn(64, 64).sort().values


@program("works")
def loader_with_slow_workers() -> None:
    """Two workers bring a batch now and then; the main process waits in `next`."""
    for batch in DataLoader(_Slow(0.1), batch_size=8, num_workers=2):
        ready()
        batch.sum()


@program("waits")
def loader_with_stuck_workers() -> None:
    """The workers wait for ever, and so does `next`."""
    ready()
    for batch in DataLoader(_Slow(1e6), batch_size=8, num_workers=2):
        batch.sum()


@program("works")
def trains_small_steps() -> None:
    """A small model on one thread."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(256, 256)
    ready()
    while True:
        model(torch.randn(64, 256)).sum().backward()


@program("works")
def evaluates_between_waits() -> None:
    """A small batch five times a second, as a rate-limited evaluation."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(512, 512)
    with torch.no_grad():
        ready()
        while True:
            for _ in range(4):
                model(torch.randn(256, 512)).argmax().item()
            time.sleep(0.2)


@program("works")
def saves_checkpoints() -> None:
    """`torch.save` of some megabytes each second."""
    state = {str(n): torch.randn(256, 1024) for n in range(8)}
    path = Path(tempfile.mkdtemp(prefix="activity-")) / "model.pt"
    ready()
    while True:
        torch.save(state, path)
        time.sleep(1.0)


@program("works")
def loads_checkpoints() -> None:
    """`torch.load` of some megabytes each second."""
    state = {str(n): torch.randn(256, 1024) for n in range(8)}
    path = Path(tempfile.mkdtemp(prefix="activity-")) / "model.pt"
    torch.save(state, path)
    ready()
    while True:
        torch.load(path)
        time.sleep(1.0)


if __name__ == "__main__":
    main(is_ready=False)
