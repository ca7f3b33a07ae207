"""How ranks ended: first those that nothing else explains, and those that followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.sources.exits import End, Manner

SAME_TIME_NS: Final = 2 * 10**9
"""Exceptions closer together than this, with one text, are one and the same failure."""


class Ends(Struct, frozen=True):
    """How ranks ended: those first that nothing else explains, and those that followed."""

    first: tuple[End, ...] = ()
    followed: tuple[End, ...] = ()


def ended_well(lives: Lives) -> frozenset[int]:
    """The ranks that ended as if all were well."""
    ends = {rank: life.end for rank, life in lives.ranks.items() if life.end is not None}
    return frozenset(rank for rank, end in ends.items() if end.status == 0)


def ends_in(lives: Lives, missed: Mapping[int, frozenset[int]]) -> Ends:
    """The ends that nothing else explains, if any, and those that follow from something.

    Args:
        lives: How each rank ended.
        missed: Which ranks calls miss, and who waits for each: one that ended as if all were well
            matters only there. Where one who waited has ended so too, the call has come back.
    """
    well = ended_well(lives)
    waited = {rank for rank, waiting in missed.items() if well.isdisjoint(waiting)}
    ended = [life.end for life in lives.ranks.values() if life.end is not None]
    ends = [end for end in ended if end.manner is not Manner.LEFT]
    ends += _left_peers(waited, ends, [end for end in ended if end.manner is Manner.LEFT])
    followed = tuple(end for end in ends if end.manner is Manner.FOLLOWED)
    best = min((end.manner for end in ends), default=Manner.FOLLOWED)
    if best is Manner.FOLLOWED:
        return Ends((), followed)
    candidates = tuple(end for end in ends if end.manner is best)
    return Ends(_earliest(candidates) if best is Manner.RAISED else candidates, followed)


def _earliest(raised: Sequence[End]) -> tuple[End, ...]:
    first = min(raised, key=lambda end: (end.time_ns, end.rank))
    return tuple(
        end
        for end in raised
        if end is first or (end.error == first.error and end.time_ns - first.time_ns < SAME_TIME_NS)
    )


def _left_peers(waited: set[int], ends: Sequence[End], left: Sequence[End]) -> list[End]:
    """Ranks that ended as if all were well, and left peers in calls: who waits or fails tells.

    A rank that ended so after its peers had failed is none of them.
    """
    lost = [end for end in ends if end.manner in (Manner.FOLLOWED, Manner.UNCLEAR)]
    failed_ns = min((end.time_ns for end in lost if end.time_ns), default=0) + SAME_TIME_NS
    ended_ns = min((end.ended_ns for end in lost if end.ended_ns), default=0)
    failed = any(end.for_peer for end in ends)
    return [
        end
        for end in left
        if end.rank in waited or (failed and end.ended_ns <= max(failed_ns, ended_ns))
    ]
