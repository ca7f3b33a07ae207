"""Jobs in which one rank's program differs in a way that `programs.py` has no word for."""

import sys

import torch
import torch.distributed as dist
from common import exchange, job, join, load_next_batch, main, new_group, sync, tensor


@job
def gather_elsewhere():
    """Rank 2 sends its part of a gather to rank 1, where all others send theirs to rank 0."""
    rank, size = join()
    a = tensor(96)
    for step in range(6):
        dist.all_reduce(a)
        root = 1 if rank == 2 and step == 3 else 0
        dist.gather(a, [tensor(96) for _ in range(size)] if rank == root else None, root)
        sync()


@job
def shorter_batch():
    """The coalesced all_reduce of rank 2 has a tensor less, in step 4."""
    rank, _ = join()
    values = [tensor(64), tensor(32), tensor(16)]
    for step in range(6):
        some = values[:2] if rank == 2 and step == 4 else values
        with dist._coalescing_manager(device=torch.device("cuda", 0)):
            for value in some:
                dist.all_reduce(value)
        dist.all_reduce(values[0])
        sync()


@job
def step_more():
    """Rank 3 makes one step more; its peers have left the loop."""
    rank, _ = join()
    for _ in range(6 + (rank == 3)):
        dist.all_reduce(tensor(64))
        sync()
    load_next_batch()


@job
def cube_stall():
    """A mesh of 2 by 2 by 2: rank 5 stands still before tp, rank 1 in an exchange with it."""
    rank, _ = join()
    mine = {}
    for name, stride in (("tp", 1), ("dp", 2), ("pp", 4)):
        for low in (r for r in range(8) if not r & stride):
            group = new_group([low, low + stride], name)
            if rank in (low, low + stride):
                mine[name] = group
    for step in range(4):
        for layer in range(2):
            if rank == 5 and step == 2 and layer == 1:
                load_next_batch()
            dist.all_reduce(tensor(64), group=mine["tp"])
            sync()
        exchange(rank ^ 4, rank ^ 4, tensor(16), tensor(16), mine["pp"])
        sync()
        dist.all_reduce(tensor(128), group=mine["dp"])
        sync()


@job
def other_group():
    """Rank 1 of a 2 by 2 mesh reduces over dp where the others reduce over tp."""
    rank, _ = join()
    tp = [new_group([0, 1], "tp"), new_group([2, 3], "tp")][rank // 2]
    dp = [new_group([0, 2], "dp"), new_group([1, 3], "dp")][rank % 2]
    for step in range(5):
        for layer in range(3):
            wrong = rank == 1 and step == 3 and layer == 1
            dist.all_reduce(tensor(64), group=dp if wrong else tp)
            sync()
        dist.all_reduce(tensor(64), group=dp)
        sync()


@job
def leader_stalls():
    """Two nodes reduce inside, then between their leaders: that of the second stands still."""
    rank, _ = join()
    node = [new_group([0, 1, 2], "node"), new_group([3, 4, 5], "node")][rank // 3]
    leaders, leader = new_group([0, 3], "leaders"), 3 * (rank // 3)
    for step in range(5):
        dist.reduce(tensor(64), leader, group=node)
        if rank == leader:
            if rank == 3 and step == 3:
                load_next_batch()
            dist.all_reduce(tensor(64), group=leaders)
        dist.broadcast(tensor(64), leader, group=node)
        sync()


@job
def sends_more():
    """Stage 0 sends one micro-batch more in step 2, before it waits for what comes back."""
    rank, size = join()
    for step in range(4):
        for _ in range(3 + (rank == 0 and step == 2)):
            if rank:
                dist.recv(tensor(256), rank - 1)
            if rank < size - 1:
                dist.send(tensor(256), rank + 1)
        for _ in range(3):
            if rank < size - 1:
                dist.recv(tensor(256), rank + 1)
            if rank:
                dist.send(tensor(256), rank - 1)
        dist.all_reduce(tensor(4))
        sync()


@job
def expert_skips():
    """Rank 1 sends no tokens to the experts once; exchanges differ in size anyway."""
    rank, size = join()
    for step in range(4):
        there = [8 * (1 + (rank + other + step) % 3) for other in range(size)]
        n = sum(there)
        dist.all_to_all_single(tensor(size), tensor(size))
        if not (rank == 1 and step == 2):
            dist.all_to_all_single(tensor(n), tensor(n), there, there)
        dist.all_to_all_single(tensor(n), tensor(n), there, there)
        sync()


@job
def halo_raises():
    """Rank 2 ends before it exchanges with both neighbours; ranks 1 and 3 wait for it."""
    rank, size = join()
    for step in range(5):
        if rank == 2 and step == 3:
            raise RuntimeError("the grid does not close")
        ops = []
        for peer in (rank - 1, rank + 1):
            if 0 <= peer < size:
                ops.append(dist.P2POp(dist.isend, tensor(64), peer))
                ops.append(dist.P2POp(dist.irecv, tensor(64), peer))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        sync()
        dist.all_reduce(tensor(16))
        sync()


if __name__ == "__main__":
    main(sys.argv[1])
