"""What the jobs share: a process group with a short patience, tensors, exchanges, a place to stall.

Runs in the environment of the CUDA build, which has neither unhang nor the rest of the lab.
"""

import datetime
import os
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only

JOBS = {}
JOINED = threading.Event()
"""Set once this process has joined the default group."""


def job(function):
    """A job that can be started by its name."""
    JOBS[function.__name__] = function
    return function


def tensor(*shape, dtype=torch.float32):
    return torch.empty(*shape, device="cuda", dtype=dtype)


class CountByHost(TorchFunctionMode):
    """Whole numbers are computed by the host, since the device's kernels compute nothing.

    Enough for what decides how a job goes on: votes, and the sizes of what is to come.
    """

    OPS = frozenset({"sum", "cat", "mul", "__mul__", "add", "__add__", "__radd__"})

    def __torch_function__(self, function, types, args=(), kwargs=None):
        call = args, kwargs or {}
        if getattr(function, "__name__", "") in self.OPS and self.whole(call):
            args, kwargs = tree_map_only(torch.Tensor, torch.Tensor.cpu, call)
            return function(*args, **kwargs).cuda()
        return function(*call[0], **call[1])

    @staticmethod
    def whole(call):
        tensors = [each for each in tree_flatten(call)[0] if isinstance(each, torch.Tensor)]
        return bool(tensors) and not any(each.is_floating_point() for each in tensors)


def sync():
    torch.cuda.synchronize()  # waits


def load_next_batch():
    """Where a rank that stalls stands."""
    time.sleep(float(os.environ.get("LAB_STALL_S", "900")))  # here


def exchange(right, left, out, into, group=None):
    """Send to the right and receive from the left, as one batch."""
    ops = [dist.P2POp(dist.isend, out, right, group), dist.P2POp(dist.irecv, into, left, group)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def new_group(ranks, name="", backend=None):
    """A group; the oldest versions take no description."""
    try:
        return dist.new_group(ranks, backend=backend, group_desc=name)
    except TypeError:
        return dist.new_group(ranks, backend=backend)


def patience():
    return datetime.timedelta(seconds=float(os.environ.get("LAB_TIMEOUT_S", "600")))


def join(backend="nccl", *, warm=True):
    """Join the default group; every group gets the same time-out."""
    torch.cuda.set_device(0)
    for name in ("default_pg_nccl_timeout", "default_pg_timeout"):
        if hasattr(c10d, name):
            setattr(c10d, name, patience())
    dist.init_process_group(backend, timeout=patience())
    JOINED.set()
    if warm:
        dist.all_reduce(tensor(1))
        sync()
    return dist.get_rank(), dist.get_world_size()


def main(name):
    """Run one job to its end; then the process stays for a while, so that it can be asked."""
    JOBS[name]()
    sync()
    print("finished", flush=True)
    time.sleep(float(os.environ.get("LAB_STAY_S", "0")))
    if dist.is_initialized():
        dist.destroy_process_group()
