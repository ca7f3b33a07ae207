"""One process on the fake backend, and one way to end or to be disturbed.

Arguments: the name of a function below.
"""

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist


def begin():
    dist.init_process_group("fake", rank=0, world_size=2)
    dist.all_reduce(torch.ones(2))


def fatal_signal():
    begin()
    ctypes.string_at(0)


def own_faulthandler():
    faulthandler.enable()
    begin()
    ctypes.string_at(0)


class LateGroup(dist.ProcessGroup):
    """A group whose calls never end."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)

    def getBackendName(self):
        return "late"

    def allreduce(self, tensors, opts):
        return dist.Work()


def exit_with_calls_pending():
    dist.Backend.register_backend("late", LateGroup, devices=["cpu"])
    dist.init_process_group("late")
    keep.append(dist.all_reduce(torch.ones(2), async_op=True))


def exit_quietly():
    begin()
    dist.destroy_process_group()


def signal_with_a_handler_of_its_own():
    arrived = threading.Event()
    signal.signal(signal.SIGUSR2, lambda *what: arrived.set())
    begin()
    print("pid", os.getpid())
    arrived.wait(60)
    print("handled", arrived.is_set())
    sys.stdin.readline()


def forked_ranks():
    """As multiprocessing's fork method: the parent imports torch, the children are the ranks."""
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            os.environ["RANK"] = str(rank)
            dist.init_process_group("fake", rank=rank, world_size=2)
            dist.all_reduce(torch.ones(2))
            os.write(1, b"rank %d\n" % rank)
            sys.stdin.readline()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def armed_late():
    dist.init_process_group("fake", rank=0, world_size=2)
    import unhang

    unhang.arm()
    unhang.arm()
    unhang.step(3)
    dist.broadcast(torch.ones(2), 0)
    dist.send(torch.ones(2), 1)
    group = dist.new_group([0, 1], group_desc="later")
    dist.all_reduce(torch.ones(2), group=group)
    print("dump", json.dumps(unhang.record.dumps.torchfr.load_plain(unhang.dump_bytes("fake"))))


def not_armed():
    begin()
    import unhang
    from unhang.record.arm import armed

    print("armed", armed(), [path.name for path in unhang.dump()])


def nowhere_to_write():
    begin()
    import unhang

    print("files", json.dumps([str(path) for path in unhang.dump()]))


keep = []
globals()[sys.argv[1]]()
