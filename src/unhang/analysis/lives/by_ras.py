"""What follows from NCCL's RAS: beside the claims of other sources, and where there are none.

One answer is of one moment, and a job that moves shows ranks behind as well; so what it says alone
is of medium confidence at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from unhang.analysis.claims import Bearing, Claim, Doubt, Seeing
from unhang.analysis.sources.ras import Lagging, RasSays
from unhang.kinds import INSUFFICIENT_EVIDENCE, NEVER_JOINED, SILENT_RANK
from unhang.ras import GpuProcess
from unhang.report import GroupRef, Subject

__all__ = [
    "RasGone",
    "RasLagging",
    "RasLevel",
    "RasUnheard",
    "ras_causes",
    "ras_claims",
    "ras_says",
]

_MOST_SIDES = 8


class RasLagging(Struct, frozen=True):
    """Ranks that have launched fewer calls than their peers, and wait nowhere.

    Attributes:
        worst: Where they are behind, and others ahead.
        n_others: On how many other counts.
        stands: A second answer shows the same counts.
    """

    worst: Lagging
    n_others: int
    stands: bool


class RasUnheard(Struct, frozen=True):
    """Ranks whose processes do not answer; `dead`: NCCL has given them up."""

    ranks: tuple[int, ...]
    dead: tuple[int, ...]


class RasLevel(Struct, frozen=True):
    """RAS names nobody: all have launched the same, or those who are behind wait as well.

    Attributes:
        n_ranks: How many ranks it knows of.
        circle: Ranks that are behind on one communicator and ahead on another.
        unnamed: Processes that do not answer and whose rank nothing tells.
        late: Ranks that are behind, as ranks of a job that moves are for a moment.
    """

    n_ranks: int
    circle: tuple[int, ...]
    unnamed: int
    late: tuple[int, ...] = ()


class RasGone(Struct, frozen=True):
    """Processes that NCCL has given up; nothing tells their ranks."""

    processes: tuple[GpuProcess, ...]


def ras_says(claim: Claim, says: RasSays | None) -> Iterator[Seeing]:
    """What RAS says of the culprits of a claim."""
    if says is None or not claim.culprits:
        return
    named = {*says.ranks, *says.unheard}
    if not named:
        return
    if set(claim.culprits) <= named:
        yield says, Bearing.RAS_AGREES
    else:
        ahead = set(claim.culprits) & set(says.waiting)
        yield says, Bearing.RAS_DENIES if ahead else Bearing.RAS_BESIDE


def ras_causes(says: RasSays | None) -> list[Claim]:
    """The causes that RAS alone shows."""
    return [claim for claim in ras_claims(says) if claim.is_cause]


def ras_claims(says: RasSays | None) -> list[Claim]:
    """What RAS alone amounts to; nothing where it was not asked."""
    if says is None:
        return []
    if says.unheard:
        return [_unheard(says)]
    if says.gone:
        return [_gone(says)]
    if says.ranks and not says.moves:
        return [_lagging(says)]
    behind = {rank for each in says.lagging for rank, _ in each.counts}
    circle = tuple(sorted(behind & set(says.waiting)))
    about = RasLevel(says.n_ranks, circle, says.unnamed, says.ranks)
    return [
        Claim(rests_on="ras", kind=INSUFFICIENT_EVIDENCE, about=about, doubts=(Doubt.NOBODY_NAMED,))
    ]


def _unheard(says: RasSays) -> Claim:
    return Claim(
        kind=SILENT_RANK,
        rests_on="ras",
        about=RasUnheard(says.unheard, says.dead),
        culprits=says.unheard,
        victims=tuple(rank for rank in says.waiting if rank not in says.unheard),
        subjects=_subjects(says, says.unheard),
        doubts=(Doubt.NOTHING_SEEN,),
    )


def _gone(says: RasSays) -> Claim:
    from unhang.logs.rules.known import RAS_DEAD

    return Claim(
        kind=RAS_DEAD.kind,
        rests_on="ras",
        about=RasGone(says.gone),
        role="cause",
        subjects=tuple(
            Subject("process", f"{p.host}:{p.pid}", role="culprit", host=p.host, pid=p.pid)
            for p in says.gone[:_MOST_SIDES]
        ),
        doubts=(Doubt.NOTHING_SEEN,),
    )


def _lagging(says: RasSays) -> Claim:
    """Ranks that are behind: others wait for them where a second answer shows that all stand.

    One answer tells of launches alone: that anybody waits it does not show.
    """
    from unhang.logs.rules.known import RAS_MISMATCH

    own = [each for each in says.lagging if {rank for rank, _ in each.counts} & set(says.ranks)]
    worst = max(own, key=lambda each: (len(each.ahead), each.size))
    return Claim(
        kind=NEVER_JOINED if says.stands else RAS_MISMATCH.kind,
        role="cause",
        rests_on="ras",
        about=RasLagging(worst, len(own) - 1, says.stands),
        culprits=says.ranks,
        victims=tuple(rank for rank in says.waiting if rank not in says.ranks),
        subjects=_subjects(says, says.ranks),
        group=GroupRef(worst.communicator, "", worst.size),
        op=worst.op or None,
        doubts=(Doubt.COUNTERS_ONLY, *(() if says.stands else (Doubt.ONE_MOMENT,))),
    )


def _subjects(says: RasSays, ranks: Sequence[int]) -> tuple[Subject, ...]:
    """The processes of some ranks."""
    known = {rank: says.places[rank] for rank in ranks[:_MOST_SIDES] if rank in says.places}
    return tuple(
        Subject(
            kind="process",
            id=f"{p.host}:{p.pid}",
            role="culprit",
            rank=rank,
            host=p.host,
            pid=p.pid,
        )
        for rank, p in known.items()
    )
