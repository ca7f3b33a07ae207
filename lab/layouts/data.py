"""Data-parallel layouts: DDP, ZeRO, FSDP, HSDP, uneven collectives, mixed backends, replicas."""

from __future__ import annotations

from lab.model.draft import Draft, LayoutRequest, site
from lab.model.job import Compute, HostSync, Join, Plan, Step
from lab.model.mesh import grid

_FORWARD, _BACKWARD = Compute(0.001, 0.012), Compute(0.001, 0.02)
_LOAD = Compute(0.004)
_BACKWARD_SITE = site("train_step", 96, through="autograd")


def _start(draft: Draft, rank: int, world: int) -> None:
    """What training programs do once: broadcast parameters, meet."""
    root = draft.book.groups[world].members[0]
    draft.add(
        rank,
        draft.broadcast(world, (1024, 1024), root, site("sync_parameters", 41, "model.py")),
        draft.broadcast(world, (1024,), root, site("sync_parameters", 42, "model.py")),
        draft.barrier(world, site("setup", 33)),
        HostSync(),
    )


def _loss(draft: Draft, world: int) -> list[Step]:
    """The loss is averaged and printed: the host waits for it."""
    return [draft.all_reduce(world, (1,), site("log_metrics", 131), dtype="Float"), HostSync()]


def ddp(request: LayoutRequest) -> Plan:
    """Replicated model; gradient buckets reduced by the backward pass, asynchronously."""
    draft = Draft(request, "ddp")
    world = draft.book.default(range(request.ranks))
    buckets = [(25_000_000 // (i + 1),) for i in range(request.layers)]
    for rank in range(request.ranks):
        _start(draft, rank, world)
        for _ in range(request.steps):
            draft.add(rank, _LOAD, _FORWARD)
            for bucket in buckets:
                reduce = draft.all_reduce(world, bucket, _BACKWARD_SITE, sync=False, dtype="Float")
                draft.add(rank, _BACKWARD, reduce)
            draft.add(rank, Join(), *_loss(draft, world))
    return draft.plan()


def zero(request: LayoutRequest) -> Plan:
    """Optimizer states sharded: reduce-scatter of gradients, clipping, all-gather of parameters."""
    draft = Draft(request, "zero")
    world = draft.book.default(range(request.ranks))
    for rank in range(request.ranks):
        _start(draft, rank, world)
        for _ in range(request.steps):
            draft.add(rank, _LOAD, _FORWARD)
            for layer in range(request.layers):
                shard = (4096 * (layer + 1),)
                at = site("reduce_gradients", 58, "zero.py")
                draft.add(rank, _BACKWARD, draft.reduce_scatter(world, shard, at, sync=False))
            norm = draft.all_reduce(world, (1,), site("clip_gradients", 71, "zero.py"))
            draft.add(rank, Join(), norm)
            for layer in range(request.layers):
                shard = (4096 * (layer + 1),)
                draft.add(rank, draft.all_gather(world, shard, site("gather", 83, "zero.py")))
            draft.add(rank, *_loss(draft, world))
    return draft.plan()


def _fsdp_step(draft: Draft, shard_group: int, layers: int) -> list[Step]:
    steps: list[Step] = [_LOAD]
    for layer in range(layers):
        at = site("forward", 210 + layer, "fsdp_model.py")
        steps += [draft.all_gather(shard_group, (65_536 + 8 * layer,), at, sync=False)]
        steps += [Join(), _FORWARD]
    for layer in reversed(range(layers)):
        shard = (65_536 + 8 * layer,)
        steps += [draft.all_gather(shard_group, shard, _BACKWARD_SITE, sync=False), Join()]
        steps += [_BACKWARD, draft.reduce_scatter(shard_group, shard, _BACKWARD_SITE, sync=False)]
    return [*steps, Join()]


def fsdp(request: LayoutRequest) -> Plan:
    """Parameters sharded over all ranks, gathered layer by layer, gradients scattered."""
    draft = Draft(request, "fsdp")
    world = draft.book.default(range(request.ranks))
    for rank in range(request.ranks):
        _start(draft, rank, world)
        for _ in range(request.steps):
            draft.add(rank, *_fsdp_step(draft, world, request.layers))
            clip = draft.all_reduce(world, (1,), site("clip_grad_norm", 118), dtype="Float")
            draft.add(rank, clip, *_loss(draft, world))
    return draft.plan()


def hsdp(request: LayoutRequest) -> Plan:
    """FSDP inside a shard group, replicated between groups."""
    draft = Draft(request, "hsdp")
    everybody = range(request.ranks)
    world = draft.book.default(everybody)
    shards = 8 if request.ranks >= 32 else max(2, request.ranks // 2)  # noqa: PLR2004 - hosts of 8
    axes = {"shard": shards, "replicate": request.ranks // shards}
    shard = draft.book.split("mesh_shard", grid(everybody, axes, ["shard"]))
    replicate = draft.book.split("mesh_replicate", grid(everybody, axes, ["replicate"]))
    for rank in everybody:
        if request.world_calls:
            _start(draft, rank, world)
        for _ in range(request.steps):
            draft.add(rank, *_fsdp_step(draft, shard[rank], request.layers))
            for layer in range(request.layers):
                reduce = draft.all_reduce(
                    replicate[rank], (65_536 + 8 * layer,), _BACKWARD_SITE, sync=False
                )
                draft.add(rank, reduce)
            draft.add(rank, Join())
            draft.add(rank, *_loss(draft, world if request.world_calls else shard[rank]))
    return draft.plan()


def uneven(request: LayoutRequest) -> Plan:
    """Rooted and uneven collectives that tempt tools into false mismatches."""
    draft = Draft(request, "uneven")
    everybody = range(request.ranks)
    world = draft.book.default(everybody)
    for step in range(request.steps):
        shards = tuple((draft.rng.randrange(100, 900), 64) for _ in everybody)
        root = step % request.ranks
        for rank in everybody:
            if not step:
                _start(draft, rank, world)
            draft.add(rank, _LOAD, _FORWARD)
            at = site("collect_outputs", 52, "evaluate.py")
            draft.add(rank, draft.uneven_all_gather(world, shards, at))
            at = site("hand_out", 61, "evaluate.py")
            draft.add(rank, draft.scatter(world, rank, (16, 128), root, at))
            at = site("best_score", 70, "evaluate.py")
            draft.add(rank, draft.call(world, "reduce", ((4,),), ((4,),), at, root=root))
            at = site("collect_scores", 74, "evaluate.py")
            draft.add(rank, draft.gather(world, rank, (16,), root, at))
            draft.add(rank, *_loss(draft, world))
    return draft.plan()


def mixed(request: LayoutRequest) -> Plan:
    """DDP on NCCL with checkpoints coordinated on Gloo: two recorders per rank."""
    draft = Draft(request, "mixed")
    everybody = range(request.ranks)
    world = draft.book.default(everybody)
    side = draft.book.split("checkpoint", [tuple(everybody)], backend="gloo")
    for rank in everybody:
        _start(draft, rank, world)
        for _ in range(request.steps):
            draft.add(rank, _LOAD, _FORWARD)
            for layer in range(request.layers):
                bucket = (1_000_000 * (layer + 1),)
                reduce = draft.all_reduce(world, bucket, _BACKWARD_SITE, sync=False)
                draft.add(rank, _BACKWARD, reduce)
            draft.add(rank, Join(), *_loss(draft, world))
            at = site("save_checkpoint", 44, "checkpoint.py")
            draft.add(rank, draft.all_gather(side[rank], (1,), at, dtype="Long"))
            draft.add(rank, draft.all_gather(side[rank], (96,), at, dtype="Byte"))
            draft.add(rank, draft.barrier(side[rank], site("save_checkpoint", 47, "checkpoint.py")))
    return draft.plan()


def replicas(request: LayoutRequest) -> Plan:
    """Fault-tolerant replicas (torchft): each is a world of its own, its groups named alike."""
    draft = Draft(request, "torchft")
    size = request.ranks // 2
    for first in range(0, size * 2, size):
        members = range(first, first + size)
        world = draft.book.default(members)
        for rank in members:
            _start(draft, rank, world)
            for _ in range(request.steps):
                draft.add(rank, *_fsdp_step(draft, world, request.layers))
                draft.add(rank, *_loss(draft, world))
    plan = draft.plan()
    plan.replica_size = size
    return plan
