"""Lists of member ranks, each kept once and known by a number.

A job of 16,384 ranks declares the default group 16,384 times with 16,384 members each; comparing,
hashing or even reading those lists again and again would take longer than everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from unhang.ingest.columns.values import parse_members

Members: TypeAlias = tuple[int, ...]

NOBODY = 0
"""Number of the empty list, which also stands for one that cannot be read."""


@dataclass(slots=True)
class Memberships:
    """Numbers for lists of ranks, in order of first use."""

    lists: list[Members] = field(default_factory=lambda: [()])
    sets: list[frozenset[int]] = field(default_factory=lambda: [frozenset()])
    _by_text: dict[str, int] = field(default_factory=dict)
    _by_list: dict[Members, int] = field(default_factory=lambda: {(): NOBODY})
    _highest: dict[int, int] = field(default_factory=dict)
    _shifted: dict[tuple[int, int], int] = field(default_factory=dict)

    def read(self, value: object) -> int:
        """Number of a list as a dump writes it: "[0, 1]", or a list."""
        if not isinstance(value, str):
            return self.number(parse_members(value))
        found = self._by_text.get(value)
        if found is None:
            found = self._by_text[value] = self.number(parse_members(value))
        return found

    def number(self, members: Members) -> int:
        """Number of a list of ranks; a list that names a rank twice is no rank's."""
        found = self._by_list.get(members)
        if found is None:
            ranks = frozenset(members)
            if len(ranks) < len(members):
                found = NOBODY
            else:
                found = len(self.lists)
                self.lists.append(members)
                self.sets.append(ranks)
            self._by_list[members] = found
        return found

    def highest(self, number: int) -> int:
        """The highest rank of a list; -1 of no rank's."""
        found = self._highest.get(number)
        if found is None:
            found = self._highest[number] = max(self.lists[number], default=-1)
        return found

    def shifted(self, number: int, by: int) -> int:
        """Number of the list in which every rank is higher by so much."""
        found = self._shifted.get((number, by))
        if found is None:
            found = self.number(tuple(rank + by for rank in self.lists[number]))
            self._shifted[number, by] = found
        return found
