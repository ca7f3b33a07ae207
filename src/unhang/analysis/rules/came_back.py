"""Victims of a claim that ended as if all were well since: the dumps may be of before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from unhang.analysis.lives.ended import ended_well
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Observer, Rule
from unhang.analysis.rules.telling import Words, adding_for, subject
from unhang.analysis.shared.claims import Bearing, Claim, Observation, Seeing, Weighed


class CameBack(Observation, frozen=True, kw_only=True):
    """Ranks that wait by the claim have ended with exit status 0 since: nothing held them."""


def _came_back(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """Where all ranks have ended so, whatever it is held no rank up for good."""
    well = ended_well(facts.lives)
    if victims := tuple(rank for rank in claim.victims if rank in well):
        all_came = well.issuperset(facts.lives.ranks)
        bearing = Bearing.ALL_CAME_BACK if all_came else Bearing.CAME_BACK
        yield CameBack(source="exits", ranks=victims), bearing


RULE: Final = Rule(observers=(Observer(sees=_came_back, early=True),))


@adding_for(CameBack)
def _adding_came_back(seen: CameBack, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    have = "has" if len(seen.ranks) == 1 else "have"
    ended = f"{subject(seen.ranks)} waited there and {have} ended with exit code 0 since"
    said = f"{ended}: the call returned after the dumps were taken."
    words = replace(words, evidence=(said, *words.evidence))
    if weighed.bearing is not Bearing.ALL_CAME_BACK:
        return words
    over = "all ranks have ended with exit code 0 since."
    return replace(words, summary=f"{words.summary.removesuffix('.')}; {over}")
