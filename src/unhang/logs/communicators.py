"""Which rank of the job a number within a communicator is: NCCL numbers each communicator from 0.

The largest one is the job's, as far as all logs tell. A process whose own largest is smaller, and
one whose number another device has too in one as large, is no rank by these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from unhang.bounds import MAX_RANKS
from unhang.model import UNKNOWN_RANK, LogEvent

AMONG = "among"
"""Field of an event whose rank is a number in a communicator: how many ranks this has."""

Process = tuple[str, int]
"""Host and process id."""


@dataclass(slots=True)
class Communicators:
    """What is known of numbers within communicators.

    Attributes:
        largest: Of each process: how many ranks its largest communicator has, and its number there.
        holders: Of each such number: host and device.
        several: There are several communicators of the largest size.
    """

    largest: dict[Process, tuple[int, int]] = field(default_factory=dict)
    holders: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    size: int = 0
    several: bool = False

    def add(self, process: Process, device: str, size: int, number: int) -> None:
        """Take what one line says: a process has this number among so many."""
        if size > self.size:
            self.size, self.several = size, False
        if size < self.largest.get(process, (0, 0))[0] or len(self.largest) >= MAX_RANKS:
            return
        own = self.largest.get(process, (0, number))
        self.largest[process] = size, number
        here = process[0], device
        taken = self.holders.setdefault((size, number), here) != here
        if size == self.size and (taken or (own[0] == size and own[1] != number)):
            self.several = True

    def rank_of(self, process: Process) -> int:
        """The rank of a process in the job, or UNKNOWN_RANK."""
        size, number = self.largest.get(process, (0, UNKNOWN_RANK))
        return number if size == self.size and not self.several else UNKNOWN_RANK

    def settled(self, events: Iterable[LogEvent]) -> Iterator[LogEvent]:
        """The events, no rank's where what was read after them shows that a number is no rank."""
        for event in events:
            among = event.fields.get(AMONG)
            wrong = among is not None and (self.several or int(among) < self.size)
            yield replace(event, rank=UNKNOWN_RANK) if wrong else event
