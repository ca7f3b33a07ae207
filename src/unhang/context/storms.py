"""Restarts that do not help: one job that stops for the same reason again and again.

Only cases of the same job count, or of the same command, whose first cause is of one kind and at
one line. A job that its scheduler ends at a time limit may get on each time, and has no such line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from unhang.context.recalled import Past
from unhang.report import Decision
from unhang.wording import count_of

BUDGET_VARIABLE: Final = "UNHANG_RESTART_BUDGET"
DEFAULT_BUDGET: Final = 3
"""torchrun's `--max-restarts` is often 3: by then a machine has tried what it can."""
_HOPEFUL: Final = frozenset({"restart", "restart-without"})
"""Advice that a third time proves wrong. To look first is right each time: of a slow job, too."""


def stopped(
    decision: Decision | None, this: Past, same: Iterable[Past], at: str
) -> Decision | None:
    """The decision, or that restarting has to stop.

    Args:
        decision: What else is advised.
        this: The incident.
        same: Earlier incidents of the same kind at the same line.
        at: That line, for people.
    """
    if decision is None or decision.action not in _HOPEFUL or decision.confidence == "low":
        return decision
    times = 1 + sum(_is_of_job(past, this) for past in same)
    if times < budget() or decision.moving or decision.pausing:
        return decision
    text = f"Stop restarting the job: it ended {count_of(times, 'time')} at {at} for one reason."
    return replace(decision, action="stop", reason="comes-again", text=text)


def _is_of_job(past: Past, this: Past) -> bool:
    named = this.job_id != "" and past.job_id == this.job_id
    return named or (this.command != "" and past.command == this.command)


def budget() -> int:
    """How often one reason is met before restarts are over; 0 or no number: the default."""
    told = os.environ.get(BUDGET_VARIABLE, "")
    number = int(told) if told.isascii() and told.isdigit() and len(told) < 7 else 0  # noqa: PLR2004 - a number
    return number or DEFAULT_BUDGET
