"""Ranks whose process ended while their peers went on: who was first, and whom that explains.

A death explains what follows: peers wait for a rank that is no more, or fail because it is no
more. So it stands before claims about the same ranks, which become its consequences. Where all
ranks ended alike, none of them is blamed; an end with exit status 0 counts only where peers were
left in calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from unhang.analysis.claims import Because, Claim, Doubt, Reason
from unhang.analysis.lives.life import Lives
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.exits import End, Manner
from unhang.kinds import RANK_ENDED
from unhang.report import Site, Subject

__all__ = ["MOST_ENDS", "Ended", "Ends", "ended", "ended_well", "ends_in"]

SAME_TIME_NS: Final = 2 * 10**9
"""Exceptions closer together than this, with one text, are one and the same failure."""
MOST_ENDS: Final = 8


class Ended(Struct, frozen=True):
    """The ends that nothing else explains.

    Attributes:
        followed: Those that came of them.
        blamed: Not all ranks ended alike, nor did most of them end as if all were well.
        before: Ranks that had ended with exit status 0 well before them.
    """

    first: tuple[End, ...]
    followed: tuple[End, ...]
    blamed: bool
    before: tuple[int, ...]


class Ends(Struct, frozen=True):
    """How ranks ended: those first that nothing else explains, and those that followed."""

    first: tuple[End, ...] = ()
    followed: tuple[End, ...] = ()


def ended(
    ends: Ends, missed: Mapping[int, frozenset[int]], lives: Lives, book: StackBook
) -> Iterator[Claim]:
    """The ranks that ended first, as the reason for what is said of them and of who followed.

    Args:
        ends: Of all ranks.
        missed: Which ranks calls miss, and who waits for each.
        lives: How each rank ended.
        book: Takes the stacks that are referred to.
    """
    first, followed = ends.first, ends.followed
    if not first:
        return
    culprits, after = {end.rank for end in first}, {end.rank for end in followed}
    about = Ended(
        first,
        followed,
        blamed=len(culprits) < max(len(lives.expected), 2) and not _have_most_left(first, lives),
        before=_gone_before(first, lives) if first[0].manner is Manner.UNCLEAR else (),
    )
    alike = not about.blamed and first[0].manner in (Manner.KILLED, Manner.UNCLEAR)
    waiting = {rank for each in culprits | after for rank in missed.get(each, ())}
    everybody = set(lives.expected) <= culprits | after | waiting
    yield Claim(
        kind=RANK_ENDED,
        rests_on="exits",
        about=about,
        culprits=tuple(sorted(culprits)) if about.blamed else (),
        victims=tuple(sorted(after - culprits)),
        subjects=tuple(_subjects(first)),
        sites=tuple(_sites(first, "culprit" if about.blamed else "peer", book)),
        doubts=tuple(_doubts(about, everybody=everybody)),
        reasons=(
            Reason(Because.KILLED_ALIKE if alike else Because.ENDED, frozenset(culprits)),
            Reason(Because.GONE, frozenset(culprits | after)),
        ),
    )


def _have_most_left(first: Sequence[End], lives: Lives) -> bool:
    """Whether rather those are wrong that still call: for calls that nobody else makes."""
    return first[0].manner is Manner.LEFT and 2 * len(first) > len(lives.expected)


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
    failed = any(end.manner is Manner.FOLLOWED and end.error for end in ends)
    return [
        end
        for end in left
        if end.rank in waited or (failed and end.ended_ns <= max(failed_ns, ended_ns))
    ]


def _gone_before(first: Sequence[End], lives: Lives) -> tuple[int, ...]:
    """Ranks that had ended as if all were well before: what came then may come of that."""
    began_ns = min(end.ended_ns for end in first)
    gone = [life.end for life in lives.ranks.values() if life.end and life.end.status == 0]
    return tuple(end.rank for end in gone if 0 < end.ended_ns < began_ns)


def _doubts(about: Ended, *, everybody: bool) -> Iterator[Doubt]:
    manner = about.first[0].manner
    if not about.blamed:
        yield Doubt.MOST_LEFT if manner is Manner.LEFT else Doubt.ENDED_ALIKE
    if manner is Manner.LEFT and not everybody:
        yield Doubt.MAY_HAVE_FINISHED
    if manner is Manner.UNCLEAR:
        several = len(about.first) > 1 or about.before
        yield Doubt.ENDS_UNCLEAR if several else Doubt.END_UNCLEAR


def _subjects(ends: Sequence[End]) -> Iterator[Subject]:
    for end in ends[:MOST_ENDS]:
        if end.pid > 0:
            yield Subject(
                "process", f"pid {end.pid}", rank=end.rank, host=end.host or None, pid=end.pid
            )


def _sites(ends: Iterable[End], role: str, book: StackBook) -> Iterator[Site]:
    for end in list(ends)[:MOST_ENDS]:
        site = book.site((end.rank,), role, end.frames)
        if site is not None:
            yield dataclasses.replace(site, age_s=end.age_s)
