"""What NCCL's RAS says of ranks: who launched fewer calls than peers, who does not answer.

Counts are of launches, so a rank that is behind on one communicator may be waiting on another. Only
those are behind by themselves who keep others waiting somewhere and wait nowhere. The ranks of a
communicator are those of the job where it holds all of them; elsewhere the process tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from unhang.analysis.shared.claims import Observation
from unhang.ras import Communicator, GpuProcess, RasStatus


class Lagging(Struct, frozen=True):
    """Ranks of the job that have launched fewer calls of an operation than their peers.

    Attributes:
        communicator, size: Which one, and how many ranks it has.
        op: The operation; "" where all are counted together.
        counts: Ranks with what they have launched, those who are behind.
        ahead: Ranks that have launched most.
        most: How many that is.
    """

    communicator: str
    size: int
    op: str
    counts: tuple[tuple[int, int], ...]
    ahead: tuple[int, ...]
    most: int


class RasSays(Observation, frozen=True, kw_only=True):
    """What RAS says of a whole job, by ranks of the job.

    Attributes:
        ranks: Those who keep others waiting and wait for no other rank themselves.
        lagging: Where ranks are behind.
        unheard: Ranks that gave no data.
        dead: Of these, the ones that NCCL has given up.
        places: Host and process of ranks, as far as they are known.
        waiting: Ranks that have launched more than others somewhere.
        unnamed: Processes that are behind or silent, and whose rank nothing tells.
        n_ranks: How many ranks it knows of.
        gone: Processes that NCCL has given up, and whose rank nothing tells.
        moves: The ranks that are behind may be late for a moment only: by one call, or by counts
            that grew since the answer before.
        stands: A second answer shows for the ranks that are behind the same counts as the first.
        of_ended: The counts are of calls that ended, by NCCL Inspector.
    """

    lagging: tuple[Lagging, ...] = ()
    unheard: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    places: Mapping[int, GpuProcess]
    unnamed: int = 0
    n_ranks: int = 0
    gone: tuple[GpuProcess, ...] = ()
    moves: bool = False
    stands: bool = False
    of_ended: bool = False


def ras_of(statuses: Iterable[RasStatus], world_size: int) -> RasSays | None:
    """What the last answer says; None if there is none."""
    told = list(statuses)
    if not told:
        return None
    status = told[-1]
    size = max(status.n_ranks, world_size)
    job = _ranks_by_place(status, size)
    lagging: list[Lagging] = []
    unheard: set[int] = set()
    dead: set[int] = set()
    unnamed = 0
    for each in status.communicators:
        numbers = _numbers(each, size, job)
        unheard |= {numbers[rank] for rank in each.missing if rank in numbers}
        dead |= {numbers[rank] for rank in each.dead if rank in numbers}
        unnamed += sum(rank not in numbers for rank in each.missing)
        lagging += _lagging(each, numbers)
    named = {(p.host, p.pid) for each in status.communicators for p in each.places.values()}
    behind = {rank for each in lagging for rank, _ in each.counts}
    waiting = {rank for each in lagging for rank in each.ahead}
    return RasSays(
        source="ras",
        ranks=tuple(sorted(behind - waiting - unheard)),
        lagging=tuple(lagging),
        unheard=tuple(sorted(unheard)),
        dead=tuple(sorted(dead)),
        waiting=tuple(sorted(waiting)),
        places={rank: place for place, rank in job.items()},
        unnamed=unnamed,
        n_ranks=size,
        gone=tuple(place for place in status.dead if (place.host, place.pid) not in named),
        moves=_may_move(lagging, told),
        stands=len(told) > 1 and not _may_move(lagging, told),
        of_ended=status.of_ended,
    )


def _may_move(lagging: Iterable[Lagging], told: Sequence[RasStatus]) -> bool:
    """Whether a job that moves may have answered so.

    RAS asks ranks one after the other, and ranks that are one call apart are what it sees of a job
    that is well (NVIDIA's page on RAS). A second answer tells: counts that are the same then as
    before are those of a job that stands.
    """
    before = {each.name: each for each in told[-2].communicators} if len(told) > 1 else {}
    now = {each.name: each for each in told[-1].communicators}
    return all(_moves(each, before.get(each.communicator), now) for each in lagging)


def _moves(each: Lagging, before: Communicator | None, now: Mapping[str, Communicator]) -> bool:
    if before is not None and each.op in before.launched:
        return before.launched[each.op] != now[each.communicator].launched[each.op]
    return each.most - min(count for _, count in each.counts) <= 1


def _ranks_by_place(status: RasStatus, size: int) -> dict[GpuProcess, int]:
    """The job's rank of each process and GPU, by a communicator of all ranks."""
    for each in status.communicators:
        if each.size == size > 0:
            found = {place: rank for rank, place in each.places.items()}
            if len(found) == len(each.places):
                return found
    return {}


def _numbers(each: Communicator, size: int, job: Mapping[GpuProcess, int]) -> dict[int, int]:
    """The job's rank of each rank of a communicator, as far as it is known."""
    if each.size == size > 0:
        return {rank: rank for rank in range(size)}
    return {rank: job[place] for rank, place in each.places.items() if place in job}


def _lagging(each: Communicator, numbers: Mapping[int, int]) -> list[Lagging]:
    """Where ranks are behind; none where each side has more of something: they differ in order."""
    found = []
    ahead: set[int] = set()
    behind: set[int] = set()
    for op, counts in each.launched.items():
        most = max(counts.values(), default=0)
        less = {rank: count for rank, count in counts.items() if count < most}
        if not less:
            continue
        first = {rank for rank, count in counts.items() if count == most}
        ahead |= first
        behind |= less.keys()
        named = tuple((numbers[r], n) for r, n in sorted(less.items()) if r in numbers)
        leading = tuple(sorted(numbers[rank] for rank in first if rank in numbers))
        if named:
            found.append(Lagging(each.name, each.size, op, named, leading, most))
    return found if not ahead & behind else []
