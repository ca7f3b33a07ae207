"""What processes are short of: a core, or memory, by two readings of each between its looks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from unhang.model import ProcessSample, Shortage
from unhang.stacks.meaning import meaning_of
from unhang.stacks.tree.gathering import latest

_TOLD: Final = 0.25
"""Share of the time, or of scheduling periods, from which on it is reported."""
_FEWEST_PERIODS: Final = 3
_FEWEST_S: Final = 0.2
_FULL: Final = 0.9
"""Share of its limit that a group holds in what is no page cache, when it is full."""
_FAULTS_PER_S: Final = 10.0
_WORKS: Final = frozenset(
    {"user-code", "data-loader", "checkpoint", "compilation", "file-system", "import", "gil",
     "uninterruptible"}
)  # fmt: skip
"""What a rank does of its own; all else may be waiting for peers, and spinning in the meantime."""


class OfWhat(Enum):
    """What is short."""

    SHARE = "the share of the cores that its cgroup may use"
    CORES = "cores: others, or its own threads, use them"
    MEMORY = "memory"


class Hungry(Struct, frozen=True):
    """One process, and what it was short of.

    Attributes:
        works: It does something of its own, rather than waiting for peers.
    """

    rank: int
    pid: int
    host: str
    lacks: Shortage
    works: bool

    @property
    def held_up(self) -> float:
        """Share of the time in which its main thread wanted a core and had none."""
        return min(self.lacks.queued_s / self.lacks.seconds, 1.0)


class Starved(Struct, frozen=True):
    """Processes that are short of one thing, those that lack most first.

    Attributes:
        threads: Threads that wanted a core for most of the time, of all processes looked at on the
            host of the first one, and how many processes these are.
    """

    what: OfWhat
    who: tuple[Hungry, ...]
    threads: int
    processes: int


def shortages(samples: Iterable[ProcessSample]) -> list[Starved]:
    """By what is short: those that lack it, those that lack most first."""
    return _found([looks[-1] for looks in latest(samples)])


def _found(samples: Sequence[ProcessSample]) -> list[Starved]:
    hungry: defaultdict[OfWhat, list[Hungry]] = defaultdict(list)
    threads: defaultdict[str, list[int]] = defaultdict(list)
    for sample in samples:
        lacks = sample.short_of
        if lacks is None or lacks.seconds < _FEWEST_S:
            continue
        threads[sample.host].append(lacks.threads)
        for what in _short_of(lacks):
            hungry[what].append(_hungry(sample, lacks))
    found = []
    for what, who in hungry.items():
        who.sort(key=lambda each: (-each.held_up, each.rank, each.pid))
        here = threads[who[0].host]
        found.append(Starved(what, tuple(who), sum(here), len(here)))
    return found


def _hungry(sample: ProcessSample, lacks: Shortage) -> Hungry:
    """A helper, such as a worker of a data loader, is its rank's: that waits for it."""
    rank = sample.rank if sample.rank >= 0 else sample.parent_rank
    works = meaning_of(sample).kind in _WORKS
    return Hungry(rank, sample.pid, sample.host, lacks, works)


def _short_of(lacks: Shortage) -> Iterable[OfWhat]:
    throttled = lacks.throttled >= max(_TOLD * lacks.periods, 1)
    if lacks.cores and throttled and lacks.periods >= _FEWEST_PERIODS:
        yield OfWhat.SHARE
    elif lacks.queued_s >= _TOLD * lacks.seconds:
        yield OfWhat.CORES
    full = lacks.pushed_back and lacks.memory_held >= _FULL * lacks.memory_limit > 0
    reads = lacks.faults >= _FAULTS_PER_S * lacks.seconds
    if full or (reads and (lacks.memory_stalled >= _TOLD or lacks.swapped_in or lacks.pushed_back)):
        yield OfWhat.MEMORY
