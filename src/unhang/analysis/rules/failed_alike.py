"""Ranks that each could have failed for another one: which was first, nothing shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Rule, Unless
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.sources.exits import SIGNAL_BASE
from unhang.kinds import INSUFFICIENT_EVIDENCE
from unhang.wording import rank_phrase

_TERMINATED = SIGNAL_BASE + 15


class FailedAlike(Struct, frozen=True):
    """Ranks that all ended as a rank does whose peer has gone."""

    ranks: tuple[int, ...]


class EndedByOrder(Struct, frozen=True):
    """All ranks: SIGTERM ended each. Which process sent it, and why, is not in the evidence."""

    ranks: tuple[int, ...]


def _claims(facts: CaseFacts) -> Iterator[Claim]:
    """Say that no evidence shows who was first, where ranks failed.

    One was: that each could have failed for another one is no health.
    """
    lives = facts.lives.ranks.values()
    ends = [life.end for life in lives if life.end is not None]
    failed = tuple(end.rank for end in ends if end.for_peer)
    if failed:
        yield Claim(
            rests_on="exits",
            kind=INSUFFICIENT_EVIDENCE,
            about=FailedAlike(failed),
            doubts=(Doubt.NOBODY_NAMED,),
        )
    elif ends and all(each.end is not None and each.end.status == _TERMINATED for each in lives):
        yield Claim(
            rests_on="exits",
            kind=INSUFFICIENT_EVIDENCE,
            about=EndedByOrder(tuple(end.rank for end in ends)),
            doubts=(Doubt.NOBODY_NAMED,),
        )


RULE: Final = Rule(unless=Unless.CAUSE, tells=_claims, over_empty=True)


@words_for(FailedAlike)
def _verdict_of_failed_alike(about: FailedAlike, claim: Claim) -> Words:  # noqa: ARG001 - all words have the same parameters
    return Words(
        f"Not enough evidence: {rank_phrase(about.ranks)} failed as ranks do that lose a peer, "
        "and nothing shows which rank failed first.",
        actions=("Find the first error in the output of each rank: unhang logs.",),
    )


@words_for(EndedByOrder)
def _verdict_of_ended_by_order(about: EndedByOrder, claim: Claim) -> Words:  # noqa: ARG001 - as above
    was = "was" if len(about.ranks) == 1 else "were"
    return Words(
        f"Not enough evidence: {rank_phrase(about.ranks)} {was} ended by SIGTERM, and nothing "
        "shows which process sent it, or why.",
        actions=(
            "Look at what the launcher and the scheduler say of that moment: unhang logs, sacct.",
        ),
    )
