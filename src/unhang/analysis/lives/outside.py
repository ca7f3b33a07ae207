"""Ranks that stand outside of a call in which, as the dumps have it, everybody is.

A dump tells that the call was made, a stack that its host has been doing something of its own
since: sleeping, reading, writing, or not running at all. Both cannot be the whole truth while peers
wait there. So the few who stand elsewhere are named, with low confidence: what their devices or
helper threads do was not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from unhang.analysis.claims import Bearing, Claim, Observation
from unhang.analysis.findings.stalled import NotMoving
from unhang.analysis.lives.elsewhere import ranks_in, sites_of, subjects_of
from unhang.analysis.lives.life import Lives
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.stacks import RankLook

__all__ = ["Outside", "with_outside"]

_OF_ITS_OWN: Final = frozenset(
    {"sleep", "file-system", "checkpoint", "data-loader", "network", "process", "prompt", "logging"}
)


class Outside(Observation, frozen=True, kw_only=True):
    """Where ranks stand that are in a call by their dumps, and who is seen to wait in it."""

    looks: tuple[RankLook, ...]
    waiting: tuple[int, ...]


def with_outside(claim: Claim, lives: Lives, book: StackBook) -> Claim:
    """A call that does not move, with those of its ranks named who are seen elsewhere.

    They are fewer than those who are seen to wait: where most sleep, that is how they wait. Where a
    log tells of a failure, nobody needs another reason.
    """
    about = claim.about
    if not isinstance(about, NotMoving) or claim.culprits or lives.said.failures:
        return claim
    looks = lives.looks_at(about.inside)
    away = [look for look in looks if _stands_elsewhere(look)]
    waiting = [look for look in looks if (look.waits or look.may_wait) and not look.held]
    if not away or len(away) >= len(waiting):
        return claim
    return _named(claim, away, waiting, book)


def _stands_elsewhere(look: RankLook) -> bool:
    if look.gone or look.unseen or look.moves:
        return False
    return look.held or look.meaning.kind in _OF_ITS_OWN


def _named(
    claim: Claim, away: Sequence[RankLook], waiting: Sequence[RankLook], book: StackBook
) -> Claim:
    culprits, placed = ranks_in(away), sites_of(away, "culprit", book)
    seen = Outside(source="stacks", ranks=culprits, looks=tuple(away), waiting=ranks_in(waiting))
    named = replace(
        claim,
        culprits=culprits,
        victims=tuple(rank for rank in claim.victims if rank not in culprits),
        sites=(*placed, *(site for site in claim.sites if not set(site.ranks) <= set(culprits))),
        subjects=claim.subjects or subjects_of(away),
    )
    return named.seen(seen, Bearing.AWAY_INSIDE)
