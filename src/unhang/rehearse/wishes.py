"""How a user wants a job rehearsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unhang.rehearse.schedules import KeptSchedule


@dataclass(frozen=True, slots=True)
class RehearsalWishes:
    """How a rehearsal is to be run.

    Attributes:
        steps: Optimizer steps after which a rank ends; 0 for the script's own end.
        limit_s: After so long it ends.
        case: The new directory that keeps the evidence; None for none.
        since: What ranks called before, to compare with.
        save: The file that keeps what they call, if all calls meet.
        instead: By path, what the ranks read in the place of a file of Python.
        shapes: Large tensors take no memory and have no values.
    """

    steps: int = 0
    limit_s: float = 600.0
    case: Path | None = None
    since: KeptSchedule | None = None
    save: Path | None = None
    instead: Mapping[str, str] = field(default_factory=dict)
    shapes: bool = False
