"""Orders for the workers and their answers (vllm/v1/executor/multiproc_executor.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def worker_busy_loop(
    dequeue: Callable[[], str], execute: Callable[[str], str], answer: Callable[[str], None]
) -> None:
    """Do what is ordered, for ever."""
    while order := dequeue():
        answer(execute(order))


def get_response(dequeue: Callable[[], str], method: str, *, limited: bool) -> str:
    """One worker's answer.

    Raises:
        TimeoutError: It did not come in time.
    """
    answer = dequeue()
    if limited and answer == "late":
        raise TimeoutError(f"RPC call to {method} timed out.")
    return answer


def collective_rpc(
    method: str,
    enqueue: Callable[[str], None],
    answers: Sequence[Callable[[], str]],
    *,
    limited: bool,
) -> list[str]:
    """Give all workers one order, and wait for each."""
    enqueue(method)
    return [get_response(dequeue, method, limited=limited) for dequeue in answers]
