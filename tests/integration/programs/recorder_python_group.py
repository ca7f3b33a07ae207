"""Two ranks on a Python group that inherits most of its calls, beside a second Python thread."""

import threading
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from python_groups import OnGloo
from torch import nn

warnings.simplefilter("ignore")
TURNS = 600


class PythonGroup(OnGloo):
    """All but two of its calls are its base class's, one under a name that torch has replaced."""

    exchanged = 0

    def allreduce(self, tensors, opts=None):
        return self.inside.allreduce(tensors, opts or dist.AllreduceOptions())

    def alltoall_base(self, output, given, output_sizes, input_sizes, opts):
        self.exchanged += 1
        return self.inside.alltoall_base(output, given, output_sizes, input_sizes, opts)


def wake() -> None:
    """Want the GIL again and again, as a thread that loads data does."""
    while True:
        time.sleep(0.02)
        sum(range(2000))


dist.Backend.register_backend("python", PythonGroup, devices=["cpu"])
dist.init_process_group("python")
threading.Thread(target=wake, daemon=True).start()
for _ in range(TURNS):
    funcol.all_reduce(torch.ones(4), "sum", dist.group.WORLD).sum()
    nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
for _ in range(3):
    dist.all_to_all_single(torch.empty(2), torch.ones(2))
print("exchanged", dist.group.WORLD.exchanged)
print("turned", flush=True)
dist.destroy_process_group()
