"""A guess from stacks about a moment of a job that, by its dumps, moves.

On a busy machine two looks a second apart meet ranks of a healthy job at the same lines, and its
dumps show calls that have just begun. That neither blames nor reassures: the next look tells.
"""

from __future__ import annotations

from dataclasses import replace as changed

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.findings.nothing_stuck import InFlight
from unhang.analysis.lives.whereabouts import Sides, ranks_in
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.telling import Words, begun, words_for
from unhang.analysis.rules.telling_looks import doing, sentences
from unhang.analysis.shared.claims import Claim, Doubt, confidence_of
from unhang.kinds import INSUFFICIENT_EVIDENCE
from unhang.wording import rank_phrase

_AGAIN = "Collect dumps and stacks again, some seconds later: a rank that is stuck has not moved."


class YoungCalls(Struct, frozen=True):
    """Ranks that stacks alone would name, while dumps show calls that have just begun."""

    sides: Sides


def left_open_if_young(claim: Claim, sides: Sides, facts: CaseFacts) -> Claim:
    """The claim, or the same without a name where it is such a guess: of no stopped process."""
    guess = claim.is_cause and bool(claim.culprits) and confidence_of(claim) != "high"
    if not guess or facts.situation is None or not isinstance(facts.nothing_stuck, InFlight):
        return claim
    return replace(
        claim,
        kind=INSUFFICIENT_EVIDENCE,
        role="observation",
        about=YoungCalls(sides),
        culprits=(),
        subjects=(),
        doubts=(Doubt.NOBODY_NAMED,),
        sites=tuple(changed(site, role="victim") for site in claim.sites),
        calls=tuple(changed(call, role="victim") for call in claim.calls),
        moving=(),
    )


@words_for(YoungCalls)
def _verdict_of_young_calls(about: YoungCalls, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    who, waiting = about.sides.who, about.sides.waiting
    wait = "waits" if len(waiting) == 1 else "wait"
    others = f", and {rank_phrase(ranks_in(waiting))} {wait}" if waiting else ""
    return Words(
        f"Not enough evidence: {begun(doing(who))}{others}, but by the dumps these calls have only "
        "just begun.",
        tuple(sentences(who)),
        (),
        (_AGAIN,),
    )
