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
from unhang.analysis.lives.failed import all_finished
from unhang.analysis.rules.device_behind import DEVICE_BEHIND
from unhang.analysis.rules.last_traced_call import sites_heard
from unhang.analysis.rules.not_progressing import JOINED_NOT_PROGRESSING, PARTLY_FINISHED
from unhang.analysis.rules.order import RULES
from unhang.analysis.rules.rule import ANY, Observer
from unhang.analysis.sources.known_versions import known_faults
from unhang.kinds import INSUFFICIENT_EVIDENCE

__all__ = ["OBSERVERS", "weighed"]


OBSERVERS: Final = (
    Observer(sees=lambda claim, facts: all_finished(claim, facts.idle), apart="dumps"),
    Observer(
        sees=lambda claim, facts: known_faults(claim, facts.case, facts.lives.said),
        roles=ANY,
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
