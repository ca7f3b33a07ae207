"""Two ranks on a Python group that inherits most of its calls, beside a second Python thread."""

import threading
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn

warnings.simplefilter("ignore")
TURNS = 600


class PythonGroup(dist.ProcessGroup):
    """All but one of its calls are its base class's."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.inside = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._register_backend(
            torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, self.inside
        )

    def getBackendName(self):
        return "python"

    def allreduce(self, tensors, opts=None):
        return self.inside.allreduce(tensors, opts or dist.AllreduceOptions())


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
print("turned", flush=True)
dist.destroy_process_group()
