"""What call traces say: where each process was last heard of, and who fell silent first.

A trace shows where, not why, so it never blames a rank by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from unhang.analysis.shared.claims import Observation
from unhang.model import LastCall

SILENT_S = 5.0
"""A process whose last call is this much older than the newest of all has fallen silent."""


class LastHeard(Observation, frozen=True, kw_only=True):
    """The last traced call of one process.

    Attributes:
        age_s: How much older it is than the newest of all processes.
    """

    call: LastCall
    age_s: float

    @property
    def is_silent(self) -> bool:
        """It fell silent before the others, inside a call."""
        return self.age_s > SILENT_S and bool(self.call.open_calls)


def heard_of(calls: Sequence[LastCall]) -> tuple[LastHeard, ...]:
    """Where each process was last heard of, oldest first."""
    newest = calls[-1].time_ns if calls else 0
    return tuple(
        LastHeard(
            source="traces",
            ranks=(call.rank,) if call.rank >= 0 else (),
            time_ns=call.time_ns,
            call=call,
            age_s=(newest - call.time_ns) / 1e9,
        )
        for call in calls
    )
