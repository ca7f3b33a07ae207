"""Helpers with which layouts write programs: calls by their public names, shared between ranks.

Names, shapes and dtypes are those that torch records for these calls; the mapping from a public
function to the recorded name lives here and nowhere else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from lab.model.job import Bundle, Issue, Plan, Shapes, Site, Step
from lab.model.mesh import GroupBook

TRAIN = "/home/user/train"


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """What a layout is asked for; it takes what fits it.

    Attributes:
        steps: Training steps per rank.
        layers: Layers (per stage) that communicate.
        microbatches: Per step, for pipelines.
        world_calls: Whether anything is ever called on the group of all ranks.
        batched: Sends and receives through `batch_isend_irecv`.
        ends: The program ends; otherwise ranks stay between two steps.
    """

    ranks: int
    seed: int = 0
    steps: int = 4
    layers: int = 3
    microbatches: int = 4
    naming: str = "global"
    backend: str = "nccl"
    world_calls: bool = True
    batched: bool = True
    ends: bool = True


def site(function: str, line: int, file: str = "train.py", through: str = "python") -> Site:
    """A line of the imagined training program."""
    return Site(function, f"{TRAIN}/{file}", line, through)


@dataclass(slots=True)
class Draft:
    """A plan under construction."""

    request: LayoutRequest
    layout: str
    book: GroupBook = field(init=False)
    programs: list[list[Step]] = field(init=False)
    rng: random.Random = field(init=False)
    _shared: dict[object, Issue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.book = GroupBook(self.request.naming, self.request.backend)
        self.programs = [[] for _ in range(self.request.ranks)]
        self.rng = random.Random(f"layout/{self.request.seed}")  # noqa: S311 - reproducible on purpose

    def plan(self) -> Plan:
        """The finished plan."""
        return Plan(self.layout, self.book.groups, self.programs, ends=self.request.ends)

    def size(self, group: int) -> int:
        """Members of a group."""
        return self.book.groups[group].size

    def add(self, rank: int, *steps: Step) -> None:
        """Append steps to a rank's program."""
        self.programs[rank].extend(steps)

    def call(
        self, group: int, op: str, inputs: Shapes, outputs: Shapes, at: Site, **options: object
    ) -> Issue:
        """One call; equal calls are one object."""
        key = (group, op, inputs, outputs, at, *sorted(options.items()))
        if key not in self._shared:
            self._shared[key] = Issue(group, op, inputs, outputs, at, **options)  # type: ignore[arg-type] # options are Issue's own fields
        return self._shared[key]

    # -- collectives by their public names -------------------------------------------------------

    def all_reduce(self, group: int, shape: tuple[int, ...], at: Site, **options: object) -> Issue:
        """`dist.all_reduce`."""
        return self.call(group, "all_reduce", (shape,), (shape,), at, **options)

    def barrier(self, group: int, at: Site) -> Issue:
        """`dist.barrier`: on NCCL an all-reduce of one element; its caller must add a HostSync."""
        if self.book.groups[group].backend == "gloo":
            return self.call(group, "barrier", (), (), at)
        return self.call(group, "all_reduce_barrier", ((1,),), ((1,),), at, dtype="Float")

    def broadcast(
        self, group: int, shape: tuple[int, ...], root: int, at: Site, **options: object
    ) -> Issue:
        """`dist.broadcast`."""
        return self.call(group, "broadcast", (shape,), (shape,), at, root=root, **options)

    def all_gather(self, group: int, shard: tuple[int, ...], at: Site, **options: object) -> Issue:
        """`dist.all_gather_into_tensor`."""
        n = self.size(group)
        if self.book.groups[group].backend == "gloo":
            return self.call(group, "all_gather", (shard,), ((n, *shard),), at, **options)
        whole = (shard[0] * n, *shard[1:])
        return self.call(group, "_all_gather_base", (shard,), (whole,), at, **options)

    def reduce_scatter(
        self, group: int, shard: tuple[int, ...], at: Site, **options: object
    ) -> Issue:
        """`dist.reduce_scatter_tensor`."""
        whole = (shard[0] * self.size(group), *shard[1:])
        return self.call(group, "_reduce_scatter_base", (whole,), (shard,), at, **options)

    def gather(self, group: int, rank: int, shape: tuple[int, ...], root: int, at: Site) -> Issue:
        """`dist.gather`: only the root has outputs."""
        outputs = (shape,) * self.size(group) if rank == root else ()
        return self.call(group, "gather", (shape,), outputs, at, root=root)

    def scatter(self, group: int, rank: int, shape: tuple[int, ...], root: int, at: Site) -> Issue:
        """`dist.scatter`: only the root has inputs."""
        inputs = (shape,) * self.size(group) if rank == root else ()
        return self.call(group, "scatter", inputs, (shape,), at, root=root)

    def all_to_all(
        self, group: int, takes: tuple[int, ...], gives: tuple[int, ...], at: Site
    ) -> Issue:
        """`dist.all_to_all_single`: what one member gives (input) and takes (output) in total."""
        return self.call(group, "all_to_all", (gives,), (takes,), at, uneven=gives != takes)

    def uneven_all_gather(self, group: int, shards: Shapes, at: Site) -> Bundle:
        """`dist.all_gather` of unequal tensors: torch makes a bundle of broadcasts of it."""
        members = self.book.groups[group].members
        parts = tuple(
            self.call(group, "_broadcast_oop", (shard,), (shard,), at, root=member)
            for member, shard in zip(members, shards, strict=True)
        )
        return Bundle(parts, at, closing="ALLGATHER_coalesced")

    # -- sends and receives ----------------------------------------------------------------------

    def send(
        self, group: int, to: int, shape: tuple[int, ...], at: Site, **options: object
    ) -> Issue:
        """`dist.send`/`isend`; `to` is a global rank."""
        return self.call(group, "send", (shape,), (shape,), at, peer=to, **options)

    def receive(
        self, group: int, source: int, shape: tuple[int, ...], at: Site, **options: object
    ) -> Issue:
        """`dist.recv`/`irecv`; `source` is a global rank."""
        return self.call(group, "recv", (shape,), (shape,), at, peer=source, **options)

    def exchange(self, issues: list[Issue], at: Site) -> list[Step]:
        """A batch of sends and receives, or the same one by one where the job does not batch.

        One by one, sends come first on even stages and receives first on odd ones, as pipelines do
        it; the caller gives them in that order.
        """
        if not issues:
            return []
        if self.request.batched:
            return [Bundle(tuple(issues), at)]
        return list(issues)
