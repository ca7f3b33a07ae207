"""Values that pass between ranks, as files in memory, and what each collective makes of them.

The values are real, so that what a script decides by them (a loss, an object, a flag) is decided as
in the real job. Tensors above `LARGEST` bytes are not carried: each rank keeps its own.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor

from unhang.rehearse.matching.talking import Foreign

Tensor: TypeAlias = Any
"""torch's own; its types are not ours to check against every version."""

LARGEST: Final = 256 << 20
"""Bytes of one call of one rank; eight ranks that gather it hold eight times as much."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A member's side of a call that met.

    Attributes:
        rank, number: Whose call, and the how manieth of its process.
        gives: Elements for each member in an uneven all-to-all.
        carried: Whether its values are there.
    """

    rank: int
    number: int
    gives: tuple[int, ...]
    carried: bool


@contextmanager
def plain() -> Iterator[None]:
    """Without modes, overrides and gradients: nothing of the script's sees what is copied here."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch.no_grad(), torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def is_shape(tensor: Tensor) -> bool:
    """Whether a tensor has no values: torch's fake ones."""
    return isinstance(tensor, FakeTensor)


def keep(folder: str, rank: int, number: int, tensors: Sequence[Tensor]) -> bool:
    """Write what a call sends; False where it is not carried."""
    size = sum(t.numel() * t.element_size() for t in tensors)
    if size > LARGEST or any(t.device.type != "cpu" or is_shape(t) for t in tensors):
        return False
    for index, tensor in enumerate(tensors):
        if tensor.numel():
            raw = _raw(tensor.detach().contiguous())
            _mapped(_path(folder, rank, number, index), raw.numel()).copy_(raw)
    return True


def fill(
    folder: str, call: dict[str, Any], me: int, senders: Sequence[Sender | None],
    outputs: Sequence[Tensor],
) -> bool:  # fmt: skip
    """Write what a call received into its tensors; False where values were not carried.

    Args:
        folder: Where values lie.
        call: The call as the referee has it.
        me: This rank's place in the group.
        senders: Of each member; None for one that has not come, which a root need not wait for.
        outputs: The tensors, in order.
    """
    parts = _Parts(folder, call, me, senders)
    if not outputs or not parts.all_carried(_needed(call, me, len(senders))):
        return not outputs
    for index, output in enumerate(outputs):
        if output.numel() and not is_shape(output):
            value = parts.of(index, output)
            if value is not None and value.numel() == output.numel():  # a stand-in's may differ
                output.detach().data.copy_(value.reshape(output.shape))
    return True


def _needed(call: dict[str, Any], me: int, size: int) -> Sequence[int]:
    """Whose values a member takes."""
    if call["peer"] >= 0:
        return (0,)
    if call["kind"] in ("broadcast", "scatter"):
        return (call["root"],)
    if call["kind"] in ("reduce", "gather") and call["root"] != me:
        return ()
    return range(size)


class _Parts:
    """Values of all members of one call, read on demand."""

    def __init__(
        self, folder: str, call: dict[str, Any], me: int, senders: Sequence[Sender | None]
    ) -> None:
        self.folder, self.call, self.me, self.senders = folder, call, me, senders

    def all_carried(self, members: Sequence[int]) -> bool:
        """Whether the values of these are there."""
        return all((s := self.senders[m]) is not None and s.carried for m in members)

    def of(self, index: int, output: Tensor) -> Tensor | None:
        """The value of one output; None where it stays as it is."""
        kind, size, dtype = self.call["kind"], len(self.senders), output.dtype
        root = self.call["root"]
        if kind == "reduce" and root != self.me:
            return None
        where = {  # whose which input becomes this output
            "recv": (0, index),
            "broadcast": (root, index),
            "scatter": (root, self.me),
            "all_gather": (index % size, index // size),
            "gather": (index % size, index // size),
            "all_to_all": (index, self.me),
        }
        if kind in where:
            return self._read(*where[kind], dtype)
        if kind in _OF_ALL:
            return _OF_ALL[kind](self, index, output)
        return None

    def _all(self, index: int, dtype: Foreign) -> list[Tensor]:
        """One input of every member; that of a member that stands for others is read once."""
        first = {sender: member for member, sender in reversed(list(enumerate(self.senders)))}
        read = {s: self._read(member, index, dtype) for s, member in first.items()}
        return [read[sender] for sender in self.senders]

    def _sum(self, index: int, output: Tensor) -> Tensor:
        return self._reduced(self._all(index, output.dtype))

    def _joined(self, index: int, output: Tensor) -> Tensor:
        return torch.cat([each.reshape(-1) for each in self._all(index, output.dtype)])

    def _sum_of_lists(self, index: int, output: Tensor) -> Tensor:
        return self._sum(index * len(self.senders) + self.me, output)

    def _sum_of_pieces(self, index: int, output: Tensor) -> Tensor:
        start = self.me * output.numel()
        whole = self._all(index, output.dtype)
        return self._reduced([each[start : start + output.numel()] for each in whole])

    def _exchanged(self, index: int, output: Tensor) -> Tensor:
        del index
        return torch.cat([self._slice(m, output.dtype) for m in range(len(self.senders))])

    def _read(self, member: int, index: int, dtype: Foreign) -> Tensor:
        sender = self.senders[member]
        assert sender is not None  # noqa: S101 - asked for in all_carried
        path = _path(self.folder, sender.rank, sender.number, index)
        if not os.path.exists(path):  # noqa: PTH110 - a path as text
            return torch.empty(0, dtype=dtype)
        return _mapped(path, os.stat(path).st_size).view(dtype)  # noqa: PTH116 - as above

    def _slice(self, member: int, dtype: Foreign) -> Tensor:
        """What a member gives this rank of its one tensor."""
        values, sender = self._read(member, 0, dtype), self.senders[member]
        gives = sender.gives if sender else ()
        if not gives:
            each = values.numel() // len(self.senders)
            return values[self.me * each : (self.me + 1) * each]
        start = sum(gives[: self.me])
        return values[start : start + gives[self.me]]

    def _reduced(self, values: list[Tensor]) -> Tensor:
        name = self.call["reduction"]
        if name == "AVG":
            return reduce(torch.add, values) / len(values)
        return reduce(_REDUCTIONS.get(name, torch.add), values)


_REDUCTIONS: Final[dict[str, Any]] = {
    "SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
    "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
}  # fmt: skip


_OF_ALL: Final[dict[str, Any]] = {
    "all_reduce": _Parts._sum,
    "reduce": _Parts._sum,
    "gather_one": _Parts._joined,  # one output holds all members' inputs
    "reduce_scatter": _Parts._sum_of_lists,
    "scatter_one": _Parts._sum_of_pieces,  # one input holds what goes to all members
    "exchange": _Parts._exchanged,
}


def _path(folder: str, rank: int, number: int, index: int) -> str:
    return f"{folder}/{rank}_{number}_{index}"


def _raw(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _mapped(path: str, size: int) -> Tensor:
    return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
