"""What a stack amounts to, reckoned once for each stack and not once for each rank.

Of a large job thousands of ranks stand alike, and readers give their stacks as one object. What is
asked of that again is answered by its identity: a hash of all its frames takes longer than most
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from unhang.model import Frame

T = TypeVar("T")
Frames = tuple[Frame, ...]
_MOST = 4_096
"""Stacks that are remembered, and kept for it: the ranks of one job stand in few places."""


def each_once(function: Callable[[Frames], T]) -> Callable[[Frames], T]:
    """A function of a stack that remembers its answers.

    A stack is kept with its answer: as long as it is, no other object has its identity.
    """
    known: dict[int, tuple[Frames, T]] = {}

    def asked(frames: Frames) -> T:
        found = known.get(id(frames))
        if found is None:
            if len(known) >= _MOST:
                known.clear()
            found = known[id(frames)] = frames, function(frames)
        return found[1]

    asked.__doc__ = function.__doc__
    return asked
