"""How large a number from outside may be before anything is made of it.

A file, a node or a log line says a number in a few bytes; memory for it must be proportional to the
evidence, not to the number. So code that makes one thing a rank or a member asks here first, and
says in a note what was not believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_RANKS: Final = 1 << 21
"""No job has more ranks: what is as high is the number of something else."""

MOST_OPEN_TAGS: Final = 256
"""Open sends and receives whose tags a dump tells apart from their entries, the newest."""

UNPROVEN_RANKS: Final = 1 << 18
"""So many ranks are believed of one file alone: dumps of a large job may come one by one."""

_RANKS_EACH: Final = 64
"""Ranks that one more rank in evidence vouches for."""

_MEMBERS: Final = 1 << 22
_MEMBERS_EACH: Final = 64
"""Groups that a rank is in, on average over a job: fewer than these."""


def is_rank(number: object) -> bool:
    """Whether this can be the number of a rank."""
    return type(number) is int and 0 <= number < MAX_RANKS


def largest_world(shown: int) -> int:
    """The largest number of ranks that is believed where so many are in evidence."""
    return min(MAX_RANKS, max(UNPROVEN_RANKS, shown * _RANKS_EACH))


@dataclass(slots=True)
class Budget:
    """What may still be used of something."""

    left: int

    def take(self, amount: int) -> bool:
        """Use so much of it; False, and nothing is used, where there is not so much left."""
        if amount > self.left:
            return False
        self.left -= amount
        return True


def members_budget(files: int) -> Budget:
    """Members that all groups of a case may have together, where so many files were read."""
    return Budget(_MEMBERS + _MEMBERS_EACH * files)
