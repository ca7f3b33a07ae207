"""How processes of ranks ended: what their own dumps, samplers and the launcher saw.

Errors of communication are never taken for a beginning, nor are ranks that were told to end. An end
with exit status 0 says nothing by itself: every job ends so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from msgspec.structs import replace

from unhang.analysis.shared.claims import Observation
from unhang.analysis.sources.stacks import RankLook
from unhang.case import Case
from unhang.model import Frame, LogEvent, MemoryKill

SIGNAL_BASE: Final = 128
CRASHES: Final = {
    4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV",
    31: "SIGSYS",
}  # fmt: skip
_KILLS: Final = frozenset(CRASHES) - {6}
_EXITED: Final = "exited"  # the phase of a process whose program has ended
_ORDERED: Final = frozenset({1, 2, 3, 15})  # ordered to end, by the launcher or a user


class Manner(IntEnum):
    """How good a beginning an end is: the lowest that is there explains the others."""

    KILLED = 0
    RAISED = 1
    LEFT = 2
    UNCLEAR = 3
    FOLLOWED = 4


class End(Observation, frozen=True, kw_only=True):
    """How one rank ended; `time_ns` is when it raised.

    Attributes:
        status: As shells say it; None where no source shows it.
        error: "ValueError: bad batch", or "".
        frames: Where it raised, or else its last known line; innermost first.
        age_s: How old that line is at the end of the evidence; None where it raised there.
        ended_ns: When its process was seen to have ended; 0 where unknown.
        memory_kill: What the kernel killed for memory in the meantime; None where nothing tells of
            any.
    """

    rank: int
    manner: Manner
    status: int | None = None
    error: str = ""
    frames: tuple[Frame, ...] = ()
    age_s: float | None = None
    ended_ns: int = 0
    pid: int = -1
    memory_kill: MemoryKill | None = None

    @property
    def for_memory(self) -> bool:
        """The kernel killed it for lack of memory."""
        return self.memory_kill is not None and self.memory_kill.is_certain

    @property
    def for_peer(self) -> bool:
        """It failed because a peer was gone; it was not merely told to end."""
        failed = bool(self.error) or 0 < (self.status or 0) < SIGNAL_BASE
        return self.manner is Manner.FOLLOWED and failed


def ends_of(case: Case, looks: Mapping[int, RankLook]) -> dict[int, End]:
    """How each rank ended that a source shows as ended, ascending.

    An end that nothing explains follows from the call in which its peer failed it, where its own
    dump tells of one: the dump of the exception itself may come after those that are read.

    Args:
        case: For the exceptions that dumps tell of.
        looks: For the exit status of processes and their last known lines.
    """
    ends: dict[int, End] = {}
    for dump in case.dumps:
        if dump.exception and dump.rank not in ends:
            followed = _follows(dump.exception, dump.exception_stack)
            ends[dump.rank] = End(
                source="exits",
                rank=dump.rank,
                manner=Manner.FOLLOWED if followed else Manner.RAISED,
                error=dump.exception,
                frames=dump.exception_stack,
                time_ns=dump.time_ns,
                host=dump.host,
                pid=dump.pid,
            )
    for look in looks.values():
        if look.gone and look.rank in ends:
            ends[look.rank] = replace(
                ends[look.rank], status=look.sample.exit_status, ended_ns=look.sample.ended_ns
            )
        elif look.gone:
            ends[look.rank] = _from_look(look)
        elif (
            look.sample.phase == _EXITED and look.rank not in ends
        ):  # its interpreter takes its time
            ends[look.rank] = replace(_from_look(look), manner=Manner.LEFT)
    gave_up = {d.rank for d in case.dumps if any(_follows(text, ()) for text in d.failures)}
    for rank in gave_up & ends.keys():
        if ends[rank].manner is Manner.UNCLEAR:
            ends[rank] = replace(ends[rank], manner=Manner.FOLLOWED)
    return dict(sorted(ends.items()))


def with_last_words(ends: Mapping[int, End], events: Sequence[LogEvent]) -> dict[int, End]:
    """Ends with the last exception that each rank printed, where its dump does not tell of one.

    What a rank printed in an earlier attempt, or survived, has not ended it. Nor has an exception
    ended a rank that a signal did, or that ended as if all were well.

    Args:
        ends: How ranks ended.
        events: Of logs, each with the rank that it belongs to.
    """
    newest = max(map(_attempt, events), default=0)
    told = {
        event.rank: event
        for event in sorted(events, key=lambda each: each.order)
        if _attempt(event) == newest and _ended_by(event)
    }
    return {
        rank: _saying(end, told[rank]) if rank in told and _is_unexplained(end) else end
        for rank, end in ends.items()
    }


def _attempt(event: LogEvent) -> int:
    number = event.fields.get("attempt", "")
    return int(number) if number.isdecimal() else 0


def _ended_by(event: LogEvent) -> bool:
    """Whether it is an exception with its place, that may have ended its process."""
    from unhang.logs.keeping import IN_THREAD, WENT_ON

    is_exception = "file" in event.fields and event.role in ("cause", "consequence")
    return is_exception and IN_THREAD not in event.fields and WENT_ON not in event.fields


def _is_unexplained(end: End) -> bool:
    by_program = end.status is not None and 0 < end.status < SIGNAL_BASE
    return by_program and not end.error and end.manner in (Manner.UNCLEAR, Manner.FOLLOWED)


def _saying(end: End, event: LogEvent) -> End:
    manner = Manner.FOLLOWED if event.role == "consequence" else Manner.RAISED
    fields, line = event.fields, event.fields.get("line", "")
    frame = Frame(fields.get("function", "?"), fields["file"], int(line) if line.isdecimal() else 0)
    return replace(
        end,
        manner=max(end.manner, manner) if end.manner is Manner.FOLLOWED else manner,
        error=event.text,
        frames=(frame,),
        age_s=None,
        time_ns=event.time_ns or end.ended_ns,
    )


def _follows(error: str, frames: Sequence[Frame]) -> bool:
    from unhang.logs.following import follows

    return follows(error, frames)


def _from_look(look: RankLook) -> End:
    number = (look.sample.exit_status or 0) - SIGNAL_BASE
    manner = Manner.LEFT if look.sample.exit_status == 0 else Manner.UNCLEAR
    killed = look.sample.memory_kill is not None and look.sample.memory_kill.is_certain
    if number in _KILLS or (killed and look.sample.exit_status is None):
        manner = Manner.KILLED
    elif number in _ORDERED or (manner is Manner.UNCLEAR and look.sample.lost_ns):
        manner = Manner.FOLLOWED
    return End(
        source="exits",
        rank=look.rank,
        manner=manner,
        status=look.sample.exit_status,
        frames=look.frames,
        age_s=look.age_s,
        ended_ns=look.sample.ended_ns,
        host=look.host,
        pid=look.pid,
        memory_kill=look.sample.memory_kill,
    )
