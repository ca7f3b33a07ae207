"""Which groups a process makes: ranks that put others under one name wait for ever.

`new_group` asks all ranks to make the same groups in the same order. Nothing of torch's records
that, and a rank that hangs in it has no call in flight.
"""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from types import FrameType
from typing import Any, Final

from unhang.record.contact.beat import Beat

__all__ = ["MAKES", "Making", "members_text"]

MAKES: Final = "new_group"
"""What the heartbeat calls it."""

_RANKS_AT, _NAME_AT = 2, 5
_MOST_NAME, _MOST_MEMBERS = 6, 14
_KEPT, _PAIR = 3, 2


class Making:
    """The groups that were made last; kept in the heartbeat with the one that is being made."""

    def __init__(self) -> None:
        self.newest: deque[str] = deque(maxlen=_KEPT)

    def begins(
        self, beat: Beat, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Note what torch's function for new groups was given; False for what is none of these.

        Args:
            beat: Where it is noted, as a call.
            frame: Of whoever calls that function.
            args: As torch's function gets them.
            kwargs: The same, by name.
        """
        given = dict(enumerate(args))
        ranks = kwargs.get("global_ranks_in_group", given.get(_RANKS_AT))
        name = kwargs.get("group_name", given.get(_NAME_AT))
        if not isinstance(ranks, list | tuple) or not isinstance(name, str):
            return False
        if not ranks:  # the first group of all, which everybody is in
            self.newest.clear()
            return False
        if len(name) <= _MOST_NAME:  # a longer one is made from the ranks themselves
            self.newest.appendleft(f"{name}={members_text(sorted(ranks))}")
        beat.entered(frame, MAKES, " ".join(self.newest), len(ranks))
        return True


def members_text(ranks: list[int]) -> str:
    """Ranks, ascending, in a few characters: "0-3,8", "0-56:8" (every eighth).

    Where that is too long: how many, and a number that tells them from others.
    """
    steps = {after - before for before, after in itertools.pairwise(ranks)}
    if len(steps) == 1 and len(ranks) > _PAIR and steps != {1}:
        return f"{ranks[0]}-{ranks[-1]}:{steps.pop()}"
    parts, begin = [], 0
    for at, rank in enumerate(ranks):
        if at + 1 == len(ranks) or ranks[at + 1] != rank + 1:
            first = ranks[begin]
            parts.append(f"{first}" if first == rank else f"{first}-{rank}")
            begin = at + 1
    text = ",".join(parts)
    whole = len(text) <= _MOST_MEMBERS
    return text if whole else f"{len(ranks)}~{zlib.crc32(text.encode()):08x}"
