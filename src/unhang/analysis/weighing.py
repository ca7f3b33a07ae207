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
from unhang.analysis.lives.by_ras import ras_says
from unhang.analysis.lives.elsewhere import going_along, gone_on, pauses
from unhang.analysis.lives.failed import all_finished
from unhang.analysis.lives.leading import led_before
from unhang.analysis.lives.out_of_calls import left_call
from unhang.analysis.lives.watchdogs import counted
from unhang.analysis.rules.last_traced_call import sites_heard
from unhang.analysis.rules.order import RULES
from unhang.analysis.rules.rule import Observer
from unhang.analysis.rules.starved import KIND as STARVED
from unhang.kinds import HOST_PROGRAM_STUCK, LATE_RANK, NEVER_JOINED, Role, Trait

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
        sees=lambda claim, facts: going_along(claim, facts.lives), roles=_ANY, kinds=(LATE_RANK,)
    ),
    # Counters are lines of the log: beside a failure of the same log they are no second source.
    Observer(
        sees=lambda claim, facts: counted(claim, facts.lives), roles=_BEFORE, apart="logs"
    ),
    # That a rank is behind says nothing of what it is short of.
    Observer(
        sees=lambda claim, facts: ras_says(claim, facts.ras), but=(STARVED,), apart="ras"
    ),
    # Only who may come yet can be pausing; a program that stands still may be as well.
    Observer(
        sees=lambda claim, facts: pauses(claim, facts.lives),
        kinds=(HOST_PROGRAM_STUCK,),
        traits=Trait.MAY_COME,
    ),
    Observer(sees=lambda claim, facts: gone_on(claim, facts.lives), traits=Trait.OF_NOW),
    Observer(sees=lambda claim, facts: left_call(claim, facts.lives)),
    Observer(sees=lambda claim, facts: all_finished(claim, facts.idle), apart="dumps"),
    *(observer for rule in RULES for observer in rule.observers),
)  # fmt: skip


def weighed(claims: Iterable[Claim], facts: CaseFacts) -> list[Claim]:
    """The claims with what every observer sees beside them."""
    return [_weighed(claim, facts) for claim in claims]


def _weighed(claim: Claim, facts: CaseFacts) -> Claim:
    seeings = [seen for each in OBSERVERS if each.fits(claim) for seen in each.sees(claim, facts)]
    sites = sites_heard(claim, facts.lives) if claim.is_cause else ()
    found = replace(claim, sites=(*sites, *claim.sites)) if sites else claim
    for observation, bearing in seeings:
        found = found.seen(observation, bearing)
    return found
