"""Nothing is wrong: every kind of call on the whole job and on sub-groups, all of them finished."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist


def everything(place: common.Place, group: dist.ProcessGroup, members: list[int]) -> None:
    """Make each kind of call once on one group."""
    size, root = len(members), members[0]
    here = place.rank == root
    one, many = torch.ones(4), torch.ones(4 * size)
    parts = [torch.ones(4) for _ in members]
    dist.broadcast(one, root, group=group)
    dist.all_reduce(one, group=group)
    dist.all_reduce(one, op=dist.ReduceOp.MAX, group=group)
    dist.reduce(one, root, group=group)
    dist.all_gather([torch.empty(4) for _ in members], one, group=group)
    dist.all_gather_into_tensor(torch.empty(4 * size), one, group=group)
    dist.reduce_scatter(one, parts, group=group)
    dist.reduce_scatter_tensor(one, many, group=group)
    dist.gather(one, [torch.empty(4) for _ in members] if here else None, root, group=group)
    dist.scatter(one, parts if here else None, root, group=group)
    dist.all_to_all_single(torch.empty(4 * size), many, group=group)
    dist.all_to_all([torch.empty(4) for _ in members], parts, group=group)
    dist.barrier(group)
    objects: list[object] = [None] * size
    dist.all_gather_object(objects, {"rank": place.rank}, group=group)
    dist.broadcast_object_list([place.world], root, group=group)


def uneven(place: common.Place) -> None:
    """Exchange different amounts with each peer, as experts do."""
    to_each = [peer + 1 for peer in range(place.world)]
    from_each = [place.rank + 1] * place.world
    dist.all_to_all_single(
        torch.empty(sum(from_each)), torch.ones(sum(to_each)), from_each, to_each
    )


def together(group: dist.ProcessGroup) -> None:
    """Coalesce some reductions."""
    with dist._coalescing_manager(group=group):
        for width in (2, 3):
            dist.all_reduce(torch.ones(width), group=group)


def exchange(place: common.Place) -> None:
    """Send to both neighbours and receive from them, as a batch and one by one."""
    after, before = (place.rank + 1) % place.world, (place.rank - 1) % place.world
    out, into = torch.ones(4), torch.empty(4)
    sent = dist.isend(out, after)
    dist.recv(into, before)
    sent.wait()
    batch = [dist.P2POp(dist.isend, out, before), dist.P2POp(dist.irecv, into, after)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()


def train(place: common.Place) -> None:
    """Use the whole job, then halves of it, asynchronously too."""
    ranks = list(range(place.world))
    halves = [ranks[0::2], ranks[1::2]]
    groups = [dist.new_group(half, group_desc="half") for half in halves]
    whole = dist.group.WORLD
    for _ in range(2):
        everything(place, whole, ranks)
        uneven(place)
        together(whole)
        exchange(place)
        everything(place, groups[place.rank % 2], halves[place.rank % 2])
    pending = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]
    for work in pending:
        work.wait()
    dist.monitored_barrier()
    common.work_on()  # lab: all stay


train(common.join())
