"""Stand-ins for torch's tensors, Works and groups, for tests of what wraps their methods."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace


@dataclass
class Tensor:
    """What the recorder looks at in a tensor."""

    shape: tuple[int, ...] = (2, 3)
    dtype: str = "torch.float32"
    is_cpu: bool = True
    device: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(type="cpu"))

    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


class Work:
    """Ends well, or raises what it is given."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def wait(self, timeout: float = 0) -> str:
        """Wait for the call."""
        if self.error is not None:
            raise self.error
        return f"waited {timeout}"

    def is_completed(self) -> bool:
        """Whether it has ended: as Gloo's, only a wait tells."""
        return False


class Group:
    """A process group that gives out prepared Works."""

    def __init__(self, name: str = "gloo") -> None:
        self.backend, self.next, self.calls = name, Work(), 0
        self.refuses: Exception | None = None
        self.group_name, self.group_desc = "7", "pp"

    def name(self) -> str:
        """Name of the backend."""
        return self.backend

    def rank(self) -> int:
        """Rank in the group."""
        return 2

    def _get_sequence_number_for_group(self) -> int:
        return self.calls

    def allreduce(self, tensors: list[Tensor], opts: object = None) -> Work:
        """A collective."""
        del tensors, opts
        self.calls += 1
        return self.next

    def broadcast(self, tensors: list[Tensor], opts: object) -> Work:
        """A collective with a root."""
        return self.allreduce(tensors, opts)

    def send(self, tensors: list[Tensor], dst: int, tag: int) -> Work:
        """A send."""
        del tensors, dst, tag
        if self.refuses is not None:
            raise self.refuses
        self.calls += 1
        return self.next

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Work:
        """A receive from anybody."""
        del tensors, tag
        return self.next

    def monitored_barrier(self, timeout: object = None) -> None:
        """A barrier that says who is missing."""
        if timeout == "bad":
            raise RuntimeError("Ranks 2 failed to pass monitoredBarrier in 4000 ms")
