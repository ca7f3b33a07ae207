"""Run a program once under a setting and keep what every module and every operator gave."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from unhang.errors import UsageError

MAX_OUTPUTS = 100_000
MAX_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and in which precision the program runs."""

    device: str = "cpu"
    dtype: str = "float32"

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read "cuda:0", "cpu/bfloat16" or "cuda/float16".

        Raises:
            UsageError: If torch knows no such device or dtype.
        """
        import torch

        device, _, dtype = text.partition("/")
        try:
            torch.device(device)
        except RuntimeError as error:
            raise UsageError(
                f"torch knows no device {device!r}", "For example: cpu, cuda:0"
            ) from error
        found = getattr(torch, dtype or "float32", None)
        if not isinstance(found, torch.dtype) or not found.is_floating_point:
            raise UsageError(f"{dtype!r} is not a floating point dtype", "For example: bfloat16")
        return cls(device, dtype or "float32")

    def __str__(self) -> str:
        return f"{self.device}/{self.dtype}"


@dataclass(frozen=True, slots=True)
class Output:
    """One tensor that came out of a module or an operator, as float64 on the CPU.

    Attributes:
        name: "layers.0.mlp" or "aten.mm".
        kind: "module" or "operator".
        index: How often this name had come before.
        device: Where it was.
    """

    name: str
    kind: str
    index: int
    dtype: str
    value: Any
    device: str = ""


@dataclass(slots=True)
class Recording:
    """All outputs in the order in which they came; `cut` says that not all could be kept."""

    setting: Setting
    outputs: list[Output] = field(default_factory=list)
    cut: bool = False
    _bytes: int = 0
    _seen: dict[tuple[str, str], int] = field(default_factory=dict)

    def keep(self, name: str, kind: str, result: Any) -> None:  # noqa: ANN401 - whatever a module gives
        """Keep the floating point tensors of a result."""
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():  # our own copies are none of the program's operators
            self._keep(name, kind, result)

    def _keep(self, name: str, kind: str, result: Any) -> None:  # noqa: ANN401 - see keep
        for tensor in _tensors(result):
            if len(self.outputs) >= MAX_OUTPUTS or self._bytes >= MAX_BYTES:
                self.cut = True
                return
            index = self._seen.get((kind, name), 0)
            self._seen[kind, name] = index + 1
            value = tensor.detach().to("cpu").double()
            self._bytes += value.numel() * 8
            dtype = str(tensor.dtype).removeprefix("torch.")
            self.outputs.append(Output(name, kind, index, dtype, value, str(tensor.device)))


def _tensors(result: Any) -> Iterator[Any]:  # noqa: ANN401 - any tree of tensors
    import torch
    from torch.utils import _pytree

    for leaf in _pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            yield leaf


def record(
    program: Callable[..., Any], arguments: tuple[Any, ...], setting: Setting, *, operators: bool,
    seed: int = 0,
) -> Recording:  # fmt: skip
    """Run `program(*arguments)` once under a setting.

    Args:
        program: A module or a function. A module is copied, moved and cast; hooks name what its
            children give.
        arguments: Tensors among them are moved, floating point ones are cast; a device or a dtype
            becomes the setting's.
        setting: Device and dtype.
        operators: Whether every operator is kept as well.
        seed: For torch's generators, so that dropout and the like agree where they can.

    Raises:
        UsageError: If the device is not there.
    """
    import torch

    torch.manual_seed(seed)
    recording = Recording(setting)
    try:
        moved = tuple(_move(argument, setting) for argument in arguments)
        target = program
        if isinstance(program, torch.nn.Module):
            target = copy.deepcopy(program).to(setting.device, getattr(torch, setting.dtype))
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"{setting.device} cannot be used: {error}", "Choose another --on."
        ) from error
    with ExitStack() as stack, torch.no_grad():
        if isinstance(target, torch.nn.Module):
            stack.enter_context(_hooked(target, recording))
        if operators:
            stack.enter_context(_watch_operators(recording))
        result = target(*moved)
    recording.keep("(result)", "module", result)
    return recording


def _move(argument: Any, setting: Setting) -> Any:  # noqa: ANN401 - any argument
    import torch
    from torch.utils import _pytree

    def move(leaf: Any) -> Any:  # noqa: ANN401 - any leaf
        if isinstance(leaf, torch.device):
            return torch.device(setting.device)
        if isinstance(leaf, torch.dtype):
            return getattr(torch, setting.dtype) if leaf.is_floating_point else leaf
        if not isinstance(leaf, torch.Tensor):
            return leaf
        moved = leaf.to(setting.device)
        return moved.to(getattr(torch, setting.dtype)) if leaf.is_floating_point() else moved

    return _pytree.tree_map(move, argument)


@contextmanager
def _hooked(module: Any, recording: Recording) -> Iterator[None]:  # noqa: ANN401 - a torch module
    handles = [
        child.register_forward_hook(
            lambda _m, _i, result, name=name: recording.keep(name, "module", result)
        )
        for name, child in module.named_modules()
        if name
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _watch_operators(recording: Recording) -> Any:  # noqa: ANN401 - torch's mode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
        """Keeps what every operator below autograd gives."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204 - torch's protocol
            del types
            result = func(*args, **(kwargs or {}))
            recording.keep(str(func).rsplit(".", 1)[0], "operator", result)
            return result

    return Watch()
