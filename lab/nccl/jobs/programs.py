"""Jobs written as data: calls in a loop, on groups, and what one rank does with one of them.

`LAB_PROGRAM` holds the program as JSON (`lab/nccl/programs.py` writes it and knows what is right).
"""

import json
import os
import signal
import time

import torch
import torch.distributed as dist
from common import exchange, job, join, load_next_batch, new_group, sync, tensor

OPS = {}
DEPARTURES = ["stall", "killed", "raises", "leaves", "size", "dtype", "root", "op", "extra", "skip"]
DEPARTURES += ["half"]


def op(function):
    OPS[function.__name__] = function
    return function


class Call:
    """One call: where, and with what.

    `root` counts within the group, as sends and receives do.
    """

    def __init__(self, group, members, rank, elements=64, dtype=torch.float32, root=0):
        self.group, self.members, self.n, self.dtype = group, members, elements, dtype
        self.size, self.place, self.root = len(members), members.index(rank), members[root]
        self.is_root = rank == self.root
        self.here = {"group": group}

    def new(self, elements=None):
        return tensor(self.n if elements is None else elements, dtype=self.dtype)

    def many(self):
        return [self.new() for _ in range(self.size)]

    def uneven(self):
        return [self.new(self.n + 8 * k) for k in range(self.size)]

    def peer(self, step):
        return self.members[(self.place + step) % self.size]


@op
def all_reduce(c):
    dist.all_reduce(c.new(), **c.here)


@op
def broadcast(c):
    dist.broadcast(c.new(), c.root, **c.here)


@op
def reduce(c):
    dist.reduce(c.new(), c.root, **c.here)


@op
def all_gather(c):
    dist.all_gather(c.many(), c.new(), **c.here)


@op
def all_gather_base(c):
    dist.all_gather_into_tensor(c.new(c.n * c.size), c.new(), **c.here)


@op
def all_gather_uneven(c):
    parts = c.uneven()
    dist.all_gather(parts, parts[c.place], **c.here)


@op
def gather(c):
    dist.gather(c.new(), c.many() if c.is_root else None, c.root, **c.here)


@op
def scatter(c):
    dist.scatter(c.new(), c.many() if c.is_root else None, c.root, **c.here)


@op
def reduce_scatter(c):
    dist.reduce_scatter(c.new(), c.many(), **c.here)


@op
def reduce_scatter_base(c):
    dist.reduce_scatter_tensor(c.new(), c.new(c.n * c.size), **c.here)


@op
def reduce_scatter_uneven(c):
    parts = c.uneven()
    dist.reduce_scatter(parts[c.place], parts, **c.here)


@op
def all_to_all(c):
    dist.all_to_all_single(c.new(c.n * c.size), c.new(c.n * c.size), **c.here)


@op
def all_to_all_uneven(c):
    splits = [8 * (1 + (k + c.place) % 3) for k in range(c.size)]
    dist.all_to_all_single(c.new(sum(splits)), c.new(sum(splits)), splits, splits, **c.here)


@op
def all_to_all_list(c):
    dist.all_to_all(c.many(), c.many(), **c.here)


@op
def barrier(c):
    dist.barrier(**c.here)


@op
def ring(c):
    """A batch: to the right, from the left."""
    exchange(c.peer(1), c.peer(-1), c.new(), c.new(), c.group)


@op
def turns(c):
    """Sends and receives around the ring; places of even number send first."""
    first, then = (send_right, receive_left) if c.place % 2 == 0 else (receive_left, send_right)
    first(c)
    then(c)


def send_right(c):
    dist.send(c.new(), c.peer(1), **c.here)


def receive_left(c):
    dist.recv(c.new(), c.peer(-1), **c.here)


@op
def chain(c):
    """What comes from the place before goes on to the next one, as stages do."""
    if c.place:
        receive_left(c)
    if c.place < c.size - 1:
        send_right(c)


@op
def there_and_back(c):
    """Forward through the stages, and back: a pipeline of one micro-batch."""
    chain(c)
    if c.place < c.size - 1:
        dist.recv(c.new(), c.peer(1), **c.here)
    if c.place:
        dist.send(c.new(), c.peer(-1), **c.here)


@op
def pairs(c):
    """Neighbours exchange a batch: 0 with 1, 2 with 3."""
    mate = c.place ^ 1
    if mate < c.size:
        exchange(c.members[mate], c.members[mate], c.new(), c.new(), c.group)


@op
def coalesced(c):
    with dist._coalescing_manager(group=c.group, device=torch.device("cuda", 0)):
        for each in (c.new(), c.new(2 * c.n)):
            dist.all_reduce(each, **c.here)


@op
def coalesced_gather(c):
    device = torch.device("cuda", 0)
    with dist._coalescing_manager(group=c.group, device=device, async_ops=True) as work:
        for n in (c.n, 2 * c.n):
            dist.all_gather_into_tensor(c.new(n * c.size), c.new(n), **c.here)
    work.wait()


def split(kind, size):
    """The members of each group of a kind."""
    ranks, half = list(range(size)), size // 2
    return {
        "world": [ranks],
        "copy": [ranks],
        "halves": [ranks[:half], ranks[half:]],
        "strided": [ranks[0::2], ranks[1::2]],
        "upper": [ranks[half:]],
        "pairs": [ranks[k : k + 2] for k in range(0, size - size % 2, 2)],
        "first": [ranks[:2]],
    }[kind]


def groups(kinds, rank, size):
    """By kind, the group that this rank is in, and its members."""
    mine = {}
    for kind in kinds:
        for members in split(kind, size):
            group = None if kind == "world" else new_group(members, kind)
            if rank in members:
                mine[kind] = (group, members)
    return mine


@job
def program():
    """The program of `LAB_PROGRAM`."""
    spec = json.loads(os.environ["LAB_PROGRAM"])
    rank, size = join(warm=spec.get("warm", True))
    mine = groups(sorted({line["on"] for line in spec["body"]}), rank, size)
    wrong, at = spec["fault"], (spec["step"], spec["line"])
    for step in range(spec["steps"]):
        order = list(enumerate(spec["body"]))
        if wrong == "swap" and rank == spec["rank"] and step == spec["step"]:
            order.reverse()
        for number, line in order:
            if line["on"] not in mine or step < line.get("from", 0):
                continue
            faulty = wrong in DEPARTURES and rank == spec["rank"] and (step, number) == at
            group, members = mine[line["on"]]
            call = Call(group, members, rank, line["n"], root=line.get("root", 0) % len(members))
            if faulty:
                departs(wrong, line["op"], call)
            else:
                OPS[line["op"]](call)  # program: calls
            if spec["waits"] == "calls":
                sync()
        if spec.get("slow") == rank:
            time.sleep(spec["slow_s"])
        time.sleep(spec.get("pause_s", 0))
        if spec["waits"] == "steps":
            sync()
    sync()


def departs(wrong, name, c):
    """What the rank that goes wrong does in the place of its call."""
    if wrong in ABSENT:
        ABSENT[wrong]()
    elif wrong in APART:
        APART[wrong](c)
    elif wrong == "op":
        name = "broadcast" if name != "broadcast" else "all_reduce"
    if wrong == "half":  # of an exchange in a ring: its receive is left out
        batch = [dist.P2POp(dist.isend, c.new(), c.peer(1), c.group)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
    elif wrong not in ABSENT and wrong != "skip":
        OPS[name](c)  # program: departs
    if wrong == "extra":
        OPS[name](c)  # program: once more


def raises():
    raise RuntimeError("the loss is not finite")


ABSENT = {
    "stall": load_next_batch,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "raises": raises,
    "leaves": lambda: os._exit(0),
}


def larger(c):
    c.n += 16


def narrower(c):
    c.dtype = torch.float16


def other_root(c):
    c.root = c.peer(1) if c.is_root else c.peer(0)
    c.is_root = c.root == c.peer(0)


APART = {"size": larger, "dtype": narrower, "root": other_root}
