"""The table of layouts: which parallel jobs the simulator can make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lab.layouts import data, model
from lab.model.draft import LayoutRequest
from lab.model.job import Plan
from unhang.errors import UsageError

LAYOUTS: Final[dict[str, Callable[[LayoutRequest], Plan]]] = {
    "ddp": data.ddp,
    "zero": data.zero,
    "fsdp": data.fsdp,
    "hsdp": data.hsdp,
    "uneven": data.uneven,
    "mixed": data.mixed,
    "torchft": data.replicas,
    "tp": model.tensor,
    "pp": model.pipeline,
    "pp-interleaved": model.interleaved,
    "megatron": model.megatron,
    "moe": model.moe,
    "cp": model.context,
}

SMALLEST, LARGEST = 2, 131_072


def build(layout: str, request: LayoutRequest) -> Plan:
    """Write the plan of a healthy job.

    Raises:
        UsageError: No such layout, or a number of ranks that it cannot have.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"There is no layout {layout!r}.", f"One of: {', '.join(LAYOUTS)}")
    if not SMALLEST <= request.ranks <= LARGEST:
        raise UsageError(
            f"{request.ranks} ranks cannot be simulated.", f"Choose {SMALLEST} to {LARGEST}."
        )
    if request.ranks % 2:
        raise UsageError(
            "A simulated job has an even number of ranks.", f"Choose {request.ranks + 1}."
        )
    return LAYOUTS[layout](request)
