"""What runs on this node, as it runs: how far each rank has come, how fast, and who has come least.

Marks and heartbeats are read from outside: a look costs the ranks nothing, and the death of any of
them takes nothing away. Having finished fewest calls is no guilt; the verdict is the report's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from unhang.activity.thresholds import APART_S, SETTLED_LOOKS, WINDOW_LOOKS
from unhang.record.contact.beatlayout import GroupBeat
from unhang.record.contact.heartbeat import Heartbeat, read_heartbeat
from unhang.record.contact.marks import Mark, alive, read_marks
from unhang.run.watching.roster import finished_calls, is_waiting

_RATE_OVER_S = SETTLED_LOOKS * APART_S
_IN_JOB = frozenset({"initialising", "ready", "destroyed"})


@dataclass(frozen=True, slots=True)
class RankNow:
    """One rank at one moment.

    Attributes:
        finished: Grows with every call that ends and every step.
        per_s: How fast it has grown of late; None on the first look.
        behind: How many fewer than the middle of all ranks; 0 for those that are not.
        waiting: A call of it is pending; None where it is not known.
        where: Its last call and the line from which it was made; or where its code was seen last.
        quiet_s: Since the program's last sign of life, or since a look saw a call end that was
            made from C++; None where there was none.
        late: In how many of the last looks others of one of its groups waited for it, in percent;
            None before there were enough.
        still_s: Where `quiet_s` tells nothing: for so long at least no look saw a call end.
    """

    rank: int
    pid: int
    alive: bool
    phase: str
    finished: int
    per_s: float | None
    behind: int
    waiting: bool | None
    where: str
    quiet_s: float | None
    step: int | None
    late: int | None = None
    still_s: float | None = None


@dataclass(frozen=True, slots=True)
class GroupNow:
    """One process group at one moment, as its members on this node count.

    Attributes:
        ranks: Its members here.
        finished: Collectives that all of these have finished.
        per_s: How fast that has grown of late; None on the first look.
        behind: Those that have not called the newest collective in which another one waits.
    """

    name: str
    description: str
    backend: str
    ranks: tuple[int, ...]
    finished: int
    per_s: float | None
    behind: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobNow:
    """The ranks of one job on this node.

    Attributes:
        began_ns: When the first of them was armed, wall clock; 0 where nothing tells.
    """

    job: str
    host: str
    world_size: int
    ranks: tuple[RankNow, ...]
    groups: tuple[GroupNow, ...] = ()
    began_ns: int = 0


@dataclass(slots=True)
class Looker:
    """Looks again and again, and remembers enough for rates."""

    job: str = ""
    _seen: dict[tuple[str, object], list[tuple[float, int]]] = field(default_factory=dict)
    _late: dict[tuple[str, int], deque[bool]] = field(default_factory=dict)
    _moves: dict[tuple[str, int], tuple[int, float | None]] = field(default_factory=dict)
    _first: dict[tuple[str, int], float] = field(default_factory=dict)

    def look(self, now_s: float | None = None) -> list[JobNow]:
        """All jobs of this user that run here now, or lately did."""
        now = time.time() if now_s is None else now_s
        jobs: dict[str, list[tuple[Mark, Heartbeat | None]]] = {}
        for mark in self._marks():
            beat = read_heartbeat(mark.heartbeat) if mark.heartbeat else None
            jobs.setdefault(mark.job_id, []).append((mark, beat))
        looks = [self._job(name, own, now) for name, own in sorted(jobs.items())]
        return sorted(looks, key=lambda job: not any(rank.alive for rank in job.ranks))

    def _marks(self) -> Iterator[Mark]:
        """One mark a rank: that of its newest process."""
        newest: dict[tuple[str, int], Mark] = {}
        for mark in read_marks(self.job or None):
            if mark.rank is None or mark.phase not in _IN_JOB:
                continue
            key = (mark.job_id, mark.rank)
            if key not in newest or newest[key].armed_ns < mark.armed_ns:
                newest[key] = mark
        yield from newest.values()

    def _job(self, name: str, own: list[tuple[Mark, Heartbeat | None]], now: float) -> JobNow:
        done = {mark.pid: max(finished_calls(beat), 0) for mark, beat in own}
        groups = tuple(self._groups(name, own, now))
        awaited = {rank for group in groups for rank in group.behind}
        middle = int(median(done.values()))
        ranks = [
            RankNow(
                rank=mark.rank if mark.rank is not None else -1,
                pid=mark.pid,
                alive=alive(mark),
                phase=beat.phase if beat else mark.phase,
                finished=done[mark.pid],
                per_s=self._rate(name, mark.pid, done[mark.pid], now),
                behind=max(middle - done[mark.pid], 0),
                waiting=is_waiting(beat),
                where=_where(beat),
                quiet_s=_quiet(beat, now, self._moved(name, mark.pid, done[mark.pid], now)),
                step=beat.step if beat else None,
                late=self._lateness(name, mark.pid, awaited=mark.rank in awaited),
                still_s=round(now - self._first.setdefault((name, mark.pid), now), 1),
            )
            for mark, beat in own
        ]
        size = max((mark.world_size or 0 for mark, _ in own), default=0)
        ranks.sort(key=lambda each: each.rank)
        began_ns = min(mark.armed_ns for mark, _ in own)
        return JobNow(name, own[0][0].host, size, tuple(ranks), groups, began_ns)

    def _groups(
        self, job: str, own: list[tuple[Mark, Heartbeat | None]], now: float
    ) -> Iterator[GroupNow]:
        """Groups that ranks count under one name; those without one cannot be distinguished."""
        counts: dict[tuple[str, str, str], dict[int, GroupBeat]] = {}
        for mark, beat in own:
            for each in beat.groups if beat and mark.rank is not None and alive(mark) else ():
                if each.name:
                    key = (each.name, each.description, each.recorder)
                    counts.setdefault(key, {})[mark.rank or 0] = each
        for (name, description, backend), members in sorted(counts.items()):
            finished = max(min(each.last_completed for each in members.values()), 0)
            rate = self._rate(job, (name, backend), finished, now)
            ranks = tuple(sorted(members))
            yield GroupNow(name, description, backend, ranks, finished, rate, behind(members))

    def _lateness(self, job: str, pid: int, *, awaited: bool) -> int | None:
        seen = self._late.setdefault((job, pid), deque(maxlen=WINDOW_LOOKS))
        seen.append(awaited)
        return round(100 * sum(seen) / len(seen)) if len(seen) >= SETTLED_LOOKS else None

    def _moved(self, job: str, pid: int, finished: int, now: float) -> float | None:
        """When a look first saw what has finished by now; None where it was so at the first."""
        last, moved_s = self._moves.get((job, pid), (finished, None))
        self._moves[job, pid] = (finished, moved_s if last == finished else now)
        return self._moves[job, pid][1]

    def _rate(self, job: str, whose: object, finished: int, now: float) -> float | None:
        seen = self._seen.setdefault((job, whose), [])
        seen.append((now, finished))
        while len(seen) > 2 and now - seen[1][0] >= _RATE_OVER_S:  # noqa: PLR2004 - two ends
            seen.pop(0)
        (first_s, first), *_ = seen
        return round((finished - first) / (now - first_s), 2) if now > first_s else None


def behind(members: Mapping[int, GroupBeat]) -> tuple[int, ...]:
    """Members that have not called what the first of those who wait is in."""
    waiting = [m.last_enqueued for m in members.values() if m.last_enqueued > m.last_completed]
    front = max(waiting, default=-1)
    return tuple(sorted(rank for rank, m in members.items() if m.last_enqueued < front))


def _where(beat: Heartbeat | None) -> str:
    """The last call through Python; of calls from C++ alone, as DDP's, the line last seen."""
    if beat is None:
        return ""
    if beat.op:
        return f"{beat.op} at {beat.file}:{beat.line}" if beat.line else beat.op
    return f"code at {beat.seen_file}:{beat.seen_line}" if beat.seen_line else ""


def _quiet(beat: Heartbeat | None, now: float, moved_s: float | None) -> float | None:
    signs = [moved_s] if moved_s is not None else []
    if beat is not None and beat.last_ns:
        signs.append(beat.last_ns / 1e9)
    return round(max(now - max(signs), 0.0), 1) if signs else None
