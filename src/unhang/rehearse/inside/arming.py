"""Let torch.distributed of one rank make our groups and stores, whatever the script asks for."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import functools
import os
import sys
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.distributed.tensor._collective_utils as sharding

from unhang.rehearse.inside.devices import replace_cuda
from unhang.rehearse.inside.group import RehearsedGroup
from unhang.rehearse.inside.norms import arm_norms
from unhang.rehearse.inside.store import RehearsedStore
from unhang.rehearse.inside.works import Desk
from unhang.rehearse.matching.talking import Foreign

NAME = "rehearsal"
_BACKEND: Final = 2
_LOCAL: Final = 5
"""Where `new_group` learns that its members alone call it."""


_PAIRS_APART: Final = os.environ.get("TORCH_DIST_USE_NCCL2", "") == "0" or (
    not hasattr(c10d, "_maybe_attach_flight_recorder")
)
"""Whether an `nccl` group that is not bound to a device carries single sends by communicators of
two ranks: ProcessGroupNCCL does, ProcessGroupNCCL2 (torch 2.15) does not."""


class _Making:
    """The group that torch is about to make: who is in it, and what the script called it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.backend = ""
        self.ranks: list[int] = []
        self.name = self.description = ""
        self.has_both = False

    def group(self, store: Foreign, rank: int, size: int, timeout: Foreign) -> RehearsedGroup:
        """As torch asks a backend for a group."""
        del store
        ranks = self.ranks or list(range(size))
        key = f"{self.name}/{','.join(map(str, ranks))}"
        how = {"ranks": ranks, "timeout_ms": int(timeout.total_seconds() * 1000)}
        told = {"name": self.name, "description": self.description, "backend": self.backend}
        how["pairs_apart"] = self.backend == "nccl" and not self.desk.is_bound and _PAIRS_APART
        self.desk.client.tell("group", key=key, **told, **how)
        made = RehearsedGroup(self.desk, rank, size, key, self.backend, self.name, self.description)
        if self.has_both:
            made.key_of_objects = f"{key}/cpu"
            told = {"name": f"{self.name}:cpu", "description": f"{self.description}, CPU"}
            self.desk.client.tell("group", key=made.key_of_objects, backend="gloo", **told, **how)
        return made


def arm(desk: Desk, max_steps: int) -> None:
    """Replace what reaches for devices and networks.

    Args:
        desk: This rank's.
        max_steps: The rank ends after so many optimizer steps; 0 for the script's own end.
    """
    making = _Making(desk)
    dist.Backend.register_backend(NAME, making.group, devices=["cpu", "cuda"])
    _replace("_new_process_group_helper", functools.partial(_helper, making))
    _replace("init_process_group", functools.partial(_init, desk))
    _replace("_new_group_with_tag", functools.partial(_new_group, desk))
    _replace("split_group", functools.partial(_split, desk))
    for name in ("is_nccl_available", "is_gloo_available", "is_backend_available"):
        _replace(name, lambda _real, *_: True)
    if hasattr(c10d, "_maybe_attach_flight_recorder"):  # 2.15: the referee is recorder enough
        _replace("_maybe_attach_flight_recorder", lambda *_, **__: None)
    _replace("_get_default_timeout", lambda _real, *_: timedelta(minutes=10))
    for name in ("TCPStore", "FileStore", "HashStore"):
        _replace(name, functools.partial(_store, desk))
    _replace("batch_isend_irecv", _batch)
    _replace("monitored_barrier", lambda _real, group=None, *_, **__: dist.barrier(group))
    replace_cuda(desk.readings)
    _arm_meshes()
    _arm_wrappers()
    arm_norms()
    _count_steps(desk, max_steps)


def _replace(name: str, wrapper: Foreign) -> None:
    """Put a wrapper, which takes the original first, wherever torch.distributed names it."""
    real = next(filter(None, (getattr(home, name, None) for home in (c10d, dist, sharding))))

    @functools.wraps(real)
    def wrapped(*args: Foreign, **kwargs: Foreign) -> Foreign:
        return wrapper(real, *args, **kwargs)

    for module in list(sys.modules.values()):
        ours = getattr(module, "__name__", "").startswith("torch.distributed")
        if ours and module.__dict__.get(name) is real:
            setattr(module, name, wrapped)


def _replace_in(module: Foreign, name: str, wrapped: Foreign) -> None:
    """As `_replace`, of another module's."""
    setattr(module, name, wrapped)
    if hasattr(dist, name):
        setattr(dist, name, wrapped)


def _helper(making: _Making, real: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
    """`_new_process_group_helper` with our backend, under the script's own name."""
    size, rank, ranks, backend, store, name, *rest = args
    asked = str(backend)
    nccl = asked == "undefined" or "nccl" in asked or "cuda" in asked
    making.backend = "nccl" if nccl else "gloo"
    making.has_both = nccl and (asked == "undefined" or "gloo" in asked)
    making.ranks, making.name = list(ranks), str(name)
    making.description = str(kwargs.get("group_desc") or "undefined")
    kwargs |= {key: None for key in ("device_id", "backend_options", "pg_options") if key in kwargs}
    group, prefix = real(size, rank, ranks, dist.Backend(NAME), store, name, *rest, **kwargs)
    if group in c10d._world.pg_map:
        c10d._world.pg_map[group] = (making.backend, prefix)
        c10d._world.pg_backend_config[group] = f"cpu:{making.backend},cuda:{making.backend}"
    return group, prefix


def _new_group(desk: Desk, real: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
    """`new_group`, which torch wants of every rank, also of those that are not in it.

    Where the default group was bound to a device, NCCL splits its communicator, on all ranks.
    """
    ranks = args[0] if args else kwargs.get("ranks")
    alone = args[5] if len(args) > _LOCAL else kwargs.get("use_local_synchronization")
    backend = args[2] if len(args) > _BACKEND else kwargs.get("backend")
    if ranks and not alone:
        desk.client.tell("asked", ranks=sorted(ranks), **desk.place())
        if desk.is_bound and "nccl" in str(backend or "nccl"):
            dist.group.WORLD._made("barrier", "new_group", [], []).wait()
    return real(*args, **kwargs)


def _split(
    desk: Desk, real: Foreign, parent_pg: Foreign = None, split_ranks: Foreign = None,
    timeout: Foreign = None, pg_options: Foreign = None, group_desc: Foreign = None,
    **more: Foreign,
) -> Foreign:  # fmt: skip
    """`split_group`: a call of its parent's members, and a group for those of one part."""
    del real, pg_options, more
    parent = parent_pg or dist.group.WORLD
    parent._made("barrier", "split_group", [], []).wait()
    members = dist.get_process_group_ranks(parent)
    for part in split_ranks:
        ranks = [members[each] for each in part]
        if desk.client.rank in ranks:
            alone = {"use_local_synchronization": True, "group_desc": group_desc}
            return dist.new_group(ranks, timeout=timeout, **alone)
    return None


def _init(
    desk: Desk, real: Foreign, backend: Foreign = None, *args: Foreign, **kwargs: Foreign
) -> Foreign:
    """`init_process_group` over our store."""
    names = ("init_method", "timeout", "world_size", "rank", "store", "group_name", "pg_options")
    given = dict(zip(names, args, strict=False)) | kwargs
    rank, size = given.get("rank", -1), given.get("world_size", -1)
    rank = int(os.environ["RANK"]) if rank is None or rank < 0 else rank
    size = int(os.environ["WORLD_SIZE"]) if size is None or size < 0 else size
    desk.client.rank, desk.client.joined = rank, os.getpid()
    desk.client.tell("init", rank=rank, world=size, parent=os.getppid(), **desk.place())
    desk.is_bound = given.get("device_id") is not None and str(backend) != "gloo"
    kept = {k: v for k, v in given.items() if k in ("timeout", "group_name") and v is not None}
    return real(backend, store=RehearsedStore(desk), rank=rank, world_size=size, **kept)


def _batch(real: Foreign, ops: Foreign) -> Foreign:
    """Sends and receives at once: on NCCL one launch, which torch tells by the type of a group."""
    group = (ops[0].group or dist.group.WORLD) if ops else None
    if getattr(group, "backend", "") != "nccl":
        return real(ops)
    c10d._check_p2p_op_list(ops)
    with c10d._coalescing_manager(group, torch.device("cuda"), async_ops=True) as launch:
        for each in ops:
            side = "group_dst" if each.op is dist.isend else "group_src"
            each.op(each.tensor, group=group, tag=each.tag, **{side: each.group_peer})
    return launch.works


def _store(desk: Desk, real: Foreign, *args: Foreign, **kwargs: Foreign) -> RehearsedStore:
    """Any store by its address, which all ranks give alike."""
    place = [*map(str, args[:2]), str(kwargs.get("port", "")), str(kwargs.get("file_name", ""))]
    return RehearsedStore(desk, f"{real.__name__}:{':'.join(place)}")


def _arm_meshes() -> None:
    """Meshes of GPUs become meshes of CPUs."""
    import torch.distributed.device_mesh as meshes

    def on_cpu(function: Foreign) -> Foreign:
        @functools.wraps(function)
        def moved(*args: Foreign, **kwargs: Foreign) -> Foreign:
            args = tuple("cpu" if is_gpu(arg) else arg for arg in args)
            kwargs = {key: "cpu" if is_gpu(arg) else arg for key, arg in kwargs.items()}
            return function(*args, **kwargs)

        return moved

    def is_gpu(arg: Foreign) -> bool:
        return isinstance(arg, str) and arg == "cuda"

    _replace("shard_dim_alltoall", _as_on_gpu)
    meshes.DeviceMesh.__init__ = on_cpu(meshes.DeviceMesh.__init__)
    _replace_in(meshes, "init_device_mesh", on_cpu(meshes.init_device_mesh))


def _as_on_gpu(
    real: Foreign, given: Foreign, gather_dim: int, shard_dim: int, mesh: Foreign, mesh_dim: int
) -> Foreign:
    """DTensor's exchange of shards: on a mesh of CPUs torch would gather in its place."""
    kept, mesh._device_type = mesh._device_type, "cuda"
    try:
        return real(given, gather_dim, shard_dim, mesh, mesh_dim)
    finally:
        mesh._device_type = kept


def _arm_wrappers() -> None:
    """DDP and FSDP take no devices by number where there are none."""
    from torch.distributed.fsdp import FullyShardedDataParallel, _init_utils, api
    from torch.nn.parallel import DistributedDataParallel

    real: Foreign = DistributedDataParallel.__init__

    @functools.wraps(real)
    def replicated(self: Foreign, module: Foreign, *args: Foreign, **kwargs: Foreign) -> None:
        kwargs |= {name: None for name in ("device_ids", "output_device") if name in kwargs}
        real(self, module, *(None for _ in args[:2]), *args[2:], **kwargs)

    sharded: Foreign = FullyShardedDataParallel.__init__

    @functools.wraps(sharded)
    def on_cpu(self: Foreign, module: Foreign, *args: Foreign, **kwargs: Foreign) -> None:
        kwargs["device_id"] = torch.device("cpu")
        sharded(self, module, *args, **kwargs)

    _init_utils._check_module_states_for_sync_module_states = lambda *_: None  # wants GPUs
    for config in (api.FullStateDictConfig, api.ShardedStateDictConfig):
        config.__init__ = _not_offloading(config.__init__)
    DistributedDataParallel.__init__ = replicated
    FullyShardedDataParallel.__init__ = on_cpu


def _not_offloading(real: Foreign) -> Foreign:
    """A copy that FSDP takes to the CPU would be none here, and its memory is freed after it."""

    @functools.wraps(real)
    def made(self: Foreign, *args: Foreign, **kwargs: Foreign) -> None:
        real(self, *args, **kwargs)
        self.offload_to_cpu = False

    return made


def _count_steps(desk: Desk, most: int) -> None:
    """Tell each step of the rank's first optimizer, and end the rank after some of any one."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    done: dict[int, int] = {}

    def count(optimizer: torch.optim.Optimizer, *_: Foreign) -> None:
        done[id(optimizer)] = done.get(id(optimizer), 0) + 1
        if next(iter(done)) == id(optimizer):
            desk.client.tell("step")
        if most and done[id(optimizer)] >= most:
            raise SystemExit(0)

    register_optimizer_step_post_hook(count)
