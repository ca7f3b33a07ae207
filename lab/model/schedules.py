"""Order of work of pipeline stages: 1F1B, and interleaved 1F1B with several chunks a rank.

Pure sequences of (what, chunk, microbatch); layouts turn them into calls.
"""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """One piece of work of one stage."""

    forward: bool
    chunk: int
    microbatch: int


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[Work]:
    """1F1B (PipeDream-flush): warm-up forwards, alternation, cool-down backwards."""
    warm = min(stages - stage - 1, microbatches)
    work = [Work(forward=True, chunk=0, microbatch=m) for m in range(warm)]
    for m in range(microbatches - warm):
        work += [Work(forward=True, chunk=0, microbatch=warm + m)]
        work += [Work(forward=False, chunk=0, microbatch=m)]
    rest = range(microbatches - warm, microbatches)
    return [*work, *(Work(forward=False, chunk=0, microbatch=m) for m in rest)]


def _interleaved_order(stage: int, stages: int, chunks: int, microbatches: int) -> list[Work]:
    """Megatron's order: microbatches in rounds of `stages`, chunk by chunk."""

    def piece(number: int, *, forward: bool) -> Work:
        turn, inside = divmod(number, stages * chunks)
        chunk = inside // stages
        return Work(
            forward=forward,
            chunk=chunk if forward else chunks - 1 - chunk,
            microbatch=turn * stages + inside % stages,
        )

    total = microbatches * chunks
    warm = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    work = [piece(i, forward=True) for i in range(warm)]
    for i in range(total - warm):
        work += [piece(warm + i, forward=True), piece(i, forward=False)]
    return [*work, *(piece(i, forward=False) for i in range(total - warm, total))]


def interleaved_table(stages: int, chunks: int, microbatches: int) -> list[list[Work | None]]:
    """Lay the interleaved orders of all stages on common ticks, as torch's schedules do.

    Args:
        stages: Ranks of the pipeline.
        chunks: Model chunks per rank.
        microbatches: Must be a multiple of `stages`.

    Returns:
        One row a tick, one piece of work (or None, a bubble) per stage. What a piece needs was
        always done at an earlier tick.
    """
    orders = [_interleaved_order(s, stages, chunks, microbatches) for s in range(stages)]
    at = [0] * stages
    done: set[tuple[int, Work]] = set()
    table = []
    while any(at[s] < len(orders[s]) for s in range(stages)):
        row: list[Work | None] = []
        for stage in range(stages):
            work = orders[stage][at[stage]] if at[stage] < len(orders[stage]) else None
            ready = work is not None and _needs(stage, stages, chunks, work) <= done
            row.append(work if ready else None)
        for stage, work in enumerate(row):
            if work is not None:
                at[stage] += 1
                done.add((stage, work))
        table.append(row)
    return table


def _needs(stage: int, stages: int, chunks: int, work: Work) -> set[tuple[int, Work]]:
    """The pieces of work whose results a piece takes."""
    needs = {(stage, work._replace(forward=True))} if not work.forward else set()
    step = -1 if work.forward else 1
    depth = work.chunk * stages + stage + step
    if 0 <= depth < stages * chunks:
        chunk, neighbour = divmod(depth, stages)
        needs.add((neighbour, work._replace(chunk=chunk)))
    return needs
