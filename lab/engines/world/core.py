"""The loop of an engine (vllm/v1/engine/core.py)."""

from __future__ import annotations

from collections.abc import Callable


def run_busy_loop(
    requests: Callable[[], str], schedule: Callable[[], None], step: Callable[[], object]
) -> None:
    """Take requests and make a step for each, for ever."""
    while _process_input_queue(requests):
        _process_engine_step(schedule, step)


def _process_input_queue(requests: Callable[[], str]) -> str:
    return requests()


def _process_engine_step(schedule: Callable[[], None], step: Callable[[], object]) -> None:
    schedule()
    step()
