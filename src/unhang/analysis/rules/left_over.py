"""Ranks that meet at the file of an earlier run, in which keys of that are left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from unhang.analysis.lives.whereabouts import ranks_in
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Observer, Rule
from unhang.analysis.rules.telling import Words, adding_for, subject
from unhang.analysis.shared.claims import Bearing, Claim, Observation, Seeing, Weighed
from unhang.analysis.sources.stacks import RankLook
from unhang.wording import count_of, printable


class LeftOver(Observation, frozen=True, kw_only=True):
    """The file at which ranks meet is one of an earlier run: keys of that are in it.

    Attributes:
        place: The file.
        age_s: For how long it had been there when the run began.
    """

    place: str
    age_s: int


def _left_over(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:  # noqa: ARG001 - of all claims alike
    """That ranks have not come out of making the first group, at a file of an earlier run."""
    looks = [life.look for life in facts.lives.ranks.values() if life.look is not None]
    old = [look for look in looks if look.sample.leftover_s and _is_inside(look)]
    if old:
        first = max(old, key=lambda look: look.sample.leftover_s).sample
        yield (
            LeftOver(
                source="stacks",
                ranks=ranks_in(old),
                place=first.rendezvous,
                age_s=first.leftover_s,
            ),
            Bearing.LEFT_OVER,
        )


def _is_inside(look: RankLook) -> bool:
    """Whether it makes its first group, or has ended without a call of any."""
    return look.sample.phase == "initialising" or (look.gone and not look.sample.last_call)


RULE: Final = Rule(observers=(Observer(sees=_left_over, roles=("cause", "consequence")),))


@adding_for(LeftOver)
def _adding_left_over(seen: LeftOver, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    place = printable(seen.place, 200)
    said = (
        f"{subject(seen.ranks)} {'meets' if len(seen.ranks) == 1 else 'meet'} the others at the "
        f"file {place}, which was {count_of(seen.age_s, 'second')} old when this run began: it "
        "contains addresses of an earlier run."
    )
    remedy = f"Delete {place} before each run, or let the launcher name the place: env://."
    return replace(
        words,
        evidence=(said, *words.evidence),
        actions=(remedy, *(words.actions if words.actions is not None else claim.kind.actions)),
    )
