"""Model-parallel layouts: TP, PP (1F1B, interleaved), 3D Megatron, MoE, context parallel."""

from __future__ import annotations

from dataclasses import dataclass

from lab.model.draft import Draft, LayoutRequest, site
from lab.model.job import Compute, HostSync, Issue, Join, Plan, Step
from lab.model.mesh import grid
from lab.model.schedules import Work, interleaved_table, one_forward_one_backward

_WORK = Compute(0.0004, 0.004)
_LOAD = Compute(0.003)
_ACTIVATION = (4096, 1, 5120)


def _axes(ranks: int, *, tensor: int, pipeline: int) -> dict[str, int]:
    """Extents of a grid, tensor fastest, then data, then pipeline, shrunk until they fit."""
    while ranks % (tensor * pipeline) or ranks < tensor * pipeline:
        if pipeline > 2 and pipeline >= tensor:  # noqa: PLR2004 - a pipeline has two stages
            pipeline //= 2
        elif tensor > 1:
            tensor //= 2
        else:
            pipeline = max(1, pipeline // 2)
    return {"tp": tensor, "dp": ranks // (tensor * pipeline), "pp": pipeline}


@dataclass(frozen=True, slots=True)
class _Cube:
    """The groups of one layout, by rank."""

    axes: dict[str, int]
    world: int
    tp: dict[int, int]
    dp: dict[int, int]
    pp: dict[int, int]


def _cube(draft: Draft, *, tensor: int, pipeline: int) -> _Cube:
    ranks = range(draft.request.ranks)
    axes = _axes(len(ranks), tensor=tensor, pipeline=pipeline)
    world = draft.book.default(ranks)
    dp = draft.book.split("DATA_PARALLEL_GROUP", grid(ranks, axes, ["dp"]))
    tp = draft.book.split("TENSOR_MODEL_PARALLEL_GROUP", grid(ranks, axes, ["tp"]))
    pp = draft.book.split("PIPELINE_MODEL_PARALLEL_GROUP", grid(ranks, axes, ["pp"]))
    return _Cube(axes, world, tp, dp, pp)


def _start(draft: Draft, cube: _Cube, rank: int) -> None:
    if draft.request.world_calls:
        draft.add(rank, draft.barrier(cube.world, site("initialize", 27)), HostSync())
    if cube.axes["dp"] > 1:
        root = draft.book.groups[cube.dp[rank]].members[0]
        at = site("broadcast_params", 88, "parallel.py")
        draft.add(rank, draft.broadcast(cube.dp[rank], (5120, 640), root, at))


def _tp_layer(draft: Draft, cube: _Cube, rank: int, function: str) -> list[Step]:
    """Two all-reduces a layer and direction, each after its matrix products."""
    if cube.axes["tp"] == 1:
        return [_WORK]
    line = 61 if function == "forward" else 74
    through = "python" if function == "forward" else "autograd"
    steps: list[Step] = []
    for part in range(2):
        at = site(function, line + part * 5, "layers.py", through)
        steps += [_WORK, draft.all_reduce(cube.tp[rank], _ACTIVATION, at)]
    return steps


def _finish_step(draft: Draft, cube: _Cube, rank: int) -> None:
    """Gradients over data-parallel peers, norm over the model, then the loss."""
    if cube.axes["dp"] > 1:
        for bucket in range(2):
            at = site("finish_grad_sync", 140, "parallel.py")
            shape = (3_000_000 + bucket,)
            draft.add(rank, draft.all_reduce(cube.dp[rank], shape, at, sync=False))
    draft.add(rank, Join())
    if cube.axes["tp"] > 1:
        at = site("grad_norm", 152, "parallel.py")
        draft.add(rank, draft.all_reduce(cube.tp[rank], (1,), at, dtype="Float"))
    if draft.request.world_calls:
        at = site("training_log", 171)
        draft.add(rank, draft.all_reduce(cube.world, (2,), at, dtype="Float"))
    draft.add(rank, HostSync(), _LOAD)


def tensor(request: LayoutRequest) -> Plan:
    """Tensor parallel inside hosts, data parallel between them."""
    draft = Draft(request, "tp")
    cube = _cube(draft, tensor=min(8, max(2, request.ranks // 2)), pipeline=1)
    for rank in range(request.ranks):
        _start(draft, cube, rank)
        for _ in range(request.steps):
            for direction in ("forward", "backward"):
                for _layer in range(request.layers):
                    draft.add(rank, *_tp_layer(draft, cube, rank, direction))
            _finish_step(draft, cube, rank)
    return draft.plan()


def pipeline(request: LayoutRequest) -> Plan:
    """1F1B pipeline, data parallel beside it."""
    draft = Draft(request, "pp")
    stages = 4 if request.ranks < 64 else 8  # noqa: PLR2004 - deeper where there is room
    return _pipelined(draft, _cube(draft, tensor=1, pipeline=stages))


def megatron(request: LayoutRequest) -> Plan:
    """3D: tensor, pipeline and data parallel."""
    draft = Draft(request, "megatron")
    tensor_ranks = 2 if request.ranks < 64 else 8  # noqa: PLR2004 - a host where there is room
    stages = 2 if request.ranks < 32 else 4 if request.ranks < 1024 else 8  # noqa: PLR2004 - same
    return _pipelined(draft, _cube(draft, tensor=tensor_ranks, pipeline=stages))


def _pipelined(draft: Draft, cube: _Cube) -> Plan:
    request = draft.request
    for rank in range(request.ranks):
        _start(draft, cube, rank)
        for _ in range(request.steps):
            draft.add(rank, *_one_step(draft, cube, rank))
            _finish_step(draft, cube, rank)
    return draft.plan()


def _one_step(draft: Draft, cube: _Cube, rank: int) -> list[Step]:
    """A stage's microbatches with Megatron's fused sends and receives."""
    members = draft.book.groups[cube.pp[rank]].members
    stage, stages = members.index(rank), len(members)
    before = members[stage - 1] if stage else -1
    after = members[stage + 1] if stage + 1 < stages else -1
    work = one_forward_one_backward(stage, stages, draft.request.microbatches)
    fused = draft.request.microbatches > stages - stage - 1
    comm = _StageComm(draft, cube.pp[rank], before, after, even=stage % 2 == 0, fused=fused)
    steps: list[Step] = comm.get_forward()
    for here, following in zip(work, [*work[1:], None], strict=True):
        for _layer in range(draft.request.layers):
            direction = "forward" if here.forward else "backward"
            steps += _tp_layer(draft, cube, rank, direction)
        next_forward = following is not None and following.forward
        steps += comm.after(forward=here.forward, next_forward=next_forward, last=following is None)
    return steps


@dataclass(frozen=True, slots=True)
class _StageComm:
    """What one stage sends and receives between two pieces of work.

    Attributes:
        fused: There is a steady state, in which sends and receives go together.
    """

    draft: Draft
    group: int
    before: int
    after_: int
    even: bool
    fused: bool

    def _both(self, name: str, line: int, out: int, source: int) -> list[Step]:
        """Send to `out` and receive from `source` (-1: nothing), as one exchange."""
        at = site(name, line, "p2p_communication.py")
        issues = []
        if out >= 0:
            issues.append(self.draft.send(self.group, out, _ACTIVATION, at))
        if source >= 0:
            issues.append(self.draft.receive(self.group, source, _ACTIVATION, at))
        return self.draft.exchange(issues if self.even else issues[::-1], at)

    def get_forward(self) -> list[Step]:
        """The first activation from the stage before."""
        return self._both("recv_forward", 210, -1, self.before)

    def after(self, *, forward: bool, next_forward: bool, last: bool) -> list[Step]:
        """Hand on the result of a piece of work and get what the next piece needs."""
        if forward and next_forward:
            sent = self._both("send_forward", 231, self.after_, -1)
            return [*sent, *self._both("recv_forward", 210, -1, self.before)]
        if forward and not self.fused:
            sent = self._both("send_forward", 231, self.after_, -1)
            return [*sent, *self._both("recv_backward", 315, -1, self.after_)]
        if forward:
            return self._both("send_forward_recv_backward", 252, self.after_, self.after_)
        if next_forward:
            return self._both("send_backward_recv_forward", 273, self.before, self.before)
        sent = self._both("send_backward", 294, self.before, -1)
        return sent if last else [*sent, *self._both("recv_backward", 315, -1, self.after_)]


def interleaved(request: LayoutRequest) -> Plan:
    """Interleaved 1F1B: two model chunks a rank, one batch of sends and receives a tick."""
    draft = Draft(request, "pp-interleaved")
    cube = _cube(draft, tensor=1, pipeline=4)
    stages = cube.axes["pp"]
    table = interleaved_table(stages, 2, max(stages, request.microbatches // stages * stages))
    for rank in range(request.ranks):
        _start(draft, cube, rank)
        for _ in range(request.steps):
            for row in table:
                own = draft.book.groups[cube.pp[rank]].members.index(rank)
                if row[own] is not None:
                    draft.add(rank, _WORK)
                at = site("_step_microbatches", 402, "schedules.py")
                issues = _tick(draft, cube.pp[rank], own, row)
                draft.add(rank, *draft.exchange(issues, at))
            _finish_step(draft, cube, rank)
    return draft.plan()


def _tick(draft: Draft, group: int, own: int, row: list[Work | None]) -> list[Issue]:
    """What one stage sends and receives at one tick: its own result, its neighbours' results."""
    members = draft.book.groups[group].members
    stages = len(members)
    at = site("_step_microbatches", 402, "schedules.py")
    issues = []
    for stage, work in enumerate(row):
        if work is None:
            continue
        depth = work.chunk * stages + stage + (1 if work.forward else -1)
        if not 0 <= depth < 2 * stages:
            continue
        target = depth % stages
        if stage == own:
            issues.append(draft.send(group, members[target], _ACTIVATION, at))
        elif target == own:
            issues.append(draft.receive(group, members[stage], _ACTIVATION, at))
    return issues


def moe(request: LayoutRequest) -> Plan:
    """Experts spread over ranks: uneven all-to-all out and back, per layer and direction."""
    draft = Draft(request, "moe")
    ranks = range(request.ranks)
    experts = min(8, max(2, request.ranks // 2))
    axes = {"ep": experts, "dp": request.ranks // experts}
    world = draft.book.default(ranks)
    ep = draft.book.split("EXPERT_MODEL_PARALLEL_GROUP", grid(ranks, axes, ["ep"]))
    dp = draft.book.split("EXPERT_DATA_PARALLEL_GROUP", grid(ranks, axes, ["dp"]))
    for rank in ranks:
        if request.world_calls:
            draft.add(rank, draft.barrier(world, site("initialize", 27)), HostSync())
    for _ in range(request.steps):
        for line in (118, 124):
            for _layer in range(request.layers):
                _route(draft, ep, line)
        for rank in ranks:
            at = site("finish_grad_sync", 140, "parallel.py")
            draft.add(rank, draft.all_reduce(dp[rank], (1_500_000,), at, sync=False), Join())
            at = site("log_balance", 188, "moe.py")
            draft.add(rank, draft.all_reduce(ep[rank], (experts,), at, dtype="Float"))
            draft.add(rank, HostSync(), _LOAD)
    return draft.plan()


def _route(draft: Draft, ep: dict[int, int], line: int) -> None:
    """Send tokens to experts and get them back: what one rank takes, all others give."""
    tokens = 2048
    for group in dict.fromkeys(ep.values()):
        members = draft.book.groups[group].members
        spread = [draft.rng.randrange(-200, 201) for _ in members]
        spread[-1] -= sum(spread)
        for rank, extra in zip(members, spread, strict=True):
            mine, theirs = (tokens, 5120), (tokens + extra, 5120)
            out = site("dispatch", line, "moe.py")
            back = site("combine", line + 2, "moe.py")
            draft.add(rank, _WORK, draft.all_to_all(group, theirs, mine, out))
            draft.add(rank, _WORK, draft.all_to_all(group, mine, theirs, back))


def context(request: LayoutRequest) -> Plan:
    """Context parallel: keys and values travel around a ring of batched exchanges."""
    draft = Draft(request, "cp")
    ranks = range(request.ranks)
    ring = 4 if request.ranks >= 8 else request.ranks // 2  # noqa: PLR2004 - rings of four
    axes = {"cp": max(2, ring), "dp": request.ranks // max(2, ring)}
    world = draft.book.default(ranks)
    cp = draft.book.split("CONTEXT_PARALLEL_GROUP", grid(ranks, axes, ["cp"]))
    dp = draft.book.split("DATA_PARALLEL_GROUP", grid(ranks, axes, ["dp"]))
    for rank in ranks:
        members = draft.book.groups[cp[rank]].members
        own = members.index(rank)
        after, before = members[(own + 1) % len(members)], members[own - 1]
        at = site("ring_attention", 77, "context.py")
        exchange = [
            draft.send(cp[rank], after, (2, 8, 2048, 128), at),
            draft.receive(cp[rank], before, (2, 8, 2048, 128), at),
        ]
        if request.world_calls:
            draft.add(rank, draft.barrier(world, site("initialize", 27)), HostSync())
        for _ in range(request.steps):
            for _layer in range(request.layers):
                for _hop in range(len(members) - 1):
                    draft.add(rank, _WORK, *draft.exchange(exchange[:: 1 - 2 * (own % 2)], at))
            reduce_at = site("finish_grad_sync", 140, "parallel.py")
            draft.add(rank, draft.all_reduce(dp[rank], (3_000_000,), reduce_at, sync=False), Join())
            loss_at = site("average_loss", 160)
            draft.add(rank, draft.all_reduce(cp[rank], (1,), loss_at, dtype="Float"))
            draft.add(rank, HostSync(), _LOAD)
    return draft.plan()
