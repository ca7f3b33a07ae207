"""Public builders for tests: write down a small job in a few lines and get its `Case`.

    >>> job = FakeJob(4)
    >>> job.call([0, 1, 2, 3], "all_reduce", site="train.py:17 step")
    >>> job.call([0, 1, 2], "all_reduce", site="train.py:17 step", finished=False)
    >>> case = job.case()

`FakeJob` keeps each rank's sequence numbers, record ids and counters as torch's recorder would, and
a fake clock. It decides nothing: whether a call finishes is what the test says. For generated jobs
with real layouts, in-order devices and ring buffers see `python -m lab simulate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unhang.activity.looks import ProcessLook
from unhang.case import Case
from unhang.casebuilder import CallRow, CaseBuilder
from unhang.model import (
    DumpStatus,
    Frame,
    Group,
    LogEvent,
    OpName,
    ProcessSample,
    Shape,
    Signature,
    State,
    ThreadStack,
)

_START_NS = 1_700_000_000_000_000_000
_MS = 1_000_000
_LIBRARY = Frame(
    "all_reduce", "/opt/python/lib/python3.11/site-packages/torch/distributed/c10d.py", 1
)


def frames_of(site: str) -> tuple[Frame, ...]:
    """Frames, innermost first, from "train.py:17 step < main.py:3 main"; none from ""."""
    frames = []
    for part in filter(None, site.split(" < ")):
        place, _, function = part.partition(" ")
        file, _, line = place.rpartition(":")
        frames.append(Frame(function or "<module>", file, int(line)))
    return tuple(frames)


def sample_of(rank: int, site: str, *, sample: int = 0, **more: object) -> ProcessSample:
    """One look at one rank.

    Args:
        rank: Global rank.
        site: Where its main thread stands, see `frames_of`; "" for a look that saw no stack.
        sample: 0 for the first look, 1 for the second.
        more: Other fields of `ProcessSample`.
    """
    threads = (ThreadStack("MainThread", 1, frames_of(site), is_main=True),) if site else ()
    base = ProcessSample(rank=rank, host="", pid=1000 + rank, threads=threads, sample=sample)
    return replace(base, **more)  # type: ignore[arg-type]  # fields are the caller's to get right


def worked(
    steps: int = 1, *, state: str = "", wait_channel: str = "", **each: float
) -> tuple[ProcessLook, ...]:
    """Looks, a second apart, at a process that did the same each second.

    Args:
        steps: For how many seconds.
        state: The kernel's letter in all of them.
        wait_channel: Where the main thread waits in all of them.
        each: What it did each second: other fields of `ProcessLook`.
    """
    looks = []
    for at in range(steps + 1):
        grown = {name: value if name == "disk" else at * value for name, value in each.items()}
        looks.append(ProcessLook(float(at), state, wait_channel, **grown))  # type: ignore[arg-type]  # the caller's to get right
    return tuple(looks)


@dataclass(slots=True)
class _Pending:
    """One entry of one rank, before the ring and the filters of the dump are applied."""

    row: CallRow
    is_open: bool


@dataclass(slots=True)
class FakeJob:
    """A job written down call by call.

    Attributes:
        world_size: Number of ranks.
        backend: "nccl", "gloo" or any other; decides how completion is recorded.
        buffer: Ring size: only the last so many entries of a rank are dumped.
        active_only: Only unfinished entries are dumped.
        counters: Whether dumps carry `pg_status`.
        version: Format version of the dumps.
    """

    world_size: int
    backend: str = "nccl"
    buffer: int = 2000
    active_only: bool = False
    counters: bool = True
    version: str = "2.10"
    now_ns: int = _START_NS
    entries: dict[int, list[_Pending]] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    broken: dict[int, DumpStatus] = field(default_factory=dict)
    dump_fields: dict[int, dict[str, object]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    _next_seq: dict[tuple[int, int, bool], int] = field(default_factory=dict)
    _next_op: dict[tuple[int, int], int] = field(default_factory=dict)
    _counters: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.groups:
            self.group(range(self.world_size), "default_pg")

    @property
    def world(self) -> Group:
        """The default group."""
        return self.groups[0]

    def group(self, members: Iterable[int], description: str = "", name: str = "") -> Group:
        """Make a group; names are numbered as torch does."""
        made = Group(
            name or str(len(self.groups)), description, tuple(members), backend=self.backend
        )
        self.groups.append(made)
        return made

    def tick(self, milliseconds: float) -> None:
        """Let time pass for all ranks."""
        self.now_ns += int(milliseconds * _MS)

    def call(  # noqa: PLR0913 - a recorded call has this many independent facts
        self,
        ranks: Iterable[int],
        op: str = "all_reduce",
        group: Group | None = None,
        *,
        sizes: Sequence[Shape] = ((4,),),
        out: Sequence[Shape] | None = None,
        dtype: str = "Float",
        site: str = "",
        finished: bool | Iterable[int] = True,
        enqueued: bool = True,
        late_ms: Mapping[int, float] | None = None,
        seq: int | None = None,
    ) -> None:
        """Let ranks make one collective call, each under its own next sequence number.

        Args:
            ranks: Who calls it, in any order.
            op: Operation, as the recorder names it.
            group: The world if not given.
            sizes: Input sizes.
            out: Output sizes; as the inputs unless given.
            dtype: Of all tensors.
            site: Call site, see `frames_of`.
            finished: For whom it finished.
            enqueued: False leaves the counters behind: inside the library's enqueue.
            late_ms: How much later than the others a rank makes the call.
            seq: The sequence number, where it is not the next one (members of a batch).
        """
        group = group or self.world
        callers = sorted(ranks)
        everybody = callers if finished is True else ()
        done = frozenset(everybody if isinstance(finished, bool) else finished)
        late = late_ms or {}
        self.tick(1)
        last = self.now_ns + int(max((late.get(r, 0.0) for r in callers), default=0.0) * _MS)
        signature = _signature(sizes, sizes if out is None else out, dtype)
        for rank in callers:
            created = self.now_ns + int(late.get(rank, 0.0) * _MS)
            number = self._number(rank, group, p2p=False, given=seq)
            row = self._row(rank, group, op, signature, site, created)
            row = replace(row, seq=number, p2p_seq=0)
            self._add(rank, row, rank in done, last + _MS, enqueued=enqueued)
        self.now_ns = last

    def send(self, rank: int, peer: int, group: Group | None = None, **more: object) -> None:
        """Let a rank send to a peer (global ranks); see `point_to_point`."""
        self.point_to_point(rank, [("send", peer)], group, **more)  # type: ignore[arg-type]  # passed through

    def recv(self, rank: int, peer: int, group: Group | None = None, **more: object) -> None:
        """Let a rank receive from a peer (global ranks; -1 for any); see `point_to_point`."""
        self.point_to_point(rank, [("recv", peer)], group, **more)  # type: ignore[arg-type]  # passed through

    def point_to_point(  # noqa: PLR0913 - a recorded call has this many independent facts
        self,
        rank: int,
        calls: Sequence[tuple[str, int]],
        group: Group | None = None,
        *,
        sizes: Sequence[Shape] = ((4,),),
        dtype: str = "Float",
        site: str = "",
        finished: bool = True,
        batch: bool = False,
    ) -> None:
        """Let one rank send and receive, one after the other or as one coalesced batch.

        Calls are ("send", peer) or ("recv", peer) with global ranks, -1 for any source. In a
        batch the members stay "scheduled" as on NCCL, and a closing "coalesced" entry has the
        true state.
        """
        group = group or self.world
        self.tick(0.1)
        number = -1
        for kind, peer in calls:
            if number < 0 or not batch:
                number = self._number(rank, group, p2p=True)
            name = _p2p_name(kind, group, rank, peer)
            row = self._row(rank, group, name, _signature(sizes, sizes, dtype), site, self.now_ns)
            row = replace(row, is_p2p=True, p2p_seq=number, seq=self._current(rank, group))
            self._add(rank, row, finished, self.now_ns + _MS, enqueued=True, hidden=batch)
        if batch:
            row = self._row(rank, group, "coalesced", Signature(), site, self.now_ns)
            row = replace(row, is_p2p=True, p2p_seq=number, seq=self._current(rank, group))
            self._add(rank, row, finished, self.now_ns + _MS, enqueued=True)

    def coalesced(  # noqa: PLR0913 - a recorded call has this many independent facts
        self,
        ranks: Iterable[int],
        ops: Sequence[str],
        group: Group | None = None,
        *,
        finished: bool = True,
        site: str = "",
        closing: str = "coalesced",
        sizes: Sequence[Shape] = ((4,),),
        members: bool = True,
    ) -> None:
        """Let ranks make one coalesced group of collectives under one sequence number.

        With `members` false only the closing entry is recorded, as before format 2.7.
        """
        group = group or self.world
        self.tick(1)
        for rank in sorted(ranks):
            number = self._number(rank, group, p2p=False)
            for op in ops if members else ():
                row = self._row(rank, group, op, _signature(sizes, sizes, "Float"), site)
                row = replace(row, seq=number, p2p_seq=0)
                self._add(rank, row, finished, self.now_ns + _MS, enqueued=True, hidden=True)
            row = replace(self._row(rank, group, closing, Signature(), site), seq=number, p2p_seq=0)
            self._add(rank, row, finished, self.now_ns + _MS, enqueued=True)

    def case(
        self,
        *,
        order: Sequence[int] | None = None,
        samples: Iterable[ProcessSample] = (),
        log_events: Iterable[LogEvent] = (),
    ) -> Case:
        """Make the Case; `order` is the order in which the dumps stand in it."""
        from unhang.case import Dump

        builder = CaseBuilder()
        for group in self.groups:
            builder.groups[group]
        for rank in order if order is not None else range(self.world_size):
            if rank in self.missing:
                continue
            status = self.broken.get(rank, DumpStatus.OK)
            all_entries = self.entries.get(rank, [])
            kept = all_entries[-self.buffer :]
            if self.active_only:
                kept = [entry for entry in kept if entry.is_open]
            if status in (DumpStatus.EMPTY, DumpStatus.UNREADABLE):
                kept = []
            dump = Dump(
                index=0,
                rank=rank,
                source=f"dumps/rank_{rank}",
                status=status,
                backend=self.backend,
                version=self.version,
                comm_lib_version="2.27.3" if self.backend == "nccl" else "",
                active_only=self.active_only,
                has_stacks=any(entry.row.frames for entry in kept),
                first_record_id=kept[0].row.record_id if kept else -1,
                host=f"node{rank // 8:02d}",
                group_ids=tuple(i for i, g in enumerate(self.groups) if rank in g.members),
            )
            dump = replace(dump, **self.dump_fields.get(rank, {}))  # type: ignore[arg-type]  # the test's to get right
            index = builder.add_dump(dump, (entry.row for entry in kept))
            if self.counters and dump.usable:
                self._add_counters(builder, index, rank, has_rows=bool(kept))
        return builder.build(world_size=self.world_size, samples=samples, log_events=log_events)

    def _add_counters(self, builder: CaseBuilder, dump: int, rank: int, *, has_rows: bool) -> None:
        for number, group in enumerate(self.groups):
            if rank in group.members:
                counters = self._counters.get((rank, number), [-1, -1, -1])
                builder.add_status(dump, group, counters, number, 0 if has_rows else 1)

    def _number(self, rank: int, group: Group, *, p2p: bool, given: int | None = None) -> int:
        key = (rank, self.groups.index(group), p2p)
        number = self._next_seq.get(key, 0) + 1 if given is None else given
        self._next_seq[key] = number
        return number

    def _current(self, rank: int, group: Group) -> int:
        return self._next_seq.get((rank, self.groups.index(group), False), 0)

    def _row(
        self,
        rank: int,
        group: Group,
        op: str,
        signature: Signature,
        site: str,
        created_ns: int | None = None,
    ) -> CallRow:
        key = (rank, self.groups.index(group))
        self._next_op[key] = op_id = self._next_op.get(key, 0) + 1
        kind, _, peers = op.partition(" ")
        src, dst = _ends(kind, peers)
        return CallRow(
            group=group,
            name=OpName(f"{self.backend}:{op}", self.backend, kind, src, dst),
            record_id=len(self.entries.get(rank, ())),
            op_id=op_id,
            signature=signature,
            created_ns=self.now_ns if created_ns is None else created_ns,
            timeout_ms=600_000,
            thread="python",
            frames=(_LIBRARY, *frames_of(site)) if site else (),
        )

    def _add(
        self,
        rank: int,
        row: CallRow,
        finished: bool,  # noqa: FBT001 - the one thing that varies
        completed_ns: int,
        *,
        enqueued: bool,
        hidden: bool = False,
    ) -> None:
        if finished and not hidden:
            if self.backend != "gloo":
                row = replace(row, state=int(State.COMPLETED), completed_ns=completed_ns)
            row = replace(row, retired=True)
        self.entries.setdefault(rank, []).append(_Pending(row, is_open=not finished))
        key = (rank, self.groups.index(row.group))
        counters = self._counters.setdefault(key, [-1, -1, -1])
        number = row.op_id if self.backend == "gloo" else row.p2p_seq if row.is_p2p else row.seq
        if enqueued:
            counters[0] = number
        if finished:
            counters[2] = max(counters[2], number)


def _signature(sizes: Sequence[Shape], out: Sequence[Shape], dtype: str) -> Signature:
    return Signature(tuple(sizes), tuple(out), (dtype,) * len(sizes), (dtype,) * len(out))


def _p2p_name(kind: str, group: Group, rank: int, peer: int) -> str:
    me, other = group.members.index(rank), group.members.index(peer) if peer >= 0 else -1
    shown = "?" if other < 0 else str(other)
    return f"send {me}->{shown}" if kind == "send" else f"recv {me}<-{shown}"


def _ends(kind: str, peers: str) -> tuple[int, int]:
    """Sending and receiving group rank of "0->1" or "1<-0"; -1 for "?" and for collectives."""
    left, right = (peers.split("->") if "->" in peers else peers.split("<-")) if peers else ("", "")
    me, other = (int(part) if part.isdigit() else -1 for part in (left, right))
    return (me, other) if kind == "send" else (other, me)
