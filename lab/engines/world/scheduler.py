"""The loop of SGLang's scheduler, one a rank (sglang/srt/managers/scheduler.py)."""

from __future__ import annotations

from collections.abc import Callable


def event_loop_normal(
    recv: Callable[[], str], batch: Callable[[], None], run: Callable[[str], object]
) -> None:
    """Take requests, choose a batch and run it, for ever."""
    while request := recv_requests(recv):
        get_next_batch_to_run(batch)
        run_batch(run, request)


def recv_requests(recv: Callable[[], str]) -> str:
    """What rank 0 has read, by a broadcast."""
    return recv()


def get_next_batch_to_run(batch: Callable[[], None]) -> None:
    """Choose requests."""
    batch()


def run_batch(run: Callable[[str], object], request: str) -> None:
    """One step of the model."""
    run(request)
