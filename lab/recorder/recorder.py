"""What torch's recorder would have dumped on one rank of a simulated job, quirks included.

The quirks are those of the recorder's source and of real dumps: states follow device queries by a
watchdog that looks ten times a second; members of a batch of sends and receives stay `scheduled`
for good, and the entry that closes the batch says that it is no P2P call; local ids number the
groups of one process; groups appear at their first call; Gloo never leaves `scheduled`, records no
send or receive, breaks `pg_config` and counts operations in `pg_status`. Refused: opinions about
which of this is sensible.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.model.job import Site
from lab.recorder.layout import dump_of, entry_of, group_config, group_status
from lab.recorder.quirks import is_slow_part, numbers_of, sizes_of
from lab.recorder.recording import Recording, at_least
from lab.simulate.engine import Outcome, Record
from unhang.model import Group

EPOCH_NS = 1_760_000_000_000_000_000
_TICK_S = 0.1
_TORCH = "/opt/conda/lib/python3.11/site-packages/torch"
_DEFAULT_TIMEOUT_MS = {"nccl": 600_000, "gloo": 1_800_000}
_PUBLIC_NAMES = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_reduce_barrier": "barrier",
    "all_to_all": "all_to_all_single",
    "_broadcast_oop": "all_gather",
    "send": "isend",
    "recv": "irecv",
}


@dataclass(slots=True)
class Recorder:
    """Makes the dumps of one outcome under one set of conditions."""

    outcome: Outcome
    recording: Recording
    seed: int
    memberships: dict[int, list[int]] = field(init=False)
    at_s: float = field(init=False)
    _frames: dict[tuple[Site, str], list[dict[str, Any]]] = field(default_factory=dict)
    _lists: dict[object, list[Any]] = field(default_factory=dict)
    _offsets: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memberships = {}
        for index, group in enumerate(self.outcome.plan.groups):
            for rank in group.members:
                self.memberships.setdefault(rank, []).append(index)
        at = self.recording.at_s
        self.at_s = self.outcome.end_s + self.recording.timeout_s if at is None else at

    def host(self, rank: int) -> int:
        """Number of a rank's host."""
        return rank // self.outcome.plan.ranks_per_host

    def clock_offset_s(self, rank: int) -> float:
        """How far a rank's host clock is off."""
        host = self.host(rank)
        if host not in self._offsets:
            rng = random.Random(f"clock/{self.seed}/{host}")  # noqa: S311 - reproducible on purpose
            self._offsets[host] = rng.uniform(-1, 1) * self.recording.clock_skew_s
        return self._offsets[host]

    def backends(self, rank: int) -> list[str]:
        """Recorders that a rank has, in order of its groups."""
        groups = self.outcome.plan.groups
        return list(dict.fromkeys(groups[i].backend for i in self.memberships[rank]))

    def dump(self, rank: int, backend: str) -> Any:  # noqa: ANN401 - a dict, or a list in the oldest format
        """The content of one file: torch's layout as plain values."""
        view = _View(self, rank, backend)
        entries = view.entries()
        dump = dump_of(
            entries,
            self.recording.version,
            config=view.pg_config(),
            status=view.pg_status(),
            library="2.27.3" if backend == "nccl" else "",
        )
        if self.recording.described:
            dump["unhang"] = self._description(rank, backend, len(entries))
        return dump

    def _description(self, rank: int, backend: str, entries: int) -> dict[str, Any]:
        """The extra key of our own recorder."""
        return {
            "schema": "unhang.dump/1",
            "rank": rank,
            "local_rank": rank % self.outcome.plan.ranks_per_host,
            "world_size": self.outcome.plan.world_size,
            "host": f"node{self.host(rank) + 1:02d}",
            "pid": 4000 + rank,
            "backend": backend,
            "reason": "request",
            "time_ns": self.nanoseconds(rank, self.at_s),
            "dropped": 0 if entries < self.recording.buffer else 1,
            "entries": [],
        }

    def nanoseconds(self, rank: int, seconds: float) -> int:
        """Wall clock of a rank's host at a moment of the simulation."""
        return EPOCH_NS + round((seconds + self.clock_offset_s(rank)) * 1e9)

    def sizes(self, shapes: Sequence[Sequence[int]]) -> list[Any]:
        """Shapes as lists; equal ones share one list, as the encoder likes it."""
        key = tuple(shapes)
        if key not in self._lists:
            self._lists[key] = [list(shape) for shape in shapes]
        return self._lists[key]

    def dtypes(self, dtype: str, count: int) -> list[Any]:
        """One dtype per tensor."""
        key = (dtype, count)
        if key not in self._lists:
            self._lists[key] = [dtype] * count
        return self._lists[key]

    def frames(self, site: Site, op: str) -> list[dict[str, Any]]:
        """The stack of a call, innermost first."""
        key = (site, op)
        if key not in self._frames:
            self._frames[key] = list(_stack(site, op))
        return self._frames[key]


def _stack(site: Site, op: str) -> Iterable[dict[str, Any]]:
    def frame(name: str, file: str, line: int) -> dict[str, Any]:
        return {"name": name, "filename": file, "line": line}

    if site.through == "autograd":
        yield frame("_engine_run_backward", f"{_TORCH}/autograd/graph.py", 865)
        yield frame("backward", f"{_TORCH}/autograd/__init__.py", 353)
        yield frame("backward", f"{_TORCH}/_tensor.py", 625)
    else:
        public = _PUBLIC_NAMES.get(op, op)
        yield frame(public, f"{_TORCH}/distributed/distributed_c10d.py", 2700 + len(public) * 37)
        yield frame("wrapper", f"{_TORCH}/distributed/c10d_logger.py", 83)
    yield frame(site.function, site.file, site.line)
    yield frame("main", "/home/user/train/train.py", 204)
    yield frame("<module>", "/home/user/train/train.py", 211)


@dataclass(slots=True)
class _View:
    """One rank's recorder of one backend at the moment of the dump."""

    recorder: Recorder
    rank: int
    backend: str
    phase: float = field(init=False)
    period: float = field(init=False)
    failed: Record | None = field(init=False)
    calls: list[Record] = field(init=False)
    local_ids: dict[int, int] = field(init=False)
    numbers: dict[int, tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(f"watchdog/{self.recorder.seed}/{self.rank}")  # noqa: S311 - reproducible on purpose
        self.period = _TICK_S * rng.uniform(1.0, 1.02)
        self.phase = rng.random() * self.period
        outcome = self.recorder.outcome
        self.local_ids = {}
        for index in self.recorder.memberships[self.rank]:
            if outcome.plan.groups[index].backend == self.backend:
                self.local_ids[index] = len(self.local_ids)
        self.failed = outcome.head(self.rank) if self.recorder.recording.after_failure else None
        self.calls = [
            record
            for record in outcome.records[self.rank]
            if self.group(record).backend == self.backend and record.created <= self.recorder.at_s
        ]
        self.numbers = numbers_of(self.calls, self.recorder.recording.version)

    def group(self, record: Record) -> Group:
        """The group of a call."""
        return self.recorder.outcome.plan.groups[record.issue.group]

    def recorded(self) -> list[tuple[int, Record]]:
        """The calls that this recorder records at all, with their record ids."""
        old = not at_least(self.recorder.recording.version, "2.7")
        kept = [
            record
            for record in self.calls
            if not (self.backend == "gloo" and record.issue.is_p2p)
            and not (old and is_slow_part(record))
        ]
        return list(enumerate(kept))

    def entries(self) -> list[dict[str, Any]]:
        """What the ring still holds, oldest first."""
        calls = self.recorded()
        ring = calls[max(0, len(calls) - self.recorder.recording.buffer) :]
        rows = [self.entry(number, record) for number, record in ring]
        if self.recorder.recording.active_only:
            return [row for row in rows if not self.over(row)]
        return rows

    def over(self, row: dict[str, Any]) -> bool:
        """Whether the dump of active entries leaves a row out (on Gloo it never does)."""
        return bool(row["time_discovered_completed_ns"])

    def noticed(self, at: float | None) -> tuple[float | None, bool]:
        """When the watchdog saw something that happened, and whether it did so before the dump."""
        dumped = self.recorder.at_s
        if at is None or at > dumped:
            return None, False
        tick = math.ceil((at - self.phase) / self.period) * self.period + self.phase
        return (tick, True) if tick <= dumped else (dumped, False)

    def over_when(self, record: Record) -> tuple[float | None, bool]:
        """When a finish was noticed, and whether the work was retired."""
        if record is self.failed:
            return record.created, True
        if not record.seen:
            return None, False
        if self.backend != "gloo" and not record.enqueued and not record.member:
            return self.recorder.at_s, False  # its event was never recorded, so it has passed
        if self.ends_early(record):
            return self.noticed(record.created)
        return self.noticed(record.finished)

    def ends_early(self, record: Record) -> bool:
        """From 2.8 on, torch waits for nothing of a call on uneven tensors that is synchronous."""
        uneven = record.closing not in ("", "coalesced") and record.issue.sync
        return uneven and at_least(self.recorder.recording.version, "2.9")

    def started_when(self, record: Record, completed: float | None) -> float | None:
        """When a start was noticed: the device is asked when a work is retired, and at the dump."""
        dumped = self.recorder.at_s
        if record.started is None or record.started > dumped:
            return None
        return dumped if completed is None else completed

    def nanoseconds(self, at: float | None) -> int | None:
        """Wall clock of this host, or None."""
        return None if at is None else self.recorder.nanoseconds(self.rank, at)

    def entry(self, number: int, record: Record) -> dict[str, Any]:
        """One entry in the layout of the recording's version."""
        recorder, group = self.recorder, self.group(record)
        recording, issue = recorder.recording, record.issue
        completed, retired = self.over_when(record)
        timed = recording.timing or recording.version == "list"
        started = self.started_when(record, completed) if timed else None
        if record.member and (issue.is_p2p or is_slow_part(record)):
            completed, started, retired = None, None, False
        if self.backend == "gloo":
            started = completed = None
        state = "completed" if completed else "started" if started else "scheduled"
        inputs, outputs, dtype = sizes_of(record, recording.version)
        row: dict[str, Any] = {}
        if recording.stacks:
            row["frames"] = recorder.frames(issue.site, issue.op)
        row["record_id"] = number
        row["pg_id"] = self.local_ids[issue.group]
        row["process_group"] = (group.name, group.description)
        threaded = issue.site.through == "autograd"
        row["thread_name"] = "pt_autograd_0" if threaded else "python"
        row["thread_id"] = str(140_000_000_000_000 + self.rank * 4096 + threaded)
        row["collective_seq_id"], row["p2p_seq_id"] = self.numbers[id(record)]
        row["op_id"] = record.op_id
        row["profiling_name"] = f"{self.backend}:{self.title(record, group)}"
        row["time_created_ns"] = self.nanoseconds(record.created)
        if recording.timing and completed and record.finished and record.started is not None:
            row["duration_ms"] = (record.finished - record.started) * 1e3
        row["input_sizes"] = recorder.sizes(inputs)
        row["input_dtypes"] = recorder.dtypes(dtype, len(inputs))
        row["output_sizes"] = recorder.sizes(outputs)
        nothing = outputs == ((0,),)
        row["output_dtypes"] = recorder.dtypes("UNKNOWN_SCALAR" if nothing else dtype, len(outputs))
        row["state"] = state
        row["time_discovered_started_ns"] = self.nanoseconds(started)
        row["time_discovered_completed_ns"] = self.nanoseconds(completed)
        row["retired"] = retired
        row["timeout_ms"] = _DEFAULT_TIMEOUT_MS[self.backend]
        row["is_p2p"] = issue.is_p2p and not record.closing
        return entry_of(row, recording.version)

    def title(self, record: Record, group: Group) -> str:
        """The profiling name as torch writes it, without backend; peers are group ranks."""
        issue = record.issue
        version = self.recorder.recording.version
        if record.closing:
            return record.closing if at_least(version, "2.7") else "coalesced"
        if issue.op == "all_reduce_barrier" and not at_least(version, "2.2"):
            return "all_reduce"
        if not issue.is_p2p:
            return issue.op
        mine, theirs = group.members.index(self.rank), group.members.index(issue.peer)
        return f"{issue.op} {mine}{'->' if issue.op == 'send' else '<-'}{theirs}"

    def called_groups(self) -> list[int]:
        """Groups on which this recorder has seen a call, in order of first use."""
        return list(dict.fromkeys(record.issue.group for record in self.calls))

    def pg_config(self) -> dict[str, Any]:
        """Groups by name: on NCCL those with a communicator, on Gloo broken as in torch 2.13."""
        groups = self.recorder.outcome.plan.groups
        if self.backend == "gloo":
            own = list(self.local_ids)
            ranks = str(list(groups[own[0]].members)) if len(own) == 1 else "[]"
            return {"": group_config("", "", ranks)}
        config: dict[Any, Any] = {}
        for index in self.called_groups():
            group = groups[index]
            if not at_least(self.recorder.recording.version, "2.1"):
                config[self.local_ids[index]] = list(group.members)
                continue
            named = group_config(group.name, group.description, str(list(group.members)))
            config.setdefault(group.name, named)
        return config

    def pg_status(self) -> dict[str, Any]:
        """Counters per local id, as the backend counts them."""
        status: dict[str, Any] = {}
        for index in self.called_groups():
            launches = [r for r in self.calls if r.issue.group == index and not r.member]
            reached = (
                [r for r in launches if r.enqueued],
                [r for r in launches if self.has_started(r)],
                [r for r in launches if self.over_when(r)[1]],
            )
            counts = (self.counted(found[-1]) if found else -1 for found in reached)
            status[str(self.local_ids[index])] = group_status(*counts)
        return status

    def has_started(self, record: Record) -> bool:
        """Whether a start was noticed: with timing only, and never on Gloo."""
        timed = self.recorder.recording.timing and self.backend != "gloo"
        return timed and self.noticed(record.started)[0] is not None

    def counted(self, record: Record) -> int:
        """The number under which a call stands in `pg_status`."""
        if self.backend == "gloo":
            return record.op_id
        return record.p2p_seq if record.issue.is_p2p else record.seq
