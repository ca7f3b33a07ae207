"""A process group that talks to the referee alone: every way in which torch asks a group to call.

C++ finds these methods too (DDP's reducer, functional collectives): torch's trampolines look for
them. Newer torch has new names for some of them: both lead here.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

import torch
import torch.distributed as dist

from unhang.rehearse.inside.payloads import Tensor
from unhang.rehearse.inside.refusing import refuse_counts, refuse_sizes, refuse_splits
from unhang.rehearse.inside.works import Desk, RehearsedWork
from unhang.rehearse.matching.talking import Foreign


def _reduction(options: Foreign) -> str:
    asked = getattr(options, "reduceOp", "SUM")
    return str(getattr(asked, "op", asked)).rpartition(".")[2]


def _sync(options: Foreign) -> bool:
    return not getattr(options, "asyncOp", False)


_WITH_OBJECTS: Final = frozenset(
    {"all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"}
    | {"send_object_list", "recv_object_list"}
)
_NEAR: Final = 8
"""Frames of ours and torch's between a call and what carries objects by it."""


def _carries_objects() -> bool:
    """Whether objects travel by this call: on the CPU, where a group has a backend for it.

    A thread that saves a checkpoint does so while the main one trains: their calls never meet.
    """
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name in _WITH_OBJECTS:
            return True
        frame = frame.f_back
    return False


def _flat(lists: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [tensor for each in lists for tensor in each]


class RehearsedGroup(dist.ProcessGroup):  # type: ignore[misc] # torch is not typed
    """One group of one rank."""

    def __init__(
        self, desk: Desk, rank: int, size: int, key: str, backend: str, name: str, description: str
    ) -> None:
        super().__init__(rank, size)
        self.desk, self.key, self.backend, self.own_size = desk, key, backend, size
        self.name_of, self.description_of = name, description
        self.open: list[RehearsedWork] | None = None
        self.batch = -1
        self.key_of_objects = ""  # of a group with a backend for each device: the CPU's calls

    def _made(
        self,
        kind: str,
        op: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        **more: Foreign,
    ) -> RehearsedWork:
        batch = self.batch if self.open is not None else -1
        if self.key_of_objects and _carries_objects():
            more["key"] = self.key_of_objects
        work = self.desk.make(self, kind, op, inputs, outputs, batch=batch, **more)
        if self.open is not None:
            self.open.append(work)
        return work

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Not as the script named it: C++ would ask for that backend itself."""
        return "rehearsal"

    @property
    def group_name(self) -> str:
        """C++ keeps names in backends, and this has none."""
        return self.name_of

    @property
    def _device_types(self) -> list[torch.device]:
        """Both, so that objects travel on the CPU."""
        return [torch.device("cpu"), torch.device("cuda")]

    @property
    def group_desc(self) -> str:
        """As `group_name`."""
        return self.description_of

    def size(self) -> int:
        """Members."""
        return self.own_size

    supports_coalescing = supports_splitting = supports_time_estimate = False

    def _get_backend(self, device: Foreign) -> RehearsedGroup:
        """Itself: torch asks it what it supports."""
        del device
        return self

    # -- coalescing ------------------------------------------------------------------------------

    def _start_coalescing(self, device: Foreign = None) -> None:
        del device
        self.open, self.batch = [], self.desk.batches
        self.desk.batches += 1

    def _end_coalescing(self, device: Foreign = None) -> RehearsedWork:
        del device
        parts, self.open = self.open or [], None
        if parts:
            self.desk.client.tell("closed", batch=self.batch)
        work = RehearsedWork(self.desk, {}, self.rank(), _flat([p.outputs for p in parts]), parts)
        self.desk.works.append(work)
        return work

    # -- collectives -----------------------------------------------------------------------------

    def allreduce(self, tensors: Foreign, opts: Foreign = None) -> RehearsedWork:
        """`dist.all_reduce`; DDP's buckets."""
        tensors = _listed(tensors)
        how = {"reduction": _reduction(opts), "sync": _sync(opts)}
        return self._made("all_reduce", "all_reduce", tensors, tensors, **how)

    def allreduce_coalesced(self, tensors: Foreign, opts: Foreign = None) -> RehearsedWork:
        """Several at once."""
        how = {"reduction": _reduction(opts), "sync": _sync(opts)}
        return self._made("all_reduce", "allreduce_coalesced", tensors, tensors, **how)

    def broadcast(self, tensors: Foreign, opts: Foreign = None) -> RehearsedWork:
        """`dist.broadcast`."""
        tensors = _listed(tensors)
        how = {"root": opts.rootRank if opts else 0, "sync": _sync(opts)}
        return self._made("broadcast", "broadcast", tensors, tensors, **how)

    def reduce(self, tensors: Foreign, opts: Foreign = None) -> RehearsedWork:
        """`dist.reduce`."""
        tensors = _listed(tensors)
        how = {"root": opts.rootRank if opts else 0, "reduction": _reduction(opts)}
        return self._made("reduce", "reduce", tensors, tensors, sync=_sync(opts), **how)

    def _refuse_lists(self, op: str, what: str, tensors: Foreign) -> None:
        """As Gloo does; ProcessGroupNCCL of torch 2.13 takes lists of any length for these."""
        if "nccl" not in self.backend:
            refuse_counts(op, what, tensors, self.own_size)

    def allgather(self, outputs: Foreign, inputs: Foreign, opts: Foreign = None) -> RehearsedWork:
        """`dist.all_gather`."""
        for each in outputs:
            self._refuse_lists("all_gather", "output", each)
        return self._made("all_gather", "all_gather", inputs, _flat(outputs), sync=_sync(opts))

    def all_gather_single(
        self, output: Tensor, given: Tensor, opts: Foreign = None
    ) -> RehearsedWork:
        """`dist.all_gather_into_tensor`."""
        refuse_sizes("all_gather_into_tensor", output, given, self.own_size)
        return self._made("gather_one", "_all_gather_base", [given], [output], sync=_sync(opts))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Foreign, inputs: Foreign, opts: Foreign = None
    ) -> RehearsedWork:
        """Several at once."""
        name = "all_gather_into_tensor_coalesced"
        return self._made("gather_one", name, inputs, outputs, sync=_sync(opts))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self, outputs: Foreign, inputs: Foreign, opts: Foreign = None
    ) -> RehearsedWork:
        """`dist.reduce_scatter`."""
        for each in inputs:
            self._refuse_lists("reduce_scatter", "input", each)
        how = {"reduction": _reduction(opts), "sync": _sync(opts)}
        return self._made("reduce_scatter", "reduce_scatter", _flat(inputs), outputs, **how)

    def reduce_scatter_single(
        self, output: Tensor, given: Tensor, opts: Foreign = None
    ) -> RehearsedWork:
        """`dist.reduce_scatter_tensor`."""
        refuse_sizes("reduce_scatter_tensor", given, output, self.own_size)
        how = {"reduction": _reduction(opts), "sync": _sync(opts)}
        return self._made("scatter_one", "_reduce_scatter_base", [given], [output], **how)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Foreign, inputs: Foreign, opts: Foreign = None
    ) -> RehearsedWork:
        """Several at once."""
        how = {"reduction": _reduction(opts), "sync": _sync(opts)}
        name = "reduce_scatter_tensor_coalesced"
        return self._made("scatter_one", name, inputs, outputs, **how)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs: Foreign, inputs: Foreign, opts: Foreign = None) -> RehearsedWork:
        """`dist.gather`."""
        for each in outputs:
            refuse_counts("gather", "output", each, self.own_size)
        how = {"root": opts.rootRank if opts else 0, "sync": _sync(opts)}
        return self._made("gather", "gather", inputs, _flat(outputs), **how)

    def scatter(self, outputs: Foreign, inputs: Foreign, opts: Foreign = None) -> RehearsedWork:
        """`dist.scatter`."""
        for each in inputs:
            refuse_counts("scatter", "input", each, self.own_size)
        how = {"root": opts.rootRank if opts else 0, "sync": _sync(opts)}
        return self._made("scatter", "scatter", _flat(inputs), outputs, **how)

    def alltoall(self, outputs: Foreign, inputs: Foreign, opts: Foreign = None) -> RehearsedWork:
        """`dist.all_to_all`."""
        for what, tensors in (("input", inputs), ("output", outputs)):
            self._refuse_lists("all_to_all", what, tensors)
        gives, takes = [t.numel() for t in inputs], [t.numel() for t in outputs]
        how = {"gives": gives, "takes": takes, "sync": _sync(opts)}
        return self._made("all_to_all", "all_to_all", inputs, outputs, **how)

    def all_to_all_single(
        self, output: Tensor, given: Tensor, output_splits: Foreign, input_splits: Foreign,
        opts: Foreign = None,
    ) -> RehearsedWork:  # fmt: skip
        """`dist.all_to_all_single`."""
        for tensor, splits in ((given, input_splits), (output, output_splits)):
            refuse_splits("all_to_all_single", tensor, splits, self.own_size)
        how = {
            "gives": self._elements(given, input_splits),
            "takes": self._elements(output, output_splits),
            "sync": _sync(opts),
        }
        return self._made("exchange", "all_to_all", [given], [output], **how)

    alltoall_base = all_to_all_single

    def _elements(self, tensor: Tensor, splits: Foreign) -> list[int]:
        """Elements for or from each member."""
        if not splits:
            return [tensor.numel() // self.own_size] * self.own_size
        row = tensor.numel() // tensor.shape[0] if tensor.dim() and tensor.shape[0] else 0
        return [count * row for count in splits]

    def barrier(self, opts: Foreign = None) -> RehearsedWork:
        """`dist.barrier`."""
        if self.backend == "nccl":  # there it is an all-reduce of one element
            one = [torch.ones(1)]
            how = {"reduction": "SUM", "sync": _sync(opts)}
            return self._made("all_reduce", "all_reduce_barrier", one, one, **how)
        return self._made("barrier", "barrier", [], [], sync=_sync(opts))

    def monitored_barrier(self, *_: Foreign, **__: Foreign) -> None:
        """`dist.monitored_barrier`."""
        self._made("barrier", "monitored_barrier", [], []).wait()

    # -- sends and receives ----------------------------------------------------------------------

    def send(self, tensors: Foreign, peer: int, tag: int = 0) -> RehearsedWork:
        """`dist.send` and `isend`."""
        return self._made("send", "send", _listed(tensors), [], peer=peer, tag=tag)

    def recv(self, tensors: Foreign, peer: int, tag: int = 0) -> RehearsedWork:
        """`dist.recv` and `irecv`."""
        return self._made("recv", "recv", [], _listed(tensors), peer=peer, tag=tag)

    def recv_anysource(self, tensors: Foreign, tag: int = 0) -> RehearsedWork:
        """`dist.recv` from any rank."""
        return self._made("recv", "recv", [], _listed(tensors), peer=self.own_size, tag=tag)


def _listed(tensors: Foreign) -> list[Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
