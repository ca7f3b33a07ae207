"""Which observations are weighed for which claims: each sees the claim as its rule made it.

An observer reads one claim and the facts of the case, and never what another observer saw; so their
order makes no difference. What an observation then counts is one table, `claims.Bearing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from unhang.analysis.case_facts import CaseFacts
from unhang.analysis.claims import Claim
from unhang.analysis.lives.before_groups import left_over
from unhang.analysis.lives.elsewhere import going_along, gone_on, pauses
from unhang.analysis.lives.failed import all_finished
from unhang.analysis.lives.last_calls import ENDS, fitting_message
from unhang.analysis.lives.leading import idle_by_design, led_before
from unhang.analysis.lives.out_of_calls import left_call
from unhang.analysis.rules.last_traced_call import sites_heard
from unhang.analysis.rules.late_rank import KIND as LATE_RANK
from unhang.analysis.rules.order import RULES
from unhang.analysis.rules.rule import Observer
from unhang.analysis.sources.known_versions import known_faults
from unhang.kinds import (
    DEVICE_BEHIND,
    HOST_PROGRAM_STUCK,
    INSUFFICIENT_EVIDENCE,
    JOINED_NOT_PROGRESSING,
    NEVER_JOINED,
    PARTLY_FINISHED,
    Role,
    Trait,
)

__all__ = ["OBSERVERS", "weighed"]


_ANY: Final[tuple[Role, ...]] = ("cause", "consequence", "observation")
_BEFORE: Final[tuple[Role, ...]] = ("cause", "consequence")

OBSERVERS: Final = (
    # A leader without work is idle, whatever explains that it has not come.
    Observer(
        sees=lambda claim, facts: led_before(claim, facts.lives, facts.situation),
        roles=_ANY,
        kinds=(NEVER_JOINED,),
    ),
    Observer(
        sees=lambda claim, facts: idle_by_design(claim, facts.lives),
        roles=_ANY,
        kinds=(NEVER_JOINED, HOST_PROGRAM_STUCK),
    ),
    Observer(
        sees=lambda claim, facts: going_along(claim, facts.lives), roles=_ANY, kinds=(LATE_RANK,)
    ),
    # Only who may come yet can be pausing; a program that stands still may be as well.
    Observer(
        sees=lambda claim, facts: pauses(claim, facts.lives),
        kinds=(HOST_PROGRAM_STUCK,),
        traits=Trait.MAY_COME,
    ),
    Observer(sees=lambda claim, facts: gone_on(claim, facts.lives), traits=Trait.OF_NOW),
    Observer(sees=lambda claim, facts: left_over(claim, facts.lives), roles=_BEFORE),
    Observer(sees=lambda claim, facts: left_call(claim, facts.lives)),
    Observer(sees=lambda claim, facts: all_finished(claim, facts.idle), apart="dumps"),
    Observer(
        sees=lambda claim, facts: fitting_message(claim, facts.ends, facts.lives),
        early=True,
        gives=ENDS,
    ),
    Observer(
        sees=lambda claim, facts: known_faults(claim, facts.case, facts.lives.said),
        roles=_ANY,
        kinds=(JOINED_NOT_PROGRESSING, PARTLY_FINISHED, DEVICE_BEHIND, INSUFFICIENT_EVIDENCE),
    ),
    *(observer for rule in RULES for observer in rule.observers),
)  # fmt: skip


def weighed(claims: Iterable[Claim], facts: CaseFacts, *, early: bool = False) -> list[Claim]:
    """The claims with what every observer sees beside them, those that look early or the rest."""
    observers = [each for each in OBSERVERS if each.early is early]
    found = [_weighed(claim, facts, observers) for claim in claims]
    return found if early else [_placed(claim, facts) for claim in found]


def _weighed(claim: Claim, facts: CaseFacts, observers: Iterable[Observer]) -> Claim:
    found = claim
    for each in observers:
        if each.fits(claim):
            for observation, bearing in each.sees(claim, facts):
                found = found.seen(observation, bearing)
                found = replace(found, reasons=each.gives) if each.gives else found
    return found


def _placed(claim: Claim, facts: CaseFacts) -> Claim:
    """A cause with where its culprits were last heard of."""
    sites = sites_heard(claim, facts.lives) if claim.is_cause else ()
    return replace(claim, sites=(*sites, *claim.sites)) if sites else claim
