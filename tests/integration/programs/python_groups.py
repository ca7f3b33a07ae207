"""A process group whose class is Python, around Gloo: what programs derive theirs from."""

import torch
import torch.distributed as dist


class OnGloo(dist.ProcessGroup):
    """It has Gloo for what it inherits, and makes no call of its own."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.inside = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._register_backend(
            torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, self.inside
        )

    def getBackendName(self):
        return "python"
