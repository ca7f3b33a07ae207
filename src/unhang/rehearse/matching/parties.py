"""What a referee remembers of a rehearsal: ranks, groups, calls, and what ends as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from unhang.model import Frame
from unhang.rehearse.matching.agreement import MemberMeeting
from unhang.rehearse.matching.issue import Issue
from unhang.rehearse.matching.talking import Message
from unhang.stacks.ownership import is_library

Frames: TypeAlias = tuple[tuple[str, str, int], ...]
"""Function, file, line; innermost first."""
Waiter: TypeAlias = int
"""A connection's number."""


@dataclass(slots=True, eq=False)
class OneLaunch:
    """Calls that end together, as a batch of sends and receives does on NCCL.

    Attributes:
        closed: No call joins it any more.
    """

    calls: list[MadeCall] = field(default_factory=list)
    closed: bool = False

    def has_met(self) -> bool:
        """Whether all of it may end."""
        return self.closed and all(call.met_ns for call in self.calls)


@dataclass(slots=True, eq=False)
class MadeCall:
    """One call of one rank, and what became of it.

    Attributes:
        told: As the rank told it.
        met_ns, ended_ns: When its partners were there, and when it ended: later in a batch, which
            ends as one. 0 for not yet.
        seq, p2p_seq, op_id: Numbers in its group, as torch's recorder counts.
        senders: Calls whose values it takes, in the order of the group; None where none came.
        takers: How many still have to take its values.
    """

    process: LivingRank
    circle: RankGroup
    told: Message
    frames: Frames
    issue: Issue
    seq: int
    p2p_seq: int
    op_id: int
    created_ns: int
    launch: OneLaunch
    met_ns: int = 0
    ended_ns: int = 0
    senders: list[MadeCall | None] = field(default_factory=list)
    takers: int = 0
    source: int = -1

    @property
    def number(self) -> int:
        """The how manieth of its process."""
        return int(self.told["number"])

    @property
    def in_pair(self) -> bool:
        """Whether a communicator of two carries it, and not its group's."""
        return self.circle.pairs_apart and self.told["batch"] < 0


@dataclass(slots=True, eq=False)
class RankGroup:
    """A process group, by name and members: ranks that disagree about these never meet.

    Attributes:
        running: Members that run; of a large job, some stand for the others.
        pairs_apart: A send or receive outside of a batch has a communicator of its pair: it meets
            none of a batch.
    """

    number: int
    name: str
    description: str
    ranks: tuple[int, ...]
    backend: str
    timeout_ms: int
    running: tuple[int, ...]
    pairs_apart: bool = False
    counters: dict[int, list[int]] = field(default_factory=dict)
    meetings: dict[int, MemberMeeting] = field(default_factory=dict)
    apart: list[MadeCall] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class LivingRank:
    """One rank, or the launcher of some.

    Attributes:
        alive: It has said that it is there: a process that only tells its end is no rank of a job
            that has started its ranks itself.
        waits: What its main thread waits for: calls, or the keys of a store.
        place: Where it waits or polls; empty where it does neither.
        begun: Where it called init_process_group.
        asked: Groups that it called `new_group` for: members, and where.
        steps: How many calls it had made at the end of each step of its optimizer.
        code: Its exit code; None while it runs.
        error_frames: Where it raised its error, or without one called `sys.exit`.
    """

    pid: int
    rank: int
    main: Waiter = -1
    joined: bool = False
    launcher: bool = False
    waits: str = ""
    place: Frames = ()
    begun: Frames = ()
    steps: list[int] = field(default_factory=list)
    code: int | None = None
    error: str = ""
    error_frames: Frames = ()
    ended_ns: int = 0
    calls: dict[int, MadeCall] = field(default_factory=dict)
    stacks: dict[tuple[Waiter, int], Frames] = field(default_factory=dict)
    batches: dict[int, OneLaunch] = field(default_factory=dict)
    groups: list[RankGroup] = field(default_factory=list)
    asked: list[tuple[tuple[int, ...], Frames]] = field(default_factory=list)


def own_lines(frames: Frames) -> Frames:
    """The script's own lines on the way to a call."""
    return tuple(frame for frame in frames if not is_library(Frame(*frame)))
