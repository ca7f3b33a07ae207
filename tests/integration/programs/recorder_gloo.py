"""Four Gloo ranks: first everything that is recorded, then one kind of trouble each.

Rank 0 receives what nobody sends, rank 1 keeps the GIL in C, rank 2 sleeps and waits for the worst,
rank 3 meets a time-out, forks, and raises.
"""

import ctypes
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group(
    [0, 1] if rank < 2 else [2, 3], group_desc="pair", use_local_synchronization=True
)
hasty = dist.new_group([0, 3], timeout=timedelta(seconds=1), group_desc="hasty")
data = torch.ones(4)


def train_step():
    dist.all_reduce(data)
    dist.all_reduce(data, group=pair)
    peer = rank ^ 1
    if rank % 2:
        dist.send(data, peer)
        dist.recv(data, peer)
    else:
        dist.recv(data, peer)
        dist.send(data, peer)
    sent, received = torch.ones(2, 3, dtype=torch.bfloat16), torch.empty(2, 3, dtype=torch.bfloat16)
    batch = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    dist.monitored_barrier()
    dist.barrier()


train_step()
import unhang  # the job's own call; the hook has loaded it already

unhang.step(7)
print("dumped", json.dumps([str(path) for path in unhang.dump()]))
shapes = {
    "all": unhang.dump_bytes(),
    "plain": unhang.dump_bytes("gloo", include_stack_traces=False),
    "bare": unhang.dump_bytes(include_collectives=False),
    "active": unhang.dump_bytes(only_active=True, include_stack_traces=False),
}
print("bytes", json.dumps({name: value.hex() for name, value in shapes.items()}))
dist.barrier()


def receive_what_nobody_sends():
    dist.recv(torch.empty(5), 1)


def keep_the_gil():
    ctypes.PyDLL(None).sleep(1000)


def wait_for_the_worst():
    dist.recv(torch.empty(6), 0)


def meet_a_timeout():
    try:
        dist.all_reduce(data, group=hasty)
    except RuntimeError as error:
        print("timeout", type(error).__name__)


def my_excepthook(kind, error, trace):
    print("hooked", kind.__name__, flush=True)


if rank == 0:
    print("ready")
    receive_what_nobody_sends()
elif rank == 1:
    print("ready")
    keep_the_gil()
elif rank == 2:
    print("ready")
    wait_for_the_worst()
else:
    meet_a_timeout()
    child = os.fork()
    if child == 0:
        time.sleep(1000)  # silent: what two processes print into one pipe, unbuffered, can mix
    print("forked", child)
    before = sys.excepthook
    sys.excepthook = lambda *what: (my_excepthook(*what), before(*what))
    sys.stdin.readline()
    raise ValueError("the batch is empty")
