"""Jobs whose hosts go wrong (or nothing does): who stalls, skips, adds, crosses or dies."""

import os
import signal
import sys
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from common import CountByHost, exchange, job, join, load_next_batch, main, new_group, sync, tensor
from torch import nn

# ---------------------------------------------------------------- nothing wrong


@job
def healthy_ring():
    """Exchanges in a ring, and collectives, finished."""
    rank, size = join()
    out, into = tensor(1024), tensor(1024)
    for _ in range(6):
        exchange((rank + 1) % size, (rank - 1) % size, out, into)
        dist.all_reduce(out)
        sync()


@job
def healthy_all():
    """Every collective that NCCL has, alone and coalesced, finished."""
    rank, size = join()
    world = list(range(size))
    side = new_group(world[: size // 2]), new_group(world[size // 2 :])
    mine = side[rank >= size // 2]
    a, wide = tensor(64), tensor(64 * size)
    parts = [tensor(64) for _ in world]
    uneven = [tensor(16 + 8 * r) for r in world]
    for _ in range(3):
        dist.all_reduce(a)
        dist.broadcast(a, 1)
        dist.reduce(a, 2)
        dist.all_gather(parts, a)
        dist.all_gather(uneven, uneven[rank])
        dist.all_gather_into_tensor(wide, a)
        dist.reduce_scatter(a, parts)
        dist.reduce_scatter_tensor(a, wide)
        dist.all_to_all_single(wide, wide.clone())
        dist.all_to_all(parts, [tensor(64) for _ in world])
        dist.gather(a, parts if rank == 0 else None, 0)
        dist.scatter(a, parts if rank == 0 else None, 0)
        dist.all_reduce(a, group=mine)
        dist.barrier()
        if rank < 2:  # outside of a batch: a communicator of the pair
            (dist.send if rank == 0 else dist.recv)(a, 1 - rank)
        sync()


@job
def healthy_pipeline():
    """A 1F1B pipeline by hand, finished."""
    pipeline(stalls=-1)


@job
def slow_device():
    """Rank 1's kernels take long; everybody waits for it, and all goes on."""
    join()
    a = tensor(2048)
    for _ in range(60):
        a.mul_(2)
        dist.all_reduce(a)
        sync()


@job
def late_once():
    """Rank 2 comes 1.5 s late, once; its peers have made sixty calls by then, and wait for one."""
    rank, _ = join()
    a = tensor(2048)
    for _ in range(12):
        dist.all_reduce(a)
        sync()
    if rank == 2:
        time.sleep(1.5)
    for _ in range(60):
        dist.all_reduce(a)
    sync()


@job
def far_ahead():
    """Hosts make the calls of a step at once; devices take seconds for them, and all goes on."""
    join()
    a = tensor(2048)
    for _ in range(6):
        for _ in range(30):
            a.mul_(2)
            dist.all_reduce(a)
        sync()


# ---------------------------------------------------------------- one rank's program


@job
def stall():
    """Rank 2 stands in its data loader before all_reduce of step 5."""
    rank, _ = join()
    a = tensor(4096)
    for step in range(20):
        if rank == 2 and step == 5:
            load_next_batch()
        dist.all_reduce(a)
        sync()


@job
def skipped_call():
    """Rank 1 leaves out the second of three all_reduce in step 3."""
    rank, _ = join()
    a, b, c = tensor(4096), tensor(8192), tensor(1024)
    for step in range(6):
        dist.all_reduce(a)
        if not (rank == 1 and step == 3):
            dist.all_reduce(b)
        dist.all_reduce(c)  # skipped_call: here
        sync()


@job
def extra_call():
    """Rank 3 makes one all_reduce too many in step 2."""
    rank, _ = join()
    a, b = tensor(4096), tensor(512)
    for step in range(5):
        dist.all_reduce(a)
        if rank == 3 and step == 2:
            dist.all_reduce(b)  # extra_call: here
        dist.all_reduce(a)
        sync()


@job
def wrong_shape():
    """Rank 1 enters all_reduce with another shape."""
    rank, _ = join()
    for step in range(5):
        dist.all_reduce(tensor(1024 + (rank == 1 and step == 4)))
        sync()


@job
def wrong_op():
    """Rank 3 calls broadcast where the others call all_reduce."""
    rank, _ = join()
    a = tensor(1024)
    for step in range(5):
        if rank == 3 and step == 4:
            dist.broadcast(a, 0)
        else:
            dist.all_reduce(a)
        sync()


@job
def killed():
    """Rank 2 is killed in step 4."""
    rank, _ = join()
    a = tensor(2048)
    for step in range(8):
        if rank == 2 and step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(a)
        sync()


@job
def alltoall_stall():
    """Tokens with uneven splits: rank 2 stands in its router."""
    rank, size = join()
    for step in range(5):
        if rank == 2 and step == 3:
            load_next_batch()
        ins = [(other + rank + step) % 3 + 1 for other in range(size)]
        outs = [(rank + other + step) % 3 + 1 for other in range(size)]
        dist.all_to_all_single(tensor(sum(outs), 16), tensor(sum(ins), 16), outs, ins)
        sync()


@job
def coalesced_stall():
    """Coalesced all_reduce and reduce_scatter; rank 1 stands still after them in step 4."""
    from torch.distributed.distributed_c10d import _coalescing_manager

    rank, size = join()
    wholes = [tensor(64 * size), tensor(128 * size)]
    parts = [tensor(64), tensor(128)]
    here = torch.device("cuda:0")
    for step in range(6):
        with _coalescing_manager(device=here, async_ops=True) as both:
            for whole in wholes:
                dist.all_reduce(whole)
        both.wait()
        with _coalescing_manager(device=here, async_ops=True) as both:
            for part, whole in zip(parts, wholes):
                dist.reduce_scatter_tensor(part, whole)
        both.wait()
        if rank == 1 and step == 4:
            load_next_batch()
        dist.all_reduce(wholes[0])
        sync()


@job
def uneven_stall():
    """Lists of uneven tensors (coalesced broadcasts and reduces); rank 3 stands still in step 3."""
    rank, size = join()
    parts = [tensor(16 + 8 * other) for other in range(size)]
    for step in range(5):
        if rank == 3 and step == 3:
            load_next_batch()
        dist.all_gather(parts, parts[rank])
        sync()
        dist.reduce_scatter(parts[rank], parts)
        sync()


class Net(nn.Module):
    def __init__(self, stalls_at):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 8)
        self.stalls_at, self.calls = stalls_at, 0

    def forward(self, x):
        self.calls += 1
        if self.calls == self.stalls_at:
            load_next_batch()
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


@job
def ddp_stall():
    """DistributedDataParallel: rank 2 stands in the forward of step 4."""
    from torch.nn.parallel import DistributedDataParallel

    rank, _ = join()
    net = Net(4 if rank == 2 else 0).cuda()
    model = DistributedDataParallel(net, device_ids=[0], bucket_cap_mb=0.1)
    optimizer, x = torch.optim.SGD(model.parameters(), 0.1), tensor(8, 64)
    for _ in range(6):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        sync()


# ---------------------------------------------------------------- sends and receives


def both(out=None, to=None, into=None, source=None):
    """What goes out and what comes in, in one batch, where there is somebody there."""
    ops = []
    if to is not None:
        ops.append(dist.P2POp(dist.isend, out, to))
    if source is not None:
        ops.append(dist.P2POp(dist.irecv, into, source))
    for work in dist.batch_isend_irecv(ops) if ops else ():
        work.wait()


def pipeline(stalls=-1, skips=-1, lacks=-1, steps=3, micro=4):
    """1F1B: a stage may stand still in step 1 at micro-batch 2, or leave a send or receive out."""
    rank, size = join()
    x, y, up, down = (tensor(4, 64) for _ in range(4))
    before = rank - 1 if rank else None
    after = rank + 1 if rank < size - 1 else None
    warm = min(size - rank - 1, micro)

    def compute(number, step):
        if rank == stalls and step == 1 and number == 2:
            load_next_batch()
        y.add_(x)

    for step in range(steps):
        for number in range(warm):
            both(into=x, source=before)
            compute(number, step)
            both(out=y, to=after)
        if warm < micro:
            both(into=x, source=before)
        for number in range(warm, micro):
            compute(number, step)
            if rank == skips and step == 1 and number == warm + 1:
                both(into=up, source=after)
            elif rank == lacks and step == 1 and number == warm + 1:
                both(out=y, to=after)
            else:
                both(out=y, to=after, into=up, source=after)
            both(out=down, to=before, into=x, source=before if number < micro - 1 else None)
        for _ in range(micro - warm, micro):
            both(into=up, source=after)
            both(out=down, to=before)
        dist.all_reduce(tensor(1))
        sync()


@job
def pipeline_stall():
    """Stage 2 of a 1F1B pipeline stands still before it sends micro-batch 2."""
    pipeline(stalls=2)


@job
def pipeline_skip():
    """Stage 1 of a 1F1B pipeline leaves a receive of a batch out in its second step."""
    pipeline(lacks=1)


@job
def coalesced_late():
    """Rank 3 stands still before a batch of all_reduces in a group of its own."""
    rank, size = join()
    side = new_group(list(range(size)), "side")
    device, values = torch.device("cuda", 0), [tensor(64), tensor(128)]
    for step in range(5):
        if rank == 3 and step == 3:
            load_next_batch()
        with dist._coalescing_manager(group=side, device=device):
            for each in values:
                dist.all_reduce(each, group=side)
        dist.all_reduce(values[0])
        sync()


@job
def fsdp_stall():
    """Fully sharded: rank 2 stands still before its forward."""
    from torch.distributed.fsdp import fully_shard

    rank, _ = join()
    net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))).cuda()
    for part in (*net, net):
        fully_shard(part)
    for step in range(4):
        if rank == 2 and step == 2:
            load_next_batch()
        net(tensor(8, 64)).sum().backward()
        dist.all_reduce(tensor(1))
        sync()


def pipelining(stalls, steps=3):
    """Torch's own 1F1B schedule; in step 1 a stage may stand still in its third forward."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = join()
    calls = 0

    def stand_still(*_):
        nonlocal calls
        calls += 1
        if rank == stalls and calls == 4 + 3:
            load_next_batch()

    device = torch.device("cuda", 0)
    part = nn.Linear(64, 64).to(device)
    stage = PipelineStage(part, rank, size, device)
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda y, _: y.sum())
    part.register_forward_pre_hook(stand_still)
    first = [tensor(8, 64)] if rank == 0 else []
    last = {"target": tensor(8, 64), "losses": []} if rank == size - 1 else {}
    for step in range(steps):
        with nullcontext() if step else CountByHost():  # the first tells all shapes
            schedule.step(*first, **last)  # pipelining: waits
        dist.all_reduce(tensor(1))
        sync()


@job
def pipelining_stall():
    """Stage 2 of torch's own 1F1B stands still in a forward."""
    pipelining(stalls=2)


@job
def healthy_pipelining():
    """Torch's own 1F1B, finished."""
    pipelining(stalls=-1)


@job
def skipped_send():
    """Rank 1 passes its activations on in every step but step 4."""
    rank, size = join()
    x = tensor(4, 64)
    for step in range(8):
        if rank:
            dist.recv(x, rank - 1)
        if rank < size - 1 and not (rank == 1 and step == 4):
            dist.send(x, rank + 1)
        sync()
        dist.all_reduce(x)  # skipped_send: here
        sync()


@job
def skipped_recv():
    """Rank 1 leaves out one receive, and its host runs three steps ahead of its device."""
    rank, _ = join()
    x, y = tensor(64), tensor(128)
    for step in range(8):
        if rank == 0:
            dist.send(x, 1)  # skipped_recv: waits
        if rank == 1 and step != 4:
            dist.recv(x, 0)
        dist.all_reduce(x)
        dist.all_reduce(y)
        if step < 4:
            sync()
    sync()


@job
def ring_stall():
    """Ring attention: rank 5 stands still before its exchange in step 3."""
    rank, size = join()
    out, into = tensor(2, 64), tensor(2, 64)
    for step in range(5):
        for hop in range(3):
            if rank == 5 and step == 3 and hop == 1:
                load_next_batch()
            exchange((rank + 1) % size, (rank - 1) % size, out, into)
            sync()
        dist.all_reduce(out)
        sync()


@job
def circle():
    """Every rank receives from the left before it sends to the right."""
    rank, size = join()
    out, into = tensor(64), tensor(64)
    right, left = (rank + 1) % size, (rank - 1) % size
    for turn in (0, 1):  # makes the communicators of the pairs
        if rank % 2 == turn:
            dist.send(out, right)
        else:
            dist.recv(into, left)
        sync()
    dist.barrier()
    dist.recv(into, left)
    sync()
    dist.send(out, right)
    sync()


# ---------------------------------------------------------------- several groups


def mesh(rank):
    """The tp and the dp group of a rank in a mesh of 2 by 2."""
    rows = [new_group([0, 1], "tp"), new_group([2, 3], "tp")]
    columns = [new_group([0, 2], "dp"), new_group([1, 3], "dp")]
    return rows[rank // 2], columns[rank % 2]


def crossed(*, wait):
    """In step 3 ranks 1 and 2 enter dp before tp."""
    rank, _ = join()
    tp, dp = mesh(rank)
    a, b = tensor(512), tensor(256)
    for step in range(5):
        order = [(tp, a), (dp, b)]
        if step == 3 and rank in (1, 2):
            order.reverse()
        for group, values in order:
            dist.all_reduce(values, group=group)  # crossed: here
            if wait:
                sync()
        sync()


@job
def crossed_blocking():
    """Two groups entered in crossed order, each call waited for: a circle."""
    crossed(wait=True)


@job
def crossed_ahead():
    """The same, enqueued ahead, on a device that runs one NCCL kernel at a time."""
    crossed(wait=False)


@job
def mesh_stall():
    """Rank 3 stands still before a tp call; rank 2 waits for it, ranks 0 and 1 for them in dp."""
    rank, _ = join()
    tp, dp = mesh(rank)
    a, b = tensor(512), tensor(256)
    for step in range(5):
        for layer in range(3):
            if rank == 3 and step == 3 and layer == 1:
                load_next_batch()
            dist.all_reduce(a, group=tp)
            sync()
        dist.all_reduce(b, group=dp)
        sync()


@job
def upper_half():
    """A Gloo default group; ranks 2 and 3 have an NCCL group: torch names their files 0 and 1."""
    rank, _ = join("gloo", warm=False)
    group = new_group([2, 3], "upper", "nccl")
    if rank >= 2:
        a = tensor(256)
        for step in range(6):
            if rank == 3 and step == 4:
                load_next_batch()
            dist.all_reduce(a, group=group)
            sync()
    else:
        load_next_batch()


if __name__ == "__main__":
    main(sys.argv[1])
