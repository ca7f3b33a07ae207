"""Questions about a job that has run: who waits in which call, and for whom.

The simulator's own view, complete and without any recorder between. Faults use it to say what the
truth is; it never sees a file, and no tool under test sees it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lab.simulate.engine import Outcome, Record
from lab.truth import Point


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """One rank's head, and who has not called what it needs."""

    rank: int
    head: Record
    missing: frozenset[int]


@dataclass(slots=True)
class Oracle:
    """The waits of one outcome."""

    outcome: Outcome
    waits: dict[int, Wait] = field(init=False)
    _joined: set[tuple[int, int, int]] = field(default_factory=set)
    _posted: Counter[tuple[int, int, str, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for records in self.outcome.records:
            for record in records:
                self._count(record)
        self.waits = {}
        for rank in range(self.outcome.plan.world_size):
            head = self.outcome.head(rank)
            if head is not None:
                self.waits[rank] = Wait(rank, head, frozenset(self._missing(rank, head)))

    def _count(self, record: Record) -> None:
        issue = record.issue
        if not issue.is_p2p:
            self._joined.add((record.rank, issue.group, record.seq))
        elif not record.closing:
            self._posted[(issue.group, record.rank, issue.op, issue.peer)] += 1

    def _missing(self, rank: int, head: Record) -> set[int]:
        issue = head.issue
        if not issue.is_p2p:
            members = self.outcome.plan.groups[issue.group].members
            return {m for m in members if (m, issue.group, head.seq) not in self._joined}
        return {
            record.issue.peer
            for record in self.launch_of(head)
            if record.finished is None and self._unmatched(rank, record)
        }

    def launch_of(self, head: Record) -> list[Record]:
        """The sends and receives that belong to a launch."""
        if not head.closing:
            return [head]
        records = self.outcome.records[head.rank]
        first = head.number
        while first and records[first - 1].member and records[first - 1].p2p_seq == head.p2p_seq:
            first -= 1
        return records[first : head.number]

    def _unmatched(self, rank: int, record: Record) -> bool:
        """Whether the peer has not yet called the other side of a send or receive."""
        issue = record.issue
        same = (issue.group, rank, issue.op, issue.peer)
        earlier = sum(
            1
            for other in self.outcome.records[rank][: record.number]
            if (other.issue.group, other.rank, other.issue.op, other.issue.peer) == same
            and not other.closing
        )
        opposite = "recv" if issue.op == "send" else "send"
        return self._posted[(issue.group, issue.peer, opposite, rank)] <= earlier

    def sinks(self) -> frozenset[int]:
        """Ranks that others wait for and that wait in no call themselves."""
        needed = {m for wait in self.waits.values() for m in wait.missing}
        return frozenset(needed - set(self.waits))

    def waiting_for(self, ranks: frozenset[int]) -> list[Wait]:
        """Waits of other ranks to which one of these has not come."""
        return [
            wait for rank, wait in self.waits.items() if rank not in ranks and wait.missing & ranks
        ]

    def point(self, record: Record) -> Point:
        """A call as a truth names it."""
        group = self.outcome.plan.groups[record.issue.group]
        site = record.issue.site
        seq = -1 if record.issue.is_p2p else record.seq
        return Point(group.name, group.description, seq, site.file, site.line)
