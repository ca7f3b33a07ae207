"""Which programs are looked at, in an order in which any beginning is a fair part.

All steps of one and two calls stand in every variant of hosts and repetitions; those of three calls
each in one variant, in turn. Longer ones are drawn by lot. Programs that differ in the names of
ranks only are run once, and counted as many times as there are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Final, TypeAlias

from lab.prove.programs import MODES, Program, Shape, StepCall, alphabet, shapes, steps_of

Chunk: TypeAlias = tuple[Shape, list[tuple[Program, int]]]
"""Groups, and programs over them with how many each stands for."""

_REPETITIONS: Final = ((0, 0), (1, 0), (2, 1))
_VARIANTS: Final = tuple(product(MODES, _REPETITIONS))
_IN_A_CHUNK: Final = 90
_LONG: Final = (4, 5, 6)


def chunks(*, every: int = 1, long_steps: int = 20, seed: int = 0) -> list[Chunk]:
    """All programs, in parts whose order is drawn by lot.

    Args:
        every: Take one of so many steps only.
        long_steps: How many steps of four to six calls are drawn for each set of groups.
        seed: For drawing them, and for where the counting of steps begins.
    """
    found: list[Chunk] = []
    for shape in shapes(4, 3):
        programs = [*_short(shape, every, seed), *_drawn(shape, long_steps, seed)]
        parts = range(0, len(programs), _IN_A_CHUNK)
        found += [(shape, programs[start : start + _IN_A_CHUNK]) for start in parts]
    random.Random(seed).shuffle(found)  # noqa: S311 - reproducible on purpose
    return found


def _short(shape: Shape, every: int, seed: int) -> Iterator[tuple[Program, int]]:
    number = seed
    for length, ops in ((1, 2), (2, 2), (3, 1)):
        for step, alike in steps_of(shape, length, ops):
            number += 1
            if number % every:
                continue
            turn = number // every % len(_VARIANTS)
            whole = every == 1 and ops > 1
            for mode, (before, after) in _VARIANTS if whole else _VARIANTS[turn : turn + 1]:
                yield Program(shape, step, mode, before, after), alike


def _drawn(shape: Shape, count: int, seed: int) -> Iterator[tuple[Program, int]]:
    lot = random.Random(f"{seed}/{shape}")  # noqa: S311 - reproducible on purpose
    letters: list[StepCall] = alphabet(shape, 2)
    for _ in range(count):
        step = tuple(lot.choices(letters, k=lot.choice(_LONG)))
        mode, (before, after) = lot.choice(_VARIANTS)
        yield Program(shape, step, mode, before, after), 1
