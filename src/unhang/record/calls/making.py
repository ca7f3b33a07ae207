"""Which groups a process makes: ranks that put others under one name wait for ever.

`new_group` asks all ranks to make the same groups in the same order. Nothing of torch's records
that, and a rank that hangs in it has no call in flight.
"""

from __future__ import annotations

from collections import deque
from types import FrameType
from typing import Any, Final

from unhang.record.contact.beat import Beat
from unhang.record.contact.latest import members_text

MAKES: Final = "new_group"
"""What the heartbeat calls it."""

_RANKS_AT, _NAME_AT = 2, 5
_MOST_NAME, _KEPT = 6, 3


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
            frame: Of the code that calls that function.
            args: As torch's function gets them.
            kwargs: The same, by name.
        """
        given = dict(enumerate(args))
        ranks = kwargs.get("global_ranks_in_group", given.get(_RANKS_AT))
        name = kwargs.get("group_name", given.get(_NAME_AT))
        if not isinstance(ranks, list | tuple) or not isinstance(name, str):
            return False
        if not ranks:  # the first group of all, with every rank in it
            self.newest.clear()
            return False
        if len(name) <= _MOST_NAME:  # a longer one is made from the ranks themselves
            self.newest.appendleft(f"{name}={members_text(sorted(ranks))}")
        beat.entered(frame, MAKES, " ".join(self.newest), len(ranks))
        return True
