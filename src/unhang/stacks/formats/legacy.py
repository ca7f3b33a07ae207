"""Samples as earlier versions saved them: sums and flags in the place of looks, ends in sentences.

A sample told what its process had done over the last second or two, and four flags of the half
minute before. A series that grows steadily shows the same again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unhang.activity.looks import ProcessLook
from unhang.activity.series import steadily
from unhang.activity.thresholds import HELPED_CORES, RARE_TURN_S, SETTLED_LOOKS, TURN_CORES

__all__ = ["in_present_form"]

_ENDED = ("it ended before it could be looked at", "it ended while it was looked at")


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the process, and what it started, had done in `worked_s` seconds; -1 where unknown."""

    worked_s: float = -1.0
    worked_cpu_s: float = 0.0
    worked_bytes: int = 0
    worked_stored: int = 0
    tasks_cpu_s: float = -1.0
    says: bool = False
    turns: bool = False
    fed: bool = False
    helped: bool = False
    sleeps: bool = False
    state: str = ""
    wait_channel: str = ""


def in_present_form(row: dict[str, Any]) -> dict[str, Any]:
    """The saved fields of a sample as the present version saves them."""
    if row.get("error") in _ENDED and "gone" not in row:
        row = {**row, "gone": True}
    return {**row, "looks": _looks(row)} if "worked_s" in row else row


def _looks(row: dict[str, Any]) -> list[ProcessLook]:
    from unhang.incoming import overlaid  # which writers of samples do without

    told = overlaid(_Sums(), row)[0]
    if not 0 < told.worked_s < float("inf"):
        return []
    each = ProcessLook(
        told.worked_s,
        cpu_s=max(told.worked_cpu_s, 0.0),
        ran_s=2 * (TURN_CORES * told.worked_s + RARE_TURN_S) * told.turns,
        woken=int(told.fed or told.turns),
        moved=max(told.worked_bytes, 0),
        stored=max(told.worked_stored, 0),
        said=int(told.says),
        helped_s=2 * HELPED_CORES * told.worked_s * told.helped,
        tasks_s=told.tasks_cpu_s,
    )
    watched = told.says or told.turns or told.fed or told.helped or told.sleeps
    steps = SETTLED_LOOKS if watched else 1
    return steadily(each, steps, state=told.state, wait_channel=told.wait_channel)
