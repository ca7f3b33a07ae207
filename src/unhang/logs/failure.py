"""Which failure came first: causes before consequences, by time, folded over ranks.

Pure functions over log events. What cannot be ordered is said to be unordered, and a message that
every rank prints blames no rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from unhang.kinds import Trait
from unhang.logs.addresses import joined
from unhang.logs.keeping import ANY_EXCEPTION, IN_THREAD, WENT_ON, normalise
from unhang.logs.rules import rule_of
from unhang.logs.rules.known import CHILD_FAILED, KILLED, TIMED_OUT, WORKER_DIED
from unhang.model import LogEvent

CLOCK_SLACK_NS = 2 * 10**9
"""Stamps of different hosts closer than this are not put in order."""


INCIDENT_NS = 12 * 3600 * 10**9
"""Faults in a kernel's log that are further apart are different incidents: the newest counts."""

_RAYLETS = "A worker died or was killed while executing"
"""Ray's words where it does not know why; what it adds are guesses."""

LAUNCHER_WAITS_NS = 10 * 10**9
"""Who is killed so long after another rank failed may be killed by its launcher, after 30 s."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """One message and the ranks that printed it; `first` is the earliest of them."""

    first: LogEvent
    ranks: tuple[int, ...]
    count: int

    @property
    def time_ns(self) -> int:
        """When it was first printed; 0 where no stamp tells."""
        return self.first.time_ns


def settled(events: Sequence[LogEvent]) -> tuple[LogEvent, ...]:
    """The events, where one that its launcher explains, or that passed, is no cause any more.

    Torchelastic ends the others when a rank has failed, and kills after a while who does not go.
    Where two lines prove a thing together, one of them reports it, and the other follows.
    """
    events = joined(events)
    ends = {event.time_ns: event.rank for event in events if event.code == CHILD_FAILED.code}
    failed = [(time_ns, rank) for time_ns, rank in sorted(ends.items()) if time_ns]
    killed = {
        e.fields["pid3"] for e in events if "forcefully exiting" in e.text and "pid3" in e.fields
    }
    newest = max((event.time_ns for event in events if "xid" in event.fields), default=0)
    timed_out = min((e.order for e in events if e.code == TIMED_OUT.code), default=2**63 - 1)
    return tuple(
        replace(event, role="hint")
        if _long_before(event, newest)
        else replace(event, role="consequence")
        if _of_a_watchdog(event, timed_out)
        else _settled(event, failed, killed)
        for event in events
    )


def _settled(
    event: LogEvent, failed: Sequence[tuple[int, int]], killed: Collection[str]
) -> LogEvent:
    if event.role == "cause" and WENT_ON in event.fields:
        return replace(event, role="hint", text=f"(further steps came after this) {event.text}")
    return replace(event, role="consequence") if _by_launcher(event, failed, killed) else event


def _long_before(event: LogEvent, newest: int) -> bool:
    """Whether the kernel wrote it so long before its newest fault that it is another story."""
    return "xid" in event.fields and 0 < event.time_ns < newest - INCIDENT_NS


def _of_a_watchdog(event: LogEvent, timed_out: int) -> bool:
    """Whether a process ended after a watchdog's time-out, which aborts it, for no known reason."""
    died = event.code == WORKER_DIED.code or _RAYLETS in event.text
    return died and event.order > timed_out and "exitcode" not in event.fields


def _by_launcher(
    event: LogEvent, failed: Sequence[tuple[int, int]], killed: Collection[str]
) -> bool:
    if event.code != KILLED.code:
        return False
    pids = {value for key, value in event.fields.items() if key.startswith("pid")}
    if pids & set(killed):
        return True
    first = next(((time, rank) for time, rank in failed if rank != event.rank), None)
    return first is not None and event.time_ns - first[0] >= LAUNCHER_WAITS_NS


def fold(events: Iterable[LogEvent]) -> list[FailureGroup]:
    """Fold equal messages (numbers aside) over ranks, in order of first appearance."""
    groups: dict[tuple[str, str], list[LogEvent]] = {}
    for event in events:
        groups.setdefault(_key(event), []).append(event)
    folded = [_group(members) for members in groups.values()]
    return sorted(folded, key=lambda group: _when(group.first))


def _key(event: LogEvent) -> tuple[str, str]:
    return event.code, _message(event)


def _message(event: LogEvent) -> str:
    """What makes two messages the same: an exception's type and place, else its normal form."""
    if event.code == ANY_EXCEPTION:
        return f"{event.fields.get('type')}|{event.fields.get('file')}:{event.fields.get('line')}"
    return f"{event.fields.get('before', event.fields.get('xid'))}|{normalise(event.text)}"


def _group(members: Sequence[LogEvent]) -> FailureGroup:
    ranks = tuple(sorted({event.rank for event in members if event.rank >= 0}))
    return FailureGroup(min(members, key=_when), ranks, sum(event.count for event in members))


def _when(event: LogEvent) -> tuple[int, int]:
    return (event.time_ns or 2**63 - 1, event.order)


def ordered_failures(events: Sequence[LogEvent]) -> tuple[list[FailureGroup], bool]:
    """Causes, earliest first.

    Stamps with a zone and stamps without one are never compared: hosts keep local time. That a
    process ended comes after all else that it said, whichever file tells it; an exception of a
    thread of an unknown process, after those of ranks: a helper's ends no job.

    Returns:
        The folded causes (role "cause" of a rule that claims something), and whether their order
        can be trusted: by stamps of one clock that all of them have, or by position in one file.
    """
    causes = _noticed([event for event in events if event.role == "cause" and _claims(event)])
    said = {event.rank for event in causes if event.rank >= 0 and not _is_an_end(event)}
    ends = [event for event in causes if event.rank in said and _is_an_end(event)]
    first = [event for event in causes if event.rank not in said or not _is_an_end(event)]
    aside = [event for event in first if is_a_helpers(event)]
    told = [event for event in first if not is_a_helpers(event)]
    if not any(event.rank >= 0 for event in told):
        aside, told = [], first
    groups, ordered = _by_clock(told)
    return groups + fold(aside) + fold(ends), ordered


def is_a_helpers(event: LogEvent) -> bool:
    """Whether it ended a thread of an unknown process."""
    return event.rank < 0 and IN_THREAD in event.fields


def _is_an_end(event: LogEvent) -> bool:
    rule = rule_of(event.code)
    return rule is not None and Trait.ENDING in rule.traits


def _by_clock(causes: Sequence[LogEvent]) -> tuple[list[FailureGroup], bool]:
    groups = fold(causes)
    if len(groups) <= 1:
        return groups, True
    for utc in (False, True):
        dated = [e for e in causes if e.time_ns and (e.fields.get("clock") == "utc") is utc]
        firsts = {_key(group.first): group.first for group in fold(dated)}
        if len(firsts) == len(groups):
            same = [replace(group, first=firsts[_key(group.first)]) for group in groups]
            return sorted(same, key=lambda group: _when(group.first)), True
    files = {event.source.rpartition(":")[0] for event in causes}
    return groups, len(files) <= 1


def _noticed(causes: Sequence[LogEvent]) -> list[LogEvent]:
    """Without what was printed of no rank, where the same comes again with its rank."""
    met = {event.code for event in causes if _has_rank(event)}
    return [e for e in causes if _has_rank(e) or e.code not in met or not _is_echoed(e)]


def _has_rank(event: LogEvent) -> bool:
    return event.rank >= 0 or any(key == "tasks" or "ranks" in key for key in event.fields)


def _is_echoed(event: LogEvent) -> bool:
    rule = rule_of(event.code)
    return rule is not None and rule.echoed


def _claims(event: LogEvent) -> bool:
    rule = rule_of(event.code)
    return rule is not None and rule.trust != "C"
