"""One incident as columns: everything that was read, before any reasoning.

`Case` is where ingest, analysis, tables and reports meet. Bulk data are numpy columns with
dictionaries next to them (names, signatures, stacks, threads), because a job of 16,384 ranks has
32 million calls. Nothing here reads files or decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from unhang.model import (
    AskedNode,
    Call,
    DumpStatus,
    Fact,
    Frame,
    Group,
    LastCall,
    LogEvent,
    Note,
    OpName,
    ProcessSample,
    Signature,
    SlowRank,
    State,
)

if TYPE_CHECKING:
    from unhang.ras import RasStatus
    from unhang.report import SavedReport

IntArray = npt.NDArray[np.integer]

CALL_DTYPES: dict[str, type[np.generic]] = {
    "dump": np.int32,
    "rank": np.int32,
    "group": np.int32,
    "name": np.int32,
    "signature": np.int32,
    "stack": np.int32,
    "thread": np.int32,
    "record_id": np.int64,
    "seq": np.int64,
    "p2p_seq": np.int64,
    "op_id": np.int64,
    "state": np.int8,
    "origin": np.int8,
    "retired": np.bool_,
    "is_p2p": np.bool_,
    "created_ns": np.int64,
    "started_ns": np.int64,
    "completed_ns": np.int64,
    "duration_ms": np.float64,
    "timeout_ms": np.int64,
}

STATUS_DTYPES: dict[str, type[np.generic]] = {
    "dump": np.int32,
    "group": np.int32,
    "pg_id": np.int32,
    "joined_by": np.int8,
    "last_enqueued": np.int64,
    "last_started": np.int64,
    "last_completed": np.int64,
}

ORIGIN_TORCH, ORIGIN_UNHANG = 0, 1
BY_HOOK, AT_ISSUE, BY_TORCHCOMMS = "hook", "at issue", "torchcomms"
"""What `Dump.recorder` may say."""
BY_LAST_CALLS: Final = "ring of last calls"
"""What `Dump.reported_by` says of a dump that was made of a rank's heartbeat."""
BY_CLOG: Final = "Clog"
"""What it says of calls that torchcomms' ClogHook logged, one by one."""

JOINED_BY_ENTRIES, JOINED_BY_ORDER, NOT_JOINED = 0, 1, -1


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The calls of all ranks: equally long columns, one row a call.

    Rows of one dump are contiguous (`Dump.start`, `Dump.stop`) and in program order.

    Columns:
        dump: Index in `Case.dumps`.
        rank: Global rank.
        group: Index in `Case.groups`.
        name: Index in `Case.names`.
        signature: Index in `Case.signatures`.
        stack: Index in `Case.stacks`; -1 where there is none.
        thread: Index in `Case.threads`; -1 where there is none.
        record_id, seq, p2p_seq, op_id: As recorded; -1 where the format has none.
        state: `unhang.model.State`.
        origin: 0 recorded by torch, 1 by our own recorder next to it.
        retired: As recorded.
        is_p2p: As recorded; the entry that closes a batch counts as what its members are.
        created_ns, started_ns, completed_ns: Host's wall clock in ns; 0 where not known.
        duration_ms: NaN where not known.
        timeout_ms: -1 where not known.
    """

    dump: IntArray
    rank: IntArray
    group: IntArray
    name: IntArray
    signature: IntArray
    stack: IntArray
    thread: IntArray
    record_id: IntArray
    seq: IntArray
    p2p_seq: IntArray
    op_id: IntArray
    state: IntArray
    origin: IntArray
    retired: npt.NDArray[np.bool_]
    is_p2p: npt.NDArray[np.bool_]
    created_ns: IntArray
    started_ns: IntArray
    completed_ns: IntArray
    duration_ms: npt.NDArray[np.float64]
    timeout_ms: IntArray

    def __len__(self) -> int:
        return len(self.rank)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Sequence[object] | npt.NDArray[np.generic]]
    ) -> Calls:
        """Make the table from one sequence a column; dtypes are cast to `CALL_DTYPES`."""
        return cls(
            **{key: np.asarray(columns[key], dtype=kind) for key, kind in CALL_DTYPES.items()}
        )

    @classmethod
    def empty(cls) -> Calls:
        """A table without rows."""
        return cls.from_columns({key: [] for key in CALL_DTYPES})


@dataclass(frozen=True, slots=True, eq=False)
class GroupStatus:
    """The per-group counters of all dumps (`pg_status`): one row a dump and group.

    Columns:
        dump: Index in `Case.dumps`.
        group: Index in `Case.groups`; -1 where the local id could not be joined to a group.
        pg_id: The local id under which the dump has it; it means nothing in another process.
        joined_by: How `group` is known: 0 by the dump's own entries, 1 by the order of its groups
            (inferred), -1 not at all.
        last_enqueued, last_started, last_completed: Counters as recorded; -1 for none. What they
            count depends on the backend (on Gloo: all ops, P2P included).
    """

    dump: IntArray
    group: IntArray
    pg_id: IntArray
    joined_by: IntArray
    last_enqueued: IntArray
    last_started: IntArray
    last_completed: IntArray

    def __len__(self) -> int:
        return len(self.dump)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Sequence[object] | npt.NDArray[np.generic]]
    ) -> GroupStatus:
        """Make the table from one sequence a column; dtypes are cast to `STATUS_DTYPES`."""
        return cls(
            **{key: np.asarray(columns[key], dtype=kind) for key, kind in STATUS_DTYPES.items()}
        )

    @classmethod
    def empty(cls) -> GroupStatus:
        """A table without rows."""
        return cls.from_columns({key: [] for key in STATUS_DTYPES})


@dataclass(frozen=True, slots=True, eq=False)
class Stacks:
    """De-duplicated stacks: stack i is `frame_ids[offsets[i]:offsets[i + 1]]`, innermost first."""

    offsets: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))
    frame_ids: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))
    frames: tuple[Frame, ...] = ()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, stack: int) -> tuple[Frame, ...]:
        """Frames of one stack, innermost first; empty for -1."""
        if stack < 0:
            return ()
        ids = self.frame_ids[self.offsets[stack] : self.offsets[stack + 1]]
        return tuple(self.frames[i] for i in ids.tolist())


@dataclass(frozen=True, slots=True)
class Window:
    """What is known of a dump of whose calls not all, or not all times, are in the case.

    Attributes:
        left_out: Calls that it holds and the case does not: of each group those before its rows.
        first_record_id, active_only: As all of its calls say; see `Dump`.
        first_ns: When its first call was made.
        turns: Some of its rows, counted from its first, and how far apart their like usually are.
    """

    left_out: int = 0
    first_record_id: int = -1
    active_only: bool = False
    first_ns: int = 0
    turns: tuple[tuple[int, int], ...] = ()


IN_MEMORY: Final = "memory"
"""Begins the source of dumps that were handed over and are no files."""


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump file of one rank (a rank may have one per recorder: NCCL and Gloo).

    Attributes:
        index: Position in `Case.dumps`.
        rank: Global rank (renumbered over replicas where `replica` is set).
        source: Path as shown to a person, `archive.tar!member` for members of archives.
        status: Whether it could be read whole.
        start, stop: Its rows in `Case.calls`.
        backend: Recorder's backend ("nccl", "gloo"…), or "" where nothing tells.
        version: Format version as written ("2.10"); "" where the format has none.
        active_only: It holds unfinished calls only: absence means finished or never called.
        has_stacks: Its entries carry frames.
        few_times: It came in a part that left out the times of some of its calls.
        window: What is known of calls of it that are not here.
        first_record_id: Of its first entry; above 0 means that the ring has wrapped, or that
            only active entries were dumped; -1 where unknown.
        reported_by: "torch", "unhang", "torchcomms", a fork's name, `BY_LAST_CALLS` or `BY_CLOG`.
        recorder: What its calls show of the recorder that wrote them, where its states mean
            something of their own: `BY_HOOK`, `AT_ISSUE`, `BY_TORCHCOMMS`; "" where nothing does.
        host, pid, job_id, attempt, incident, reason, time_ns, step, dropped, world_size: As the
            file says it (our own recorder's) or as its path tells; empty, -1 or 0 where unknown.
        written_ns: When its file was last written, by the file system; 0 where nothing tells. A
            copy looks younger than its dump, never older.
        group_ids: Indices in `Case.groups` of the groups that it knows, in its own order.
        failures: Calls that failed, as our recorder wrote them ("all_reduce (tp): timeout").
        exception: The exception that ended the program ("ValueError: bad batch"), or "".
        exception_stack: Where it was raised, innermost first.
        main_stack: The main thread's stack at dump time, innermost first.
        open_tags: Record id and tag of unfinished sends and receives, without those that the
            program has let go of; None where no recorder says so (ours does).
    """

    index: int
    rank: int
    source: str
    status: DumpStatus = DumpStatus.OK
    start: int = 0
    stop: int = 0
    backend: str = ""
    version: str = ""
    comm_lib_version: str = ""
    active_only: bool = False
    has_stacks: bool = False
    few_times: bool = False
    window: Window = field(default_factory=Window)
    first_record_id: int = -1
    reported_by: str = "torch"
    recorder: str = ""
    host: str = ""
    pid: int = -1
    job_id: str = ""
    attempt: str = ""
    incident: str = ""
    replica: str = ""
    reason: str = ""
    time_ns: int = 0
    step: int = -1
    dropped: int = 0
    world_size: int = 0
    local_rank: int = -1
    written_ns: int = 0
    group_ids: tuple[int, ...] = ()
    failures: tuple[str, ...] = ()
    exception: str = ""
    exception_stack: tuple[Frame, ...] = ()
    main_stack: tuple[Frame, ...] = ()
    open_tags: tuple[tuple[int, int], ...] | None = None

    @property
    def usable(self) -> bool:
        """Whether its rows can be reasoned with (whole, or cut after whole entries)."""
        return self.status in (DumpStatus.OK, DumpStatus.TRUNCATED)


More: TypeAlias = "Callable[[Collection[int]], Case | None]"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Everything known of one incident.

    Attributes:
        calls: See `Calls`.
        dumps: One per file that claims a rank, readable or not.
        groups: Process groups, identified by name, description and members.
        group_status: See `GroupStatus`.
        names, signatures, threads, stacks: Dictionaries that the columns of `calls` point into.
        world_size: Number of expected ranks (0..world_size-1); 0 where nothing tells.
        world_size_inferred: True where it was inferred rather than told.
        unvisited: Expected ranks whose node was not searched for them, by the manifest.
        nodes: That were asked, by the manifest.
        cluster, namespace: Whose nodes they are ("slurm"), and in which part of it; "" where
            nothing tells.
        samples: Stacks of live or dead processes, in order of time.
        log_events: What the log rules recognised.
        log_facts: What libraries said of themselves in the logs, to compare between ranks.
        log_ranks: Ranks that any recognised line named, ascending, where they were counted.
        logs_recognised: Whether one log at least looks like that of a job; None where none was
            read, or compared.
        logs_got_on: One log at least tells that work was done: steps, rates, a good end.
        logs_left_open: None tells of a good end, or a person wrote next to them that the job
            stands.
        last_calls: Where traced processes were last heard of, oldest first.
        reports: What other commands found, newest first.
        ras: What NCCL's RAS answered, oldest first.
        slow: The rank that was seen to keep the others waiting, while the job went on.
        incident: Which incident this is, where several lay in one folder.
        notes: Everything that was skipped, cut, repaired or inferred while reading.
        more: Makes the same case with all calls of some ranks that it has a window of only; gives
            None where these are too many.
    """

    calls: Calls = field(default_factory=Calls.empty)
    dumps: tuple[Dump, ...] = ()
    groups: tuple[Group, ...] = ()
    group_status: GroupStatus = field(default_factory=GroupStatus.empty)
    names: tuple[OpName, ...] = ()
    signatures: tuple[Signature, ...] = ()
    threads: tuple[str, ...] = ()
    stacks: Stacks = field(default_factory=Stacks)
    world_size: int = 0
    world_size_inferred: bool = False
    unvisited: tuple[int, ...] = ()
    nodes: tuple[AskedNode, ...] = ()
    cluster: str = ""
    namespace: str = ""
    samples: tuple[ProcessSample, ...] = ()
    log_events: tuple[LogEvent, ...] = ()
    log_facts: tuple[Fact, ...] = ()
    log_ranks: tuple[int, ...] = ()
    logs_recognised: bool | None = None
    logs_got_on: bool = False
    logs_left_open: bool = False
    last_calls: tuple[LastCall, ...] = ()
    reports: tuple[SavedReport, ...] = ()
    ras: tuple[RasStatus, ...] = ()
    slow: SlowRank | None = None
    incident: str = ""
    notes: tuple[Note, ...] = ()
    more: More | None = None

    @property
    def ranks_with_dump(self) -> tuple[int, ...]:
        """Ranks with at least one usable dump, ascending."""
        return tuple(sorted({d.rank for d in self.dumps if d.usable}))

    @property
    def n_calls(self) -> int:
        """Number of calls that the dumps hold, also of those that are not here."""
        return len(self.calls) + sum(dump.window.left_out for dump in self.dumps)

    @property
    def expected_ranks(self) -> tuple[int, ...]:
        """All ranks that should be there: 0..world_size-1, and any beyond that left a dump."""
        return tuple(sorted(set(range(self.world_size)) | {d.rank for d in self.dumps}))

    @property
    def newest_ns(self) -> int:
        """When the newest of dumps, stacks and log lines was made, wall clock; 0 if none tells."""
        times = [dump.time_ns for dump in self.dumps]
        times += [sample.time_ns for sample in self.samples]
        return max([*times, *(event.time_ns for event in self.log_events)], default=0)

    def call(self, row: int) -> Call:
        """One row of `calls` with its dictionaries resolved."""
        c = self.calls
        duration = float(c.duration_ms[row])
        thread = int(c.thread[row])
        return Call(
            row=row,
            rank=int(c.rank[row]),
            group=self.groups[int(c.group[row])],
            name=self.names[int(c.name[row])],
            record_id=int(c.record_id[row]),
            seq=int(c.seq[row]),
            p2p_seq=int(c.p2p_seq[row]),
            op_id=int(c.op_id[row]),
            is_p2p=bool(c.is_p2p[row]),
            state=State(int(c.state[row])),
            retired=bool(c.retired[row]),
            signature=self.signatures[int(c.signature[row])],
            created_ns=int(c.created_ns[row]),
            started_ns=int(c.started_ns[row]),
            completed_ns=int(c.completed_ns[row]),
            duration_ms=None if np.isnan(duration) else duration,
            timeout_ms=int(c.timeout_ms[row]),
            thread=self.threads[thread] if thread >= 0 else "",
            frames=self.stacks[int(c.stack[row])],
        )
