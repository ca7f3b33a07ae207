"""Jobs whose device or network goes wrong, by the knobs of the fake, or which capture graphs."""

import sys
import time

import torch
import torch.distributed as dist
from common import exchange, job, join, load_next_batch, main, new_group, sync, tensor


def steps(count=30, *, compute=False):
    """Collectives enqueued ahead; the hosts synchronise at the end only."""
    join()
    a = tensor(2048)
    for _ in range(count):
        if compute:
            a.mul_(2)
        dist.all_reduce(a)  # steps: calls
        time.sleep(0.02)
    sync()  # steps: here


@job
def device_stops():
    """The device of rank 2 stops altogether; all hosts go on."""
    steps()


@job
def kernel_hangs():
    """A compute kernel of rank 2 never ends: what was enqueued behind it never starts."""
    steps(compute=True)


@job
def call_never_ends():
    """A collective of rank 2 starts and never ends there; its peers finish."""
    steps()


@job
def enqueue_hangs():
    """Rank 2's host never comes back from NCCL."""
    steps()


@job
def remote_error():
    """NCCL reports an asynchronous error on rank 2."""
    steps()


@job
def network_stops():
    """The network of group 0 and 1 stops: all have come, nobody finishes."""
    rank, _ = join()
    groups = [new_group([0, 1], "a"), new_group([2, 3], "b")]
    a = tensor(512)
    for _ in range(8):
        dist.all_reduce(a, group=groups[rank // 2])
        sync()


@job
def communicator_hangs():
    """Rank 2 never comes back from making the communicator of a second group."""
    join()
    group = new_group([0, 1, 2, 3], "second")
    a = tensor(512)
    dist.all_reduce(a)
    sync()
    dist.all_reduce(a, group=group)
    sync()


def graph(stalls_at, steps):
    """A captured step with a batch of sends and receives, replayed; rank 1 may stop replaying."""
    rank, size = join()
    out, into = tensor(256), tensor(256)
    around = (rank + 1) % size, (rank - 1) % size
    exchange(*around, out, into)  # makes the communicator
    sync()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        exchange(*around, out, into)
        dist.all_reduce(out)
    for step in range(steps):
        if rank == 1 and step == stalls_at:
            load_next_batch()
        captured.replay()
        sync()
        dist.all_reduce(out)
        sync()


@job
def graph_stall():
    """Rank 1 stops replaying in step 4."""
    graph(4, 6)


@job
def graph_healthy():
    """A captured step, replayed to the end."""
    graph(-1, 4)


if __name__ == "__main__":
    main(sys.argv[1])
