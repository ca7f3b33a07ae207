"""Small programs, and every way in which one rank can leave one of them.

A program is a step of a few calls that all ranks repeat. A deviation is what one rank does
otherwise at one call of one repetition. Values only; `endstates` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Final, TypeAlias

Members: TypeAlias = tuple[int, ...]
Kind: TypeAlias = tuple[Members, ...]
"""Groups without common members that make the same calls, as those of one mesh dimension do."""
Shape: TypeAlias = tuple[Kind, ...]
"""The groups of a program."""

MODES: Final = ("blocking", "ahead", "async")
"""The host waits for each call; it runs ahead of one device queue; of one queue a group."""

DEVIATIONS: Final = (
    "left-out", "extra", "swapped", "other-op", "other-size", "stopped", "ended",
)  # fmt: skip
_ROWS, _COLUMNS, _ALL = ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 1, 2, 3),)
MESHES: Final[tuple[Shape, ...]] = ((_ROWS, _COLUMNS), (_ROWS, _ALL), (_ROWS, _COLUMNS, _ALL))
OPS: Final = ("all_reduce", "all_gather_into_tensor")


@dataclass(frozen=True, slots=True)
class StepCall:
    """One call of a step.

    Attributes:
        kind: Index of the kind of groups that make it.
        op: Index in `OPS`; -1 for a send and its receive.
        source, target: Group ranks of the exchange.
    """

    kind: int
    op: int = -1
    source: int = -1
    target: int = -1

    def members(self, shape: Shape, rank: int) -> Members:
        """The group in which a rank makes it; empty if it does not."""
        for members in shape[self.kind]:
            ends = members if self.op >= 0 else (members[self.source], members[self.target])
            if rank in ends:
                return members
        return ()


@dataclass(frozen=True, slots=True)
class Program:
    """What all ranks are to do: a step, `before` + 1 + `after` times."""

    shape: Shape
    step: tuple[StepCall, ...]
    mode: str
    before: int
    after: int

    @property
    def n_ranks(self) -> int:
        """Ranks 0 to n - 1 are in it."""
        return 1 + max(rank for kind in self.shape for members in kind for rank in members)


@dataclass(frozen=True, slots=True)
class Deviation:
    """What one rank does otherwise, at its own call number `at` of the repetition in question."""

    rank: int
    at: int
    kind: str


def shapes(most_ranks: int, most_groups: int) -> list[Shape]:
    """All sets of groups that cover ranks 0 to n - 1 and hang together, one of each kind."""
    found: list[Shape] = []
    for n in range(2, most_ranks + 1):
        subsets = [m for size in range(2, n + 1) for m in combinations(range(n), size)]
        for count in range(1, most_groups + 1):
            alike: set[tuple[Members, ...]] = set()
            for shape in combinations(subsets, count):
                key = _canonical(shape, n)
                if key not in alike and _hangs_together(shape, n):
                    alike.add(key)
                    found.append(tuple((members,) for members in shape))
    return found + [mesh for mesh in MESHES if most_ranks >= len(_ALL[0])]


def _canonical(shape: Kind, n: int) -> Kind:
    """The least of all shapes that differ in the numbers of ranks only."""
    return min(
        tuple(sorted(tuple(sorted(names[rank] for rank in members)) for members in shape))
        for names in permutations(range(n))
    )


def _hangs_together(shape: Kind, n: int) -> bool:
    reached, rest = set(shape[0]), list(shape[1:])
    while joining := [members for members in rest if reached & set(members)]:
        reached.update(*joining)
        rest = [members for members in rest if members not in joining]
    return not rest and len(reached) == n


def alphabet(shape: Shape, ops: int) -> list[StepCall]:
    """The calls that a step over these groups can consist of."""
    calls = [StepCall(g, op) for g in range(len(shape)) for op in range(ops)]
    return calls + [
        StepCall(g, -1, source, target)
        for g, kind in enumerate(shape)
        for source, target in permutations(range(len(kind[0])), 2)
    ]


def steps_of(shape: Shape, length: int, ops: int) -> Iterator[tuple[tuple[StepCall, ...], int]]:
    """Steps of a length that use every group, each with how many differ in names of ranks only."""
    letters = alphabet(shape, ops)
    renamed = _renamings(shape, letters)
    for step in product(range(len(letters)), repeat=length):
        calls = tuple(letters[at] for at in step)
        if len({call.kind for call in calls}) < len(shape):
            continue
        alike = {tuple(names[at] for at in step) for names in renamed}
        if step == min(alike):
            yield calls, len(alike)


def _renamings(shape: Shape, letters: list[StepCall]) -> list[tuple[int, ...]]:
    """What becomes of each call when ranks change their names and the groups stay the same."""
    n = 1 + max(rank for kind in shape for members in kind for rank in members)
    at = {(call.kind, call.op, _ends(shape, call)): i for i, call in enumerate(letters)}
    found = []
    for names in permutations(range(n)):
        images = []
        for call in letters:
            ends = tuple(sorted(tuple(names[r] for r in pair) for pair in _ends(shape, call)))
            images.append(at.get((call.kind, call.op, ends), -1))
        if min(images) >= 0 and _same_groups(shape, names):
            found.append(tuple(images))
    return found


def _ends(shape: Shape, call: StepCall) -> tuple[Members, ...]:
    """Source and target of an exchange, in each group of its kind."""
    if call.op >= 0:
        return ()
    return tuple(
        sorted((members[call.source], members[call.target]) for members in shape[call.kind])
    )


def _same_groups(shape: Shape, names: Members) -> bool:
    return all(
        {tuple(sorted(names[rank] for rank in members)) for members in kind} == set(kind)
        for kind in shape
    )


def deviations_of(program: Program) -> Iterator[Deviation]:
    """Every deviation of every rank."""
    for rank in range(program.n_ranks):
        own = [call for call in program.step if call.members(program.shape, rank)]
        for at, call in enumerate(own):
            for kind in DEVIATIONS:
                if kind == "swapped" and (at + 1 == len(own) or own[at + 1] == call):
                    continue
                if kind == "other-op" and call.op < 0:
                    continue
                yield Deviation(rank, at, kind)
