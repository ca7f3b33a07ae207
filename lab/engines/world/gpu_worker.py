"""A step of the model on one worker (vllm/v1/worker/gpu_worker.py)."""

from __future__ import annotations

import time
from collections.abc import Callable

_FOR_EVER_S = 3_600


def execute_model(prepare: Callable[[], None], reduce: Callable[[], object]) -> str:
    """Prepare the inputs, then run the layers, whose parts meet in a collective."""
    prepare()
    reduce()
    return "done"


def stand_still() -> None:
    """What a step does that never ends."""
    time.sleep(_FOR_EVER_S)
