"""What every backend refuses: calls whose tensors do not fit the group that they are for.

torch's own process groups raise before anything travels. A rehearsal that let such a call pass
would prove a script that fails on its first node. Each was seen to raise by Gloo, and by torch
2.13's ProcessGroupNCCL with a stand-in for the library below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unhang.rehearse.inside.payloads import Tensor

REFUSERS: Final = ("refuse_counts", "refuse_sizes", "refuse_splits")
"""Functions of ours that raise as torch does: what they raise is the script's own error."""


def refuse_counts(op: str, what: str, tensors: Sequence[Tensor], size: int) -> None:
    """A list of tensors wants one for each rank of the group.

    Raises:
        ValueError: It has more or fewer.
    """
    if len(tensors) != size:
        raise ValueError(f"{op} wants {size} {what} tensors for {size} ranks, not {len(tensors)}")


def refuse_splits(op: str, tensor: Tensor, splits: Sequence[int], size: int) -> None:
    """Split sizes are one for each rank, and share out the first dimension.

    Raises:
        RuntimeError: They do not.
    """
    rows = tensor.shape[0] if tensor.dim() else 0
    if splits and len(splits) != size:
        raise RuntimeError(f"{op} wants {size} split sizes for {size} ranks, not {len(splits)}")
    if splits and sum(splits) != rows:
        raise RuntimeError(f"{op}: split sizes add up to {sum(splits)}, of a dimension of {rows}")
    # Without split sizes NCCL wants rows that share out, and Gloo takes any: that is let pass.


def refuse_sizes(op: str, whole: Tensor, part: Tensor, size: int) -> None:
    """One tensor holds as many elements for each rank as the other, of the same dtype.

    Raises:
        RuntimeError: It does not.
    """
    if whole.numel() != part.numel() * size:
        raise RuntimeError(
            f"{op} wants {size} times {part.numel()} elements for {size} ranks, not {whole.numel()}"
        )
    if whole.dtype != part.dtype:
        raise RuntimeError(f"{op} takes {part.dtype} into {whole.dtype}")
