"""Which ranks of a large job run, and stand for the others.

The first ranks, the last, those at the borders of nodes and one of the middle run. A send, a
receive or a root that one of them needs is added, with the ranks at the same distance further on: a
pipeline's other stages. What does not run is taken to call what the members of its group that run
call, so its own faults are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from unhang.errors import InputError
from unhang.rehearse.commandline import MOST_RANKS, RehearsedJob
from unhang.wording import count_of


def folded(job: RehearsedJob) -> RehearsedJob:
    """The job with the ranks that run, where it has too many for all to run."""
    if job.ranks <= MOST_RANKS:
        return job
    per_node, middle = job.ranks // job.nodes, job.ranks // 2 + 1
    chosen = {0, 1, per_node, middle, job.ranks - 1}
    return replace(job, running=tuple(sorted(chosen)))


def with_needed(job: RehearsedJob, lacking: Mapping[int, int]) -> RehearsedJob:
    """The job with ranks more, for which calls of others wait.

    Args:
        job: As it ran.
        lacking: Ranks that calls need, and whose exchanges; a root's own number.

    Raises:
        InputError: They are too many: exchanges link most ranks of the job.
    """
    needed = set(job.running) | set(lacking)
    if len(needed) > MOST_RANKS:
        raise InputError(
            f"{job.ranks:,} ranks cannot be rehearsed by a few of them: exchanges link more than "
            f"{count_of(MOST_RANKS, 'rank')}",
            f"Rehearse a smaller job of the same shape: --ranks {MOST_RANKS}.",
        )
    for rank, by in lacking.items():
        ahead = set(range(rank, job.ranks if rank > by else -1, rank - by)) if rank != by else set()
        if len(needed | ahead) <= MOST_RANKS:
            needed |= ahead
    return replace(job, running=tuple(sorted(needed)))
