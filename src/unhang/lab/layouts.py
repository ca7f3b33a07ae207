"""The table of layouts: which parallel jobs the simulator can make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from unhang.errors import UsageError
from unhang.lab import layouts_data, layouts_model
from unhang.lab.draft import LayoutRequest
from unhang.lab.job import Plan

__all__ = ["LAYOUTS", "build"]

LAYOUTS: Final[dict[str, Callable[[LayoutRequest], Plan]]] = {
    "ddp": layouts_data.ddp,
    "zero": layouts_data.zero,
    "fsdp": layouts_data.fsdp,
    "hsdp": layouts_data.hsdp,
    "uneven": layouts_data.uneven,
    "mixed": layouts_data.mixed,
    "torchft": layouts_data.replicas,
    "tp": layouts_model.tensor,
    "pp": layouts_model.pipeline,
    "pp-interleaved": layouts_model.interleaved,
    "megatron": layouts_model.megatron,
    "moe": layouts_model.moe,
    "cp": layouts_model.context,
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
