"""The nouns of the field as frozen values: what one call, group, dump, stack or log event is.

Readers make them, the analysis reads them, reports show them. Nothing here parses, draws or opens
files, and only the standard library is imported. Bulk data (millions of calls) lives in the columns
of `unhang.case`, not in these objects; `Call` is the row that a reader of one call asks for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal, TypeAlias

from unhang.activity.looks import ProcessLook
from unhang.record.statement import Meeting, ProgramState

_HASH = re.compile(r"([0-9a-f]{20,64})(_\d+)?")
_SHOWN_DIGITS = 6

Shape: TypeAlias = tuple[int, ...]

DEFAULT_GROUP = "default_pg"
"""How torch describes the group that all ranks of a job make first."""

UNKNOWN_RANK = -1
"""The rank of evidence that names none."""

NoteLevel: TypeAlias = Literal["info", "warning", "error"]
LogRole: TypeAlias = Literal["cause", "consequence", "observation", "hint", "noise"]
AskedState: TypeAlias = Literal["answered", "not-reached", "late"]


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was skipped, cut, repaired or inferred while reading or reasoning.

    Attributes:
        level: "info" (inferred, harmless), "warning" (something is missing), "error" (lost).
        source: The file, rank or step that it is about, as shown to a person.
        text: One sentence.
    """

    level: NoteLevel
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame. Lists of frames are innermost first, as torch writes them."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Group:
    """A process group of the job.

    Attributes:
        name: torch's group name ("0", "12"); unique only together with `members`.
        description: torch's group description ("default_pg", "tp").
        members: Global ranks in group order: position is the group rank.
        inferred: True where members were inferred from who recorded calls on it.
        backend: "nccl", "gloo"…, or "" where nothing tells.
        has_twin: Another backend has a group of this name and of some of these ranks, with numbers
            of its own: torch makes one for each kind of device.
    """

    name: str
    description: str
    members: tuple[int, ...]
    inferred: bool = False
    backend: str = ""
    has_twin: bool = False

    @property
    def size(self) -> int:
        """Number of member ranks."""
        return len(self.members)

    @property
    def label(self) -> str:
        """The group as people say it: its description, with the name where that adds something.

        torch names groups of ranks that it made by itself by a hash of 40 digits: six of it do.
        """
        name = short_name(self.name)
        if not self.description or self.description == "undefined":
            label = name or "?"
        else:
            label = f"{self.description} ({name})" if name else self.description
        return f"{label} on {self.backend}" if self.has_twin and self.backend else label


def short_name(name: str) -> str:
    """A group's name as people read it: the first digits of a hash, anything else whole."""
    found = _HASH.fullmatch(name)
    return f"{name[:_SHOWN_DIGITS]}…{found[2] or ''}" if found else name


class State(IntEnum):
    """State of a call as recorded. What it proves depends on the backend: see root-cause docs."""

    SCHEDULED = 0
    STARTED = 1
    COMPLETED = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class OpName:
    """A profiling name such as "nccl:send 0->1", taken apart.

    Attributes:
        raw: The name as recorded.
        backend: What stands before the colon ("nccl"), or "".
        op: The operation ("all_reduce", "send", "coalesced"…), without backend and peers.
        src: Sending *group* rank of a send or receive; -1 where it names none (any source).
        dst: Receiving *group* rank; -1 where it names none.
    """

    raw: str
    backend: str
    op: str
    src: int = -1
    dst: int = -1


@dataclass(frozen=True, slots=True)
class Signature:
    """Shapes and dtypes of one call; equal signatures share one row of the case."""

    input_sizes: tuple[Shape, ...] = ()
    output_sizes: tuple[Shape, ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call of one rank: a row of `Case.calls`, with its dictionaries resolved.

    Attributes:
        row: Row number in `Case.calls`.
        record_id: The recorder's own counter; -1 where the format has none.
        seq: Collective sequence number in its group; -1 where unknown.
        p2p_seq: P2P sequence number in its group; -1 where unknown.
        created_ns, started_ns, completed_ns: Wall clock of that rank's host in ns; 0 if not known.
        duration_ms: Device time in ms, or None.
        timeout_ms: The time-out that the call had, in ms; -1 where unknown.
        frames: Innermost first; empty where the dump holds no stacks.
    """

    row: int
    rank: int
    group: Group
    name: OpName
    record_id: int
    seq: int
    p2p_seq: int
    op_id: int
    is_p2p: bool
    state: State
    retired: bool
    signature: Signature
    created_ns: int
    started_ns: int
    completed_ns: int
    duration_ms: float | None
    timeout_ms: int
    thread: str
    frames: tuple[Frame, ...]


class DumpStatus(str, Enum):
    """What became of one rank's dump file."""

    OK = "ok"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """The stack of one thread at one moment.

    Attributes:
        frames: Innermost first.
        native: True where `frames` may hold C/C++ frames.
        holds_gil, active: None where the sampler cannot tell.
    """

    name: str
    tid: int
    frames: tuple[Frame, ...]
    is_main: bool = False
    holds_gil: bool | None = None
    active: bool | None = None
    native: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a process may use, and how often that was not enough; 0 where nothing tells or limits.

    Of cgroups within cgroups the one that leaves least counts.

    Attributes:
        cores: Cores' worth of time that its cgroup may use.
        periods, throttled: Scheduling periods of that cgroup, and those in which it had to stop.
        memory_used, memory_held: Bytes of its cgroup, and those of them that are no page cache.
        memory_limit: The lower of `memory.high` and `memory.max`.
        pushed_back: How often its cgroup met that limit.
        oom_kills: Processes of its cgroup that were killed for memory so far.
        swapped: Bytes of the process itself that are swapped out.
    """

    cores: float = 0.0
    periods: int = 0
    throttled: int = 0
    memory_used: int = 0
    memory_held: int = 0
    memory_limit: int = 0
    pushed_back: int = 0
    oom_kills: int = 0
    swapped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage(Room):
    """What a process was short of between two looks at it; what its cgroup counts is of that time.

    Attributes:
        seconds: How long was measured.
        ran_s, queued_s: How long its main thread was on a core, and how long it wanted one in vain.
        threads: Its threads that wanted a core for more than half of the time.
        usable: Cores that it may be put on.
        memory_stalled: Share of the time in which a process (of its cgroup, where that tells, else
            of the node) waited for memory.
        faults: Pages that it had to read from a disk.
        swapped_in: Bytes that the node read back from swap.
    """

    seconds: float = 0.0
    ran_s: float = 0.0
    queued_s: float = 0.0
    threads: int = 0
    usable: int = 0
    memory_stalled: float = 0.0
    faults: int = 0
    swapped_in: int = 0


@dataclass(frozen=True, slots=True)
class MemoryKill:
    """What the kernel killed for lack of memory in a process's cgroup.

    Attributes:
        kills: Processes of that cgroup: shortly before its end, or of one that lives since the
            cgroup was made.
        ended: Ranks of that cgroup that ended in that time in a way that may be such a kill; 0 for
            a process that lives.
        limit, used: Bytes that it might use (0: no limit is seen), and the most that it ever used.
    """

    kills: int = 0
    ended: int = 0
    limit: int = 0
    used: int = 0

    @property
    def is_certain(self) -> bool:
        """Whether there are as many kills as there are ends."""
        return self.kills >= self.ended > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """What the kernel shows of a process at one moment: handed on whole from /proc to the verdict.

    Attributes:
        state: The kernel's letter (R, S, D, T, t, Z, X), or "" where unknown. T where its cgroup is
            frozen, too: kernels show that as S or D.
        frozen: The folder of that cgroup, as of a container that is paused; "" where it is not.
        wait_channel: Kernel function in which its main thread waits, or "".
        command: Its command line, without secrets.
        cpu_s: CPU time used so far in seconds; -1.0 where unknown.
        tracer, tracer_name: Process that traces it by ptrace(2), a debugger or strace, and its
            program; 0 and "" for none, or where it is not seen from here.
    """

    state: str = ""
    frozen: str = ""
    wait_channel: str = ""
    command: str = ""
    cpu_s: float = -1.0
    tracer: int = 0
    tracer_name: str = ""


@dataclass(frozen=True, slots=True)
class ProcessSample(ProcessState, Meeting, ProgramState):
    """What one look at one process showed, from outside (a sampler) or from a saved file.

    Attributes:
        rank: Global rank, or UNKNOWN_RANK for helpers and where nothing tells.
        role: "rank", "launcher", "data-loader", "helper", "engine", "server" (which a rank has
            asked) or "unknown".
        sample: 0 for the first look, 1 for the second…
        time_ns: Wall clock of the look in ns; 0 where unknown.
        tool: What made it ("py-spy", "pystack", "faulthandler", "gdb", "unhang"…). "heartbeat" for
            the last known line of a process, as of `time_ns`; its state is X if it has ended.
        error: Why there is no stack, or "".
        gone: It had ended when it was looked at, or while it was.
        exit_status: Exit code, 128 + n for a signal as shells say it; None while it runs.
        parent_rank: For helpers and data-loader workers: the rank that started them.
        looks: What the kernel had counted of it and all that it started, about a second apart since
            its job last got on, oldest first, relative to the oldest; empty where not measured.
        wakes_s: Seconds until the sleep of its main thread ends; -1 where it does not sleep, or
            nothing tells.
        line_looks, lines: How often its innermost line was seen before, a second apart, since its
            job last got on, and how many different ones that were; 0 where not noted.
        ended_ns: When it began to end by its own word, or was seen to have ended; 0 where it has
            not, or nothing tells.
        last_op, last_call, last_numel, last_site: Its last call through Python: which, the how
            manieth it was, the elements of its first tensor, and where it was made
            ("/home/user/train.py:12"). Where nothing tells: "", 0, -1 and "".
        makes: Where that call is "new_group": the groups that it made last, newest first, each as a
            name and its ranks ("2=0-1").
        splits: Of each of its last calls, where the newest is an all_to_all: the number in the
            group, the members, and the elements that it sends to, and expects from, each of them.
        peer, peer_pid, peer_command: The other end of the connection in which its main thread
            waits ("10.0.0.2:8000"), the process of its node that holds it, and what that runs.
            Where it waits in none, or nothing tells, "", 0 and "".
        lock: The file for whose lock its main thread waits; `peer_pid` and `peer_command` are then
            of the process that holds it.
        went_on: In a hang: since the alarm a call of it has ended well, and it has begun another;
            or its job has ended well.
        paused_s: In a hang: for how long no rank had moved that may be waited for, where that is no
            longer than a rank may pause in its own code; -1 where it is, or where no run watches.
        grace_s: In a hang: how long such a pause may take; 0 where no run watches.
        short_of: What it was short of before this look; None where not measured.
        memory_kill: What the kernel killed as it ended, or with it; None where no source shows it.
    """

    rank: int
    host: str
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    role: str = "rank"
    sample: int = 0
    time_ns: int = 0
    tool: str = ""
    error: str = ""
    gone: bool = False
    exit_status: int | None = None
    parent_rank: int = UNKNOWN_RANK
    looks: tuple[ProcessLook, ...] = ()
    wakes_s: float = -1.0
    line_looks: int = 0
    lines: int = 0
    ended_ns: int = 0
    last_op: str = ""
    last_call: int = 0
    last_numel: int = -1
    last_site: str = ""
    makes: tuple[str, ...] = ()
    splits: tuple[tuple[tuple[int, ...], ...], ...] = ()
    peer: str = ""
    peer_pid: int = 0
    peer_command: str = ""
    lock: str = ""
    went_on: bool = False
    paused_s: float = -1.0
    grace_s: float = 0.0
    short_of: Shortage | None = None
    memory_kill: MemoryKill | None = None


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One message of a log that a rule knows.

    Attributes:
        code: The rule's finding code ("UH712").
        role: Whether it is a cause, a consequence…; see `LogRole`.
        rank: UNKNOWN_RANK where the line does not tell.
        time_ns: Wall clock in ns; 0 where the line has none.
        order: Position in the whole input, for ordering lines without time.
        text: The line, without escapes, cut to a bounded length.
        source: "file:line".
        count: How often it came from this rank (first occurrence is kept).
        fields: What the rule read out of it, e.g. {"seq": "12", "op": "ALLREDUCE"}; and what else
            is known: "file", "line", "function" of an exception, "attempt" of torchrun, "clock":
            "utc" where the stamp names its zone, "rank_is": "local" for a rank on its node,
            "among" where the rank is a number in a communicator of so many.
    """

    code: str
    role: LogRole
    rank: int
    text: str
    source: str
    time_ns: int = 0
    order: int = 0
    host: str = ""
    count: int = 1
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement of a library about itself: `name` is what it is about, `value` what it said."""

    name: str
    value: str
    rank: int = UNKNOWN_RANK


@dataclass(frozen=True, slots=True)
class LastCall:
    """Where a traced process was last heard of.

    Attributes:
        time_ns: When its last traced call began or ended, wall clock of its host.
        frame: That call; its line is the function's first.
        entered: The call began; False where it had ended.
        open_calls: Traced calls of that thread that had not ended, innermost first.
    """

    rank: int
    pid: int
    time_ns: int
    frame: Frame
    entered: bool
    open_calls: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that keeps the others waiting, in a job that moves.

    Attributes:
        excess: By how much its own time is longer than that of the others; 0.1 is 10 %.
        late_ms: By how much it comes later, per call.
        since_ns: Wall clock of the first block in which it was so.
        for_s: How long ago that was when it was noticed.
    """

    rank: int
    excess: float
    late_ms: float
    since_ns: int
    for_s: float


@dataclass(frozen=True, slots=True)
class AskedNode:
    """A node that was asked for the evidence of its ranks.

    Attributes:
        node: As those who asked call it.
        state: not-reached: nothing came of it; late: it takes part in the case, and had given
            nothing by the time of the verdict.
        ranks: That run there, ascending; empty where nothing tells.
        inferred: No node has told that: they are those that no other node has.
        why: Why nothing came, or "".
    """

    node: str
    state: AskedState
    ranks: tuple[int, ...] = ()
    inferred: bool = False
    why: str = ""
