"""The fewest calls, then the fewest ranks, that still get the same verdict.

Calls go in units, which all members have: a unit that goes leaves the others as they were. It is
Zeller's delta debugging (ddmin), begun at the end of the programs, where the fault is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from unhang.reproduce.schedule import Programs, Unit, units_of, with_ranks

Holds: TypeAlias = Callable[[Programs], bool]

_MOST_TRIES: Final = 400
"""Plays of one shrinking; each of a small job takes some 20 ms, and the first ones save most."""


def shrunk(programs: Programs, holds: Holds, spare: Sequence[int]) -> Programs:
    """Leave out what is not needed.

    Args:
        programs: For which it holds.
        holds: Whether programs still get the verdict.
        spare: Ranks that may go.
    """
    tries = _Tries(holds)
    units, opened = units_of(programs)
    done = [unit for unit in units if unit not in opened]
    kept = _suffix(done, lambda some: tries.hold(programs.only([*some, *opened])))
    kept = _ddmin(kept, lambda some: tries.hold(programs.only([*some, *opened])))
    left = _ddmin(sorted(opened), lambda some: tries.hold(programs.only([*kept, *some])))
    small = programs.only([*kept, *left])
    return _fewer_ranks(small, tries, spare)


class _Tries:
    """Counts plays, and says no once there were enough: what is small so far stays."""

    def __init__(self, holds: Holds) -> None:
        self.holds, self.left = holds, _MOST_TRIES

    def hold(self, programs: Programs) -> bool:
        """Whether it still holds."""
        self.left -= 1
        return self.left > 0 and programs.size > 0 and self.holds(programs)


def _suffix(units: list[Unit], holds: Callable[[list[Unit]], bool]) -> list[Unit]:
    """The shortest end of the list, of lengths 0, 1, 2, 4…, for which it holds."""
    length = 0
    while length < len(units):
        some = units[len(units) - length :]
        if holds(some):
            return some
        length = length * 2 or 1
    return units


def _ddmin(units: list[Unit], holds: Callable[[list[Unit]], bool]) -> list[Unit]:
    """Leave out chunks, large ones first, while it holds without them."""
    chunk = len(units)
    while chunk:
        start = 0
        while start < len(units):
            without = units[:start] + units[start + chunk :]
            if holds(without):
                units = without
            else:
                start += chunk
        chunk //= 2
    return units


def _fewer_ranks(programs: Programs, tries: _Tries, spare: Sequence[int]) -> Programs:
    """Leave out ranks of the job in halves, then one by one."""
    names = [name for name in programs.names if name in set(spare)]
    chunk = len(names)
    while chunk:
        start = 0
        while start < len(names):
            gone = set(names[start : start + chunk])
            fewer = with_ranks(
                programs, [n for n, name in enumerate(programs.names) if name not in gone]
            )
            if len(fewer.names) > 1 and tries.hold(fewer):
                programs, names = fewer, names[:start] + names[start + chunk :]
            else:
                start += chunk
        chunk //= 2
    return programs
