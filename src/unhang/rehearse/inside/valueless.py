"""Large tensors as shapes: they take no memory and no time, and have no values.

torch's fake tensors stand for what would not fit on this machine: a tensor of floating point that
is larger than `LARGEST`, and whatever comes of one. Small tensors and all integers are real, so
that flags, counts and objects decide as in the job. A value that is read of a shape is made up, and
the rehearsal lists the line that reads it.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unhang.rehearse.inside.payloads import is_shape
from unhang.rehearse.inside.readings import Readings
from unhang.rehearse.matching.talking import Foreign

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

LARGEST: Final = 1 << 20
"""Bytes of a real tensor of floating point: the norms and biases of large models are below it."""

_MADE_UP: Final = 1.0
"""A loss or a norm: divided by, and taken the logarithm of, it raises nothing."""


class LargeAreShapes(TorchDispatchMode):  # type: ignore[misc] # torch is not typed
    """Every operation of torch: what would make a large tensor makes a shape."""

    def __init__(self, readings: Readings) -> None:
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

        super().__init__()
        self.readings = readings
        FakeTensor.__reduce_ex__ = _as_values  # of a checkpoint
        self.shapes: FakeTensorMode = FakeTensorMode(allow_non_fake_inputs=True)

    def __torch_dispatch__(
        self, func: Foreign, types: Foreign, args: Foreign = (), kwargs: Foreign = None
    ) -> Foreign:
        """Called by torch in the place of `func`."""
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        if not tensors:
            return self._made(func, args, kwargs)
        if not any(map(is_shape, tensors)):
            return func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            return _MADE_UP if args[0].is_floating_point() else 0
        if func.namespace == "_c10d_functional":  # torch's own for shapes make no call
            return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        return func(*args, **kwargs)

    def _made(self, func: Foreign, args: Foreign, kwargs: Foreign) -> Foreign:
        """What comes of no tensor: a new one, or something else."""
        with suppress(NotImplementedError, RuntimeError), self.shapes:
            made = func(*args, **kwargs)
            if _is_large(made):
                self.readings.is_unreal = True
                return made
        return func(*args, **kwargs)


def _is_large(made: Foreign) -> bool:
    floating = isinstance(made, torch.Tensor) and made.is_floating_point()
    return floating and made.numel() * made.element_size() > LARGEST


def _as_values(shape: Foreign, protocol: Foreign) -> Foreign:
    """Pickle a shape as made-up values, which take the room of one."""
    return with_values(shape).__reduce_ex__(protocol)


def with_values(shape: Foreign) -> Foreign:
    """A tensor like a shape, with values made up: one of them, as often as there are elements."""
    value = _MADE_UP if shape.is_floating_point() else 0
    return torch.tensor(value, dtype=shape.dtype).expand(tuple(shape.shape))
