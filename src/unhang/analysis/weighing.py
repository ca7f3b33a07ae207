"""Which observations are weighed for which claims: each sees the claim as its rule made it.

An observer reads one claim and the facts of the case, and never what another observer saw; so their
order makes no difference. What an observation then counts is one table, `claims.Bearing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.case_facts import CaseFacts
from unhang.analysis.claims import Claim, Seeing
from unhang.analysis.lives.before_groups import left_over
from unhang.analysis.lives.by_ras import ras_says
from unhang.analysis.lives.elsewhere import going_along, gone_on, pauses
from unhang.analysis.lives.failed import all_finished
from unhang.analysis.lives.fallen_silent import last_heard, sites_heard
from unhang.analysis.lives.leading import idle_by_design, led_before
from unhang.analysis.lives.out_of_calls import left_call
from unhang.analysis.lives.starved import short_too
from unhang.analysis.lives.watchdogs import counted
from unhang.kinds import HOST_PROGRAM_STUCK, LATE_RANK, NEVER_JOINED, STARVED, Kind, Role, Trait

__all__ = ["OBSERVERS", "Observer", "weighed"]


class Observer(Struct, frozen=True, kw_only=True):
    """One way to look beside claims, and the claims beside which it may be told.

    Attributes:
        roles: Of these roles.
        kinds, traits: Of one of these kinds, or of a kind with this trait; all if neither is given.
        but: Of no such kind.
        apart: Only beside claims that rest on another source than this one.
    """

    sees: Callable[[Claim, CaseFacts], Iterable[Seeing]]
    roles: tuple[Role, ...] = ("cause",)
    kinds: tuple[Kind, ...] = ()
    traits: Trait = Trait.NONE
    but: tuple[Kind, ...] = ()
    apart: str = ""

    def fits(self, claim: Claim) -> bool:
        """Whether it may be told beside a claim."""
        if claim.role not in self.roles or claim.kind in self.but or claim.rests_on == self.apart:
            return False
        of_kind = claim.kind in self.kinds or bool(self.traits and claim.kind.has(self.traits))
        return of_kind or not (self.kinds or self.traits)


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
    # Counters are lines of the log: beside a failure of the same log they are no second source.
    Observer(
        sees=lambda claim, facts: counted(claim, facts.lives), roles=_BEFORE, apart="logs"
    ),
    Observer(sees=lambda claim, facts: last_heard(claim, facts.lives), but=(STARVED,)),
    # That a rank is behind says nothing of what it is short of.
    Observer(
        sees=lambda claim, facts: ras_says(claim, facts.ras), but=(STARVED,), apart="ras"
    ),
    Observer(sees=lambda claim, facts: short_too(claim, facts.short), but=(STARVED,)),
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
