"""GPUs that are not there: what asks for one gets the CPU, and what asks about one gets an answer.

A mode of torch's reads every call's device; functions of `torch.cuda` are replaced one by one. It
refuses to imitate what a GPU computes or how fast.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import functools
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from unhang.rehearse.inside.payloads import is_shape
from unhang.rehearse.inside.readings import READS, SHOWS, Readings
from unhang.rehearse.inside.valueless import with_values
from unhang.rehearse.matching.talking import Foreign

if TYPE_CHECKING:
    from typing_extensions import Self

_MEMORY: Final = 80 << 30
_CUDA: Final = "12.8"
"""Of a torch that is built for CPUs: scripts and torch itself ask before they use a feature."""


def _on_cpu(value: Foreign) -> Foreign:
    """A device as it is to be; anything else as it is."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


_FIRST_IS_DEVICE: Final = {
    "to": 1, "_parse_to": 0,
    **dict.fromkeys(("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"), -1),
}  # fmt: skip
"""Functions that take a device by place, and where it may be a bare number."""


class NoDevices(TorchFunctionMode):  # type: ignore[misc] # torch is not typed
    """Every call of torch: no tensor is on a GPU, in pinned memory, or on a stream."""

    def __init__(self, readings: Readings) -> None:
        super().__init__()
        self.readings = readings

    def __torch_function__(
        self, func: Foreign, types: Foreign, args: Foreign = (), kwargs: Foreign = None
    ) -> Foreign:
        """Called by torch in the place of `func`."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func is torch.device and args and isinstance(args[0], int):
            return torch.device("cuda", args[0])
        if name in ("cuda", "pin_memory") and args:
            return args[0]
        if name in READS:
            self.readings.value(name)
        if name in READS or name in SHOWS:
            args = tuple(with_values(arg) if is_shape(arg) else arg for arg in args)
        if kwargs:
            kwargs = {key: _on_cpu(value) for key, value in kwargs.items() if key != "pin_memory"}
            if isinstance(kwargs.get("device"), int):
                kwargs["device"] = "cpu"
        if name in _FIRST_IS_DEVICE:
            place = _FIRST_IS_DEVICE[name]
            args = tuple(
                "cpu" if type(arg) is int and number == place else _on_cpu(arg)
                for number, arg in enumerate(args)
            )
        return func(*args, **kwargs)


class _Stream:
    """A stream or an event: everything on it has happened."""

    cuda_stream, device_index, stream_id, priority = 0, 0, 0, 0

    def __init__(self, *_: Foreign, **__: Foreign) -> None:
        self.device = torch.device("cuda", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Foreign) -> float:
        return 1.0

    def record_event(self, event: Foreign = None) -> Foreign:
        return event or _Stream()

    def _nothing(self, *_: Foreign, **__: Foreign) -> None:
        pass

    record = wait = synchronize = wait_stream = wait_event = _nothing

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5


class _Absent:
    """A library of CUDA's that is not there: whatever is called in it says 0, which is success."""

    def __init__(self, *_: Foreign, **__: Foreign) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _saying(0)


def _graph_class(readings: Readings) -> type:
    """Of graphs whose capture runs what it captures, and whose replay runs nothing."""

    class Graph:
        def __init__(self, *_: Foreign, **__: Foreign) -> None:
            pass

        def _nothing(self, *_: Foreign, **__: Foreign) -> None:
            pass

        capture_begin = capture_end = reset = enable_debug_mode = debug_dump = _nothing
        pool = _saying((0, 0))

        def replay(self) -> None:
            readings.note("torch.cuda.CUDAGraph.replay")

    return Graph


class _Properties(SimpleNamespace):
    """What a device says of itself."""


def _local() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _count() -> int:
    """One for each local rank; a node's where the script starts its ranks itself."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "8"))


def _answers() -> dict[str, Any]:
    """What functions of `torch.cuda` say."""
    properties = _Properties(
        name="rehearsal",
        total_memory=_MEMORY,
        major=9,
        minor=0,
        multi_processor_count=132,
        warp_size=32,
        L2_cache_size=50 << 20,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 << 10,
        is_integrated=0,
        is_multi_gpu_board=0,
    )
    stream = _Stream()
    return {
        "is_available": True, "is_initialized": True, "is_bf16_supported": True,
        "get_device_name": "rehearsal", "get_device_properties": properties,
        "get_device_capability": (9, 0),
        "initial_seed": 0, "current_stream": stream, "default_stream": stream,
        "can_device_access_peer": True, "memory_summary": "", "get_arch_list": ["sm_90"],
        "is_current_stream_capturing": False, "is_tf32_supported": True,
        "graph_pool_handle": (0, 0), "memory_snapshot": [], "list_gpu_processes": "",
        "get_sync_debug_mode": 0, "get_per_process_memory_fraction": 1.0, "cudart": _Absent(),
        "current_blas_handle": 0, "get_stream_from_external": stream,
    }  # fmt: skip


_NOTHING: Final = (
    "synchronize", "empty_cache", "init", "_lazy_init", "_lazy_call", "manual_seed",
    "manual_seed_all", "seed", "seed_all", "set_stream", "ipc_collect", "set_rng_state",
    "set_rng_state_all", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "reset_accumulated_memory_stats", "reset_max_memory_cached", "set_per_process_memory_fraction",
    "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats", "set_sync_debug_mode",
    "change_current_allocator", "caching_allocator_alloc", "caching_allocator_delete",
    "caching_allocator_enable", "_sleep",
)  # fmt: skip
_ZERO: Final = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
    "memory_cached", "max_memory_cached", "utilization", "temperature", "memory_usage",
    "device_memory_used", "power_draw", "clock_rate",
)  # fmt: skip


def replace_cuda(readings: Readings, env_device: Callable[[], int] = _local) -> None:
    """Let `torch.cuda` answer as on a node with a GPU for each local rank."""
    cuda: Foreign = torch.cuda
    chosen: list[int] = []

    def set_device(device: Foreign) -> None:
        index = getattr(device, "index", device)
        chosen[:] = [index if isinstance(index, int) else env_device()]

    for name, value in _answers().items():
        setattr(cuda, name, _saying(value))
    for name in _NOTHING:
        setattr(cuda, name, _saying(None))
    for name in _ZERO:
        setattr(cuda, name, _saying_and_noting(readings, name, 0))
    for name in ("memory_stats", "host_memory_stats", "memory_stats_as_nested_dict"):
        setattr(cuda, name, _saying_and_noting(readings, name, defaultdict(int)))
    cuda.mem_get_info = _saying_and_noting(readings, "mem_get_info", (_MEMORY, _MEMORY))
    cuda.set_device = set_device
    cuda.current_device = lambda: chosen[0] if chosen else 0
    cuda.device_count = _count
    cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()] * _count()
    cuda.Stream = cuda.Event = cuda.ExternalStream = _Stream
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = _graph_class(readings)
    cuda.make_graphed_callables = lambda callables, *_, **__: callables
    cuda.MemPool = cuda.CUDAPluggableAllocator = _Absent
    for name in ("stream", "device", "device_of", "graph", "use_mem_pool"):
        setattr(cuda, name, lambda *_, **__: nullcontext())
    for name in ("_record_memory_history", "_dump_snapshot", "_snapshot"):
        setattr(cuda.memory, name, _saying(None))
    cuda.profiler = SimpleNamespace(start=_saying(None), stop=_saying(None), init=_saying(None))
    cuda.profiler.profile = nullcontext
    cuda.nccl.version = _saying((2, 27, 5))
    torch.version.cuda = torch.version.cuda or _CUDA
    cuda.nvtx = SimpleNamespace(
        range_push=_saying(0), range_pop=_saying(0), mark=_saying(None),
        range=lambda *_, **__: nullcontext(),
    )  # fmt: skip
    _replace_elsewhere()


def _saying(value: Foreign) -> Callable[..., Any]:
    return lambda *_, **__: value


def _saying_and_noting(readings: Readings, name: str, value: Foreign) -> Callable[..., Any]:
    def said(*_: Foreign, **__: Foreign) -> Foreign:
        readings.note(f"torch.cuda.{name}")
        return value

    return said


def _replace_elsewhere() -> None:
    """What takes a device outside of torch's functions."""
    torch.set_default_device = _first_on_cpu(torch.set_default_device)
    torch.load = _first_on_cpu(torch.load)
    torch.Tensor.cuda = lambda self, *_, **__: self
    for cls in (torch.autocast, DeviceContext):
        cls.__init__ = _first_on_cpu(cls.__init__)
    torch.Tensor.pin_memory = lambda self, *_, **__: self
    torch.Tensor.record_stream = lambda *_, **__: None  # its own would not take our streams
    torch.Generator = _CpuGenerator
    if hasattr(torch, "accelerator"):
        _replace_accelerator(torch.accelerator)


class _CpuGenerator(torch.Generator):  # type: ignore[misc] # torch is not typed
    """Random numbers of a device that is not there."""

    def __new__(cls, device: Foreign = "cpu") -> Self:
        made: Self = super().__new__(cls, device=_on_cpu(device))
        return made


def _replace_accelerator(module: Foreign) -> None:
    """Newer names for the same. Torch's own parts ask here what is really there."""
    answers = {
        "is_available": True, "current_accelerator": torch.device("cuda"),
        "device_count": _count(), "current_device_index": 0, "current_device_idx": 0,
        "set_device_index": None, "set_device_idx": None, "synchronize": None,
        "empty_cache": None, "current_stream": _Stream(), "set_stream": None,
        "memory_stats": defaultdict(int), "memory_allocated": 0, "memory_reserved": 0,
        "max_memory_allocated": 0, "max_memory_reserved": 0, "reset_peak_memory_stats": None,
        "reset_accumulated_memory_stats": None,
    }  # fmt: skip
    for name, value in answers.items():
        real = getattr(module, name, None)
        if real is not None:
            setattr(module, name, _saying_to_scripts(real, value))


def _saying_to_scripts(real: Foreign, value: Foreign) -> Callable[..., Any]:
    def said(*args: Foreign, **kwargs: Foreign) -> Foreign:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return real(*args, **kwargs) if asks.split(".")[0] == "torch" else value

    return said


def _first_on_cpu(function: Foreign) -> Foreign:
    """The function, with no GPU among what it is given."""

    @functools.wraps(function)
    def moved(*args: Foreign, **kwargs: Foreign) -> Foreign:
        named = {key: _on_cpu(value) for key, value in kwargs.items()}
        return function(*map(_on_cpu, args), **named)

    return moved
