"""Jobs of the NCCL lab as plans: what the simulator writes of them must be what torch wrote.

Each function is one of `lab/nccl/jobs/hosts.py`, call by call; shapes and dtypes are those of the
newest format.
"""

from __future__ import annotations

from collections.abc import Callable

from lab.model.job import Bundle, HostSync, Issue, Plan, Shapes, Site, Step, Stop
from unhang.model import Group, Shape

_SITE = Site("job", "/home/user/job/hosts.py", 1)
_WORLD, _WARM_UP = 0, (1,)
PLANS: dict[str, Callable[[], Plan]] = {}
"""By the job's name."""


def _job(function: Callable[[], Plan]) -> Callable[[], Plan]:
    PLANS[function.__name__.removeprefix("_")] = function
    return function


def _call(op: str, *shape: int, group: int = _WORLD, **more: object) -> Issue:
    return _uneven(op, (shape,), (shape,), group=group, **more)


def _uneven(
    op: str, inputs: Shapes, outputs: Shapes, *, group: int = _WORLD, **more: object
) -> Issue:
    return Issue(group, op, inputs, outputs, _SITE, dtype="Float", **more)  # type: ignore[arg-type] # Issue's own fields


def _world(size: int = 4) -> Group:
    return Group("0", "default_pg", tuple(range(size)), backend="nccl")


def _plan(program: Callable[[int], list[Step]], *groups: Group, size: int = 4) -> Plan:
    """Every rank warms up, as in `join`, and then runs its program."""
    warm: list[Step] = [_call("all_reduce", *_WARM_UP), HostSync()]
    programs = [[*warm, *program(rank)] for rank in range(size)]
    return Plan("nccl-lab", [_world(size), *groups], programs, ranks_per_host=8, ends=False)


def _exchange(rank: int, size: int, shape: Shape) -> Bundle:
    right, left = (rank + 1) % size, (rank - 1) % size
    return Bundle((_call("send", *shape, peer=right), _call("recv", *shape, peer=left)), _SITE)


@_job
def _stall() -> Plan:
    def program(rank: int) -> list[Step]:
        step: list[Step] = [_call("all_reduce", 4096), HostSync()]
        return [*step * 5, Stop()] if rank == 2 else step * 20  # noqa: PLR2004 - the job's own

    return _plan(program)


@_job
def _skipped_call() -> Plan:
    def program(rank: int) -> list[Step]:
        a, b, c = (_call("all_reduce", n) for n in (4096, 8192, 1024))
        whole: list[Step] = [a, b, c, HostSync()]
        short: list[Step] = [a, c, HostSync()]
        return [*whole * 3, *(short if rank == 1 else whole), *whole * 2]

    return _plan(program)


@_job
def _healthy_ring() -> Plan:
    return _plan(lambda r: [_exchange(r, 4, (1024,)), _call("all_reduce", 1024), HostSync()] * 6)


@_job
def _ring_stall() -> Plan:
    def program(rank: int) -> list[Step]:
        hop: list[Step] = [_exchange(rank, 8, (2, 64)), HostSync()]
        step: list[Step] = [*hop * 3, _call("all_reduce", 2, 64), HostSync()]
        return [*step * 3, *hop, Stop()] if rank == 5 else step * 5  # noqa: PLR2004 - the job's own

    return _plan(program, size=8)


@_job
def _healthy_all() -> Plan:
    parts = ((64,),) * 4

    def program(rank: int) -> list[Step]:
        root = parts if rank == 0 else ((0,),)
        shards = tuple((16 + 8 * other,) for other in range(4))
        uneven = Bundle(
            tuple(_call("_broadcast_oop", *shard, root=r) for r, shard in enumerate(shards)),
            _SITE,
            closing="ALLGATHER_coalesced",
        )
        pair = [_call("send" if rank == 0 else "recv", 64, peer=1 - rank)] if rank < 2 else []  # noqa: PLR2004
        step: list[Step] = [
            _call("all_reduce", 64),
            _call("broadcast", 64, root=1),
            _call("reduce", 64, root=2),
            _uneven("all_gather", ((64,),), ((4, 64),)),
            uneven,
            _uneven("_all_gather_base", ((64,),), ((256,),)),
            _uneven("reduce_scatter", ((4, 64),), ((64,),)),
            _uneven("_reduce_scatter_base", ((256,),), ((64,),)),
            _call("all_to_all", 256),
            _uneven("all_to_all", parts, parts),
            _uneven("gather", ((64,),), root, root=0),
            _uneven("scatter", ((64,),), root, root=0),
            _call("all_reduce", 64, group=1 + rank // 2),
            _call("all_reduce_barrier", 1),
            HostSync(),
            *pair,
            HostSync(),
        ]
        return step * 3

    halves = (Group(str(1 + h), "", (2 * h, 2 * h + 1), backend="nccl") for h in (0, 1))
    return _plan(program, *halves)


@_job
def _coalesced_stall() -> Plan:
    def program(rank: int) -> list[Step]:
        wholes, parts = ((256,), (512,)), ((64,), (128,))
        sums = Bundle((_uneven("allreduce_coalesced", wholes, wholes),), _SITE)
        scattered = Bundle((_uneven("reduce_scatter_tensor_coalesced", wholes, parts),), _SITE)
        both: list[Step] = [sums, scattered]
        step: list[Step] = [*both, _call("all_reduce", 256), HostSync()]
        return [*step * 4, *both, Stop()] if rank == 1 else step * 6

    return _plan(program)


@_job
def _circle() -> Plan:
    def program(rank: int) -> list[Step]:
        send = _call("send", 64, peer=(rank + 1) % 4)
        receive = _call("recv", 64, peer=(rank - 1) % 4)
        turns: list[Step] = [send, receive] if rank % 2 == 0 else [receive, send]
        barrier = _call("all_reduce_barrier", 1)
        return [turns[0], HostSync(), turns[1], HostSync(), barrier, HostSync(),
                receive, HostSync(), send, HostSync()]  # fmt: skip

    return _plan(program)


@_job
def _mesh_stall() -> Plan:
    groups = (("1", "tp", (0, 1)), ("2", "tp", (2, 3)), ("3", "dp", (0, 2)), ("4", "dp", (1, 3)))

    def program(rank: int) -> list[Step]:
        layer: list[Step] = [_call("all_reduce", 512, group=1 + rank // 2), HostSync()]
        after: list[Step] = [_call("all_reduce", 256, group=3 + rank % 2), HostSync()]
        step = [*layer * 3, *after]
        return [*step * 3, *layer, Stop()] if rank == 3 else step * 5  # noqa: PLR2004 - the job's own

    return _plan(program, *(Group(*group, backend="nccl") for group in groups))


@_job
def _enqueue_hangs() -> Plan:
    def program(rank: int) -> list[Step]:
        call = _call("all_reduce", 2048)
        stuck = _call("all_reduce", 2048, inside=True)
        return [*[call] * 11, stuck] if rank == 2 else [*[call] * 30]  # noqa: PLR2004 - the job's own

    return _plan(program)
