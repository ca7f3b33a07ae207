"""Process groups of parallel layouts: grids of ranks, named as torch names their groups.

Refused: knowledge of what the groups are used for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from unhang.model import Group

NAMINGS = ("global", "hashed", "local")
"""How new groups get names.

"global": a counter that every rank advances at every `new_group` (torch's default). "hashed": a
hash over the members, as with local synchronisation. "local": a counter per process, so that
disjoint groups share a name.
"""


def grid(world: Sequence[int], axes: dict[str, int], vary: Sequence[str]) -> list[tuple[int, ...]]:
    """Cut a world into the groups that run along some axes of a grid.

    Args:
        world: Ranks in order.
        axes: Extent per axis, fastest first; their product is the size of the world.
        vary: The axes along which the members of one group differ.

    Returns:
        One tuple of ranks per group, in order of their first rank.
    """
    names = list(axes)
    strides, total = {}, 1
    for name in names:
        strides[name] = total
        total *= axes[name]
    fixed = [name for name in reversed(names) if name not in vary]
    moving = [name for name in reversed(names) if name in vary]
    groups = []
    for base in product(*(range(axes[name]) for name in fixed)):
        start = sum(strides[n] * i for n, i in zip(fixed, base, strict=True))
        groups.append(
            tuple(
                world[start + sum(strides[n] * i for n, i in zip(moving, along, strict=True))]
                for along in product(*(range(axes[name]) for name in moving))
            )
        )
    return sorted(groups)


@dataclass(slots=True)
class GroupBook:
    """Creates groups in order and remembers which one a rank uses for what."""

    naming: str = "global"
    backend: str = "nccl"
    groups: list[Group] = field(default_factory=list)
    created: int = 0
    own: dict[int, int] = field(default_factory=dict)

    def default(self, members: Sequence[int], backend: str = "") -> int:
        """The default group of a world; every replica has one of its own, all named "0"."""
        self.created = max(self.created, 1)
        return self._add("0", "default_pg", tuple(members), backend)

    def split(
        self, description: str, members: Sequence[tuple[int, ...]], backend: str = ""
    ) -> dict[int, int]:
        """Create one group per tuple of members; returns the group of each rank."""
        of_rank = {}
        for ranks in members:
            index = self._add(self._name(ranks), description, ranks, backend)
            of_rank.update(dict.fromkeys(ranks, index))
            self.created += 1
        for rank in {rank for ranks in members for rank in ranks}:
            self.own[rank] = self.own.get(rank, 0) + 1
        return of_rank

    def _name(self, ranks: tuple[int, ...]) -> str:
        if self.naming == "hashed":
            digest = hashlib.sha1("_".join(map(str, ranks)).encode(), usedforsecurity=False)
            return f"{digest.hexdigest()}_{self.own.get(ranks[0], 0)}"
        if self.naming == "local":
            return str(self.own.get(ranks[0], 0) + 1)
        return str(self.created)

    def _add(self, name: str, description: str, members: tuple[int, ...], backend: str) -> int:
        self.groups.append(Group(name, description, members, backend=backend or self.backend))
        return len(self.groups) - 1
