"""Who takes part, who has answered, and who leads: states alone, without sockets or clocks.

The one that leads hears of all others, and knows at each moment whose ranks it sees. It is elected
by an order that all know: the rendezvous host first, then those that the last leader named, as they
had joined. Two may lead for a while, where a network is parted. Then neither sees all ranks, and
nothing is ended on such a view (`why_not_all`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from unhang.casedir.sharing import Announcement
from unhang.run.meeting.beats import NodeBeat
from unhang.run.watching.watch import ProgressLook, RankProgress
from unhang.wording import rank_phrase

LATE_LOOKS: Final = 3
LATE_S: Final = 6.0
"""What a supervisor has seen three of its looks and this ago tells nothing of now."""
SILENT_S: Final = 10.0
"""One that has said nothing for so long is frozen, or lost: each says every 2 s that it lives."""
TURN_S: Final = 6.0
"""So long each of those before it is given to lead, before the next one does."""
MOST_NAMED: Final = 16
"""All know so many that may lead next; where these are all lost, each watches alone."""


class Successor(NamedTuple):
    """Where a supervisor listens once it leads."""

    run: str
    address: str
    port: int


class Absent(NamedTuple):
    """A supervisor that has not given its part: the ranks that it has told of, and why."""

    run: str
    host: str
    ranks: tuple[int, ...]
    why: str


@dataclass(slots=True)
class _Member:
    run: str
    host: str
    place: Successor
    heard_s: float
    beat: NodeBeat | None = None
    beat_s: float = 0.0
    gave: int = 0
    lost: bool = False

    def is_there(self, now_s: float) -> bool:
        return not self.lost and now_s - self.heard_s <= SILENT_S

    def sees(self, now_s: float) -> bool:
        """Whether what it has told is of now."""
        every_s = self.beat.every_s if self.beat is not None else 0.0
        fresh = now_s - self.beat_s <= LATE_S + LATE_LOOKS * every_s
        return self.is_there(now_s) and fresh

    @property
    def ranks(self) -> frozenset[int]:
        return self.beat.known if self.beat is not None else frozenset()


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """What all take part in; numbers rise.

    Attributes:
        ready: The leader takes parts of it.
        judged: The verdict is out: who comes now is too late for it.
    """

    number: int = 0
    run: str = ""
    kind: str = ""
    detail: str = ""
    ready: bool = False
    judged: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it may be taken part in."""
        return self.number > 0 and bool(self.run) and not self.judged


@dataclass(slots=True)
class Assembly:
    """The view of the one that leads.

    Attributes:
        run: Who that is.
        first: No incident has a smaller number: those of leaders before it are over.
    """

    run: str
    first: int = 0
    mine: NodeBeat | None = None
    incident: OpenIncident = field(default_factory=OpenIncident)
    _members: dict[str, _Member] = field(default_factory=dict)
    _owners: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.incident = OpenIncident(self.first)

    # -------------------------------------------------------------- who is there

    def joined(self, run: str, host: str, place: Successor, now_s: float) -> bool:
        """Take a supervisor in; False where one of that name is there, or it is the leader's."""
        known = self._members.get(run)
        if run == self.run or (known is not None and not known.lost):
            return False
        fresh = _Member(run, host, place, now_s)
        self._members[run] = fresh if known is None else replace(known, heard_s=now_s, lost=False)
        return True

    def heard(self, run: str, beat: NodeBeat, now_s: float) -> None:
        """A supervisor has looked; a rank that another one has is not its own."""
        member = self._members[run]
        if beat.known != member.ranks:
            beat = self._owned(run, beat)
        member.beat, member.heard_s, member.beat_s = beat, now_s, now_s

    def _owned(self, run: str, beat: NodeBeat) -> NodeBeat:
        """What it tells of its own ranks; those of a supervisor that is lost may be its own now."""
        for rank in beat.known:
            owner = self._members.get(self._owners.get(rank, run))
            if owner is None or owner.lost:
                self._owners[rank] = run
            else:
                self._owners.setdefault(rank, run)
        mine = self.mine.known if self.mine is not None else frozenset()
        known = frozenset(r for r in beat.known if self._owners[r] == run) - mine
        ranks = tuple(each for each in beat.ranks if each.rank in known)
        return replace(beat, ranks=ranks, known=known)

    def here(self, run: str, now_s: float) -> None:
        """A supervisor has said something else."""
        self._members[run].heard_s = now_s

    def ranks_of(self, run: str) -> frozenset[int]:
        """The ranks that a supervisor has told of."""
        return self._members[run].ranks

    def lost(self, run: str, *, well: bool = False) -> None:
        """Its connection has ended; well: it has said that its command is over."""
        if well:
            self._members.pop(run, None)
        elif run in self._members:
            self._members[run].lost = True

    @property
    def hosts(self) -> dict[int, str]:
        """On which node ranks are, of those that others have."""
        return {rank: m.host for m in self._members.values() for rank in m.ranks}

    @property
    def line(self) -> tuple[Successor, ...]:
        """Who leads next, in order."""
        there = (member.place for member in self._members.values() if not member.lost)
        return tuple(place for _, place in zip(range(MOST_NAMED), there, strict=False))

    # -------------------------------------------------------------- what they see

    def look(self, mine: ProgressLook, now_s: float) -> ProgressLook:
        """The looks of all that are there as one, which says whether ranks are missing in it."""
        beats = [*self._fresh(now_s)]
        lost = any(not member.is_there(now_s) for member in self._members.values())
        if not beats:
            return replace(mine, lost=lost)
        ranks: list[RankProgress] = [*mine.ranks]
        for beat in beats:
            ranks += beat.ranks
        return replace(mine, ranks=ranks, elsewhere=bool(self._unseen(now_s)), lost=lost, wide=True)

    def _fresh(self, now_s: float) -> Iterator[NodeBeat]:
        attempt = self.mine.attempt if self.mine is not None else 0
        for member in self._members.values():
            beat = member.beat
            if beat is not None and beat.attempt == attempt and member.sees(now_s):
                yield beat

    def _unseen(self, now_s: float) -> list[int]:
        """Ranks of the job that no supervisor here now has."""
        beats = [*self._fresh(now_s), *([self.mine] if self.mine is not None else [])]
        world = max((beat.world_size for beat in beats), default=0)
        seen = set().union(*(beat.known for beat in beats))
        # What one node says is no reason to count to a number that no job has.
        most = min(world, len(seen) + (1 << 16))
        return [rank for rank in range(most) if rank not in seen] if world else []

    # -------------------------------------------------------------- incidents

    def open(self, news: Announcement) -> int:
        """Begin an incident that a supervisor has seen; returns its number."""
        number = self.incident.number + 1
        self.incident = OpenIncident(number, news.run, news.kind, news.detail)
        return number

    def ready(self) -> None:
        """The leader takes parts of the newest incident now."""
        self.incident = replace(self.incident, ready=True)

    def judged(self) -> None:
        """The verdict of the newest incident is out."""
        self.incident = replace(self.incident, judged=True)

    def gave(self, run: str, number: int) -> None:
        """A supervisor has given all that it has of an incident."""
        if number == self.incident.number:
            self._members[run].gave = number

    def without_part(self, now_s: float) -> list[Absent]:
        """Those that take part and have not given theirs of the newest incident."""
        found = []
        for member in self._members.values():
            if member.gave != self.incident.number:
                why = "" if member.is_there(now_s) else _silence(now_s - member.heard_s)
                ranks = tuple(sorted(member.ranks))
                found.append(Absent(member.run, member.host, ranks, why))
        return found

    def why_not_all(self, now_s: float) -> str:
        """Why the newest incident was not seen of all ranks, or is not now; "" where it is.

        Only on a view of all, which no other leader can have, may a job be ended.
        """
        absent = self.without_part(now_s)
        silent = [each for each in self._members.values() if not each.sees(now_s)]
        if hosts := sorted({each.host for each in absent} | {each.host for each in silent}):
            return f"{', '.join(hosts)} did not answer"
        if unseen := self._unseen(now_s):
            return f"no supervisor tells of {rank_phrase(unseen)}"
        return ""


def _silence(seconds: float) -> str:
    return f"its supervisor has not been heard of for {seconds:.0f} s"


@dataclass(slots=True)
class Succession:
    """Whom to follow, and when to lead: of one supervisor that does not lead now.

    Attributes:
        run: Who asks.
        line: As the last leader named it; none before one was met.
    """

    run: str
    line: Sequence[Successor] = ()
    _lost_s: float | None = None
    _next: int = 0

    def led_by(self, line: Sequence[Successor]) -> None:
        """A leader was met, or has told who leads next."""
        self.line = tuple(line)
        self._lost_s = None

    def lost(self, now_s: float) -> None:
        """The leader is gone."""
        if self._lost_s is None:
            self._lost_s, self._next = now_s, 0

    def is_open(self, now_s: float) -> bool:
        """Whether one of its line may yet lead: all are given their turns."""
        return self._lost_s is not None and now_s - self._lost_s < TURN_S * (len(self.line) + 1)

    @property
    def _turn(self) -> int:
        """How many are before it, besides the host; -1 where it is in no line."""
        runs = [place.run for place in self.line]
        return runs.index(self.run) if self.run in runs else -1

    def is_due(self, now_s: float) -> bool:
        """Whether it is its turn to lead: all before it have had theirs."""
        turn = self._turn
        if turn < 0 or self._lost_s is None:
            return False
        return now_s - self._lost_s >= TURN_S * (turn + 1)

    def next(self) -> Successor | None:
        """Where to look for a leader now, in turn; None stands for the rendezvous host."""
        turn = self._turn
        before = self.line if turn < 0 else self.line[:turn]
        places: list[Successor | None] = [None, *before]
        self._next, place = self._next + 1, places[self._next % len(places)]
        return place
