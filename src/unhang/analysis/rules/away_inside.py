"""The few who stand elsewhere, of a call in which all members are by their dumps.

A dump tells that a call was made, a stack that its host has been doing something of its own since:
sleeping, reading, writing, or not running at all. Both cannot be the whole truth while peers wait
there. So those are named, with low confidence: what their devices or helper threads do was not
seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import ranks_in
from unhang.analysis.rules.telling import Words, adding_for, begun, merged, waits
from unhang.analysis.rules.telling_looks import actions, doing, sentences
from unhang.analysis.shared.claims import Claim, Observation, Weighed
from unhang.analysis.sources.stacks import RankLook
from unhang.wording import rank_phrase

_OF_ITS_OWN: Final = frozenset(
    {
        "sleep", "file-system", "checkpoint", "data-loader", "network", "process", "pipe", "prompt",
        "logging",
    }
)  # fmt: skip
_MADE_AHEAD = (
    "It may have enqueued the call and gone on: its device is then in the call with the others."
)


class AwayInside(Observation, frozen=True, kw_only=True):
    """Where ranks stand that are in a call by their dumps, and who is seen to wait in it."""

    looks: tuple[RankLook, ...]
    waiting: tuple[int, ...]


def away_inside(inside: Sequence[int], lives: Lives) -> AwayInside | None:
    """Those of the ranks in a call that does not move who are seen elsewhere, if they are few.

    They are fewer than those who are seen to wait: where most sleep, that is how they wait. Where a
    log shows a failure, no other reason is needed.
    """
    looks = lives.looks_at(inside)
    away = tuple(look for look in looks if _stands_elsewhere(look))
    waiting = [look for look in looks if (look.waits or look.may_wait) and not look.held]
    if not away or len(away) >= len(waiting) or lives.said.failures:
        return None
    return AwayInside(source="stacks", ranks=ranks_in(away), looks=away, waiting=ranks_in(waiting))


def _stands_elsewhere(look: RankLook) -> bool:
    if look.gone or look.unseen or look.moves:
        return False
    return look.held or look.meaning.kind in _OF_ITS_OWN


@adding_for(AwayInside)
def _adding_away_inside(seen: AwayInside, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    label, waiting = claim.call or "that call", rank_phrase(seen.waiting)
    against = f"Sources disagree: the dumps show all members in {label}, the stacks only {waiting}."
    return Words(
        f"{begun(doing(seen.looks))}, while {waits(seen.waiting)} in {label}, which makes no "
        "progress.",
        (*(f"Stacks: {sentence}" for sentence in sentences(seen.looks)), against, *words.evidence),
        (_MADE_AHEAD, *(words.alternatives or ())),
        merged(actions(seen.looks), words.actions),
    )
