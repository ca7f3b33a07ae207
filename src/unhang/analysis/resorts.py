"""What counts only where nothing else is known: weaker rules, one after the other.

Such a rule reads facts like all others. What makes it weak is that its evidence fits a job that is
well, or stuck for another reason: so it is asked only while the claims leave its question open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from unhang.analysis.case_facts import CaseFacts
from unhang.analysis.claims import Claim
from unhang.analysis.explaining import without_empty
from unhang.analysis.findings.finished import ended_unlike
from unhang.analysis.findings.late import told_slow
from unhang.analysis.lives.by_ras import ras_causes, ras_claims
from unhang.analysis.lives.elsewhere import elsewhere
from unhang.analysis.lives.ended import failed_alike
from unhang.analysis.lives.failed import unexplained
from unhang.analysis.lives.fallen_silent import fallen_silent
from unhang.analysis.lives.unranked import unranked
from unhang.analysis.lives.watchdogs import counters_apart
from unhang.kinds import Trait

__all__ = ["BY_CALLS", "BY_LOGS", "BY_OTHERS", "BY_STACKS", "Resort", "Unless", "resorted"]


class Unless(Enum):
    """What makes a weak rule needless."""

    CAUSE = "a cause is found"
    CLAIM = "anything is found"
    ANSWER = "a cause is found, or dumps leave no question open"


class Resort(Struct, frozen=True, kw_only=True):
    """A rule, and where it is not asked; what it finds comes before the rest.

    Attributes:
        over_empty: What it finds replaces that nothing was found.
    """

    tells: Callable[[CaseFacts], Iterable[Claim]]
    unless: Unless = Unless.CAUSE
    over_empty: bool = False

    def is_needless(self, claims: Sequence[Claim], facts: CaseFacts) -> bool:
        """Whether what is claimed already leaves it nothing to say."""
        if self.unless is Unless.CLAIM:
            return bool(claims)
        answered = facts.situation is not None and not _is_open(claims)
        return _has_cause(claims) or (self.unless is Unless.ANSWER and answered)


def resorted(claims: Sequence[Claim], facts: CaseFacts, resorts: Iterable[Resort]) -> list[Claim]:
    """The claims, with what each of these finds that is still needed."""
    told = list(claims)
    for each in resorts:
        if not each.is_needless(told, facts):
            found = list(each.tells(facts))
            told = [*found, *(without_empty(told) if found and each.over_empty else told)]
    return told


def _has_cause(claims: Iterable[Claim]) -> bool:
    return any(claim.is_cause for claim in claims)


def _is_open(claims: Iterable[Claim]) -> bool:
    return any(claim.kind.has(Trait.UNDECIDED) for claim in claims)


def _of_stacks(facts: CaseFacts) -> Iterable[Claim]:
    dumps = facts.situation is not None
    if facts.moving:
        return ()
    if facts.lives.sampled:
        return elsewhere(facts.lives, facts.book, beside_dumps=dumps, blind=bool(facts.blind))
    return () if dumps else unranked(facts.case, facts.book)


def _given_up(facts: CaseFacts) -> Iterable[Claim]:
    """Ranks that are behind for a moment may be so in a job that moves; not those given up."""
    says = facts.ras
    return ras_causes(says) if says is not None and (says.dead or says.gone) else ()


BY_STACKS: Final = (Resort(tells=_of_stacks),)
"""A stack names no sequence number: a loop that comes back to a line looks like one that hangs."""

BY_CALLS: Final = (
    Resort(
        tells=lambda facts: told_slow(facts.situation) if facts.situation and facts.moving else (),
        unless=Unless.CLAIM,
    ),
    Resort(tells=lambda facts: ended_unlike(facts.situation) if facts.situation else ()),
    Resort(
        tells=lambda facts: [facts.idle] if facts.idle is not None else (),
        unless=Unless.CLAIM,
    ),
)
"""Calls that have ended, or are young, keep no rank waiting."""

BY_LOGS: Final = (
    Resort(
        tells=lambda facts: (
            () if facts.lives.said.failures else counters_apart(facts.lives.said.counters)
        ),
        over_empty=True,
    ),
    Resort(tells=lambda facts: unexplained(facts.lives.said), unless=Unless.CLAIM),
)
"""Counters of watchdogs lag behind, and what marks itself as an error need not be one."""

BY_OTHERS: Final = (
    Resort(tells=lambda facts: failed_alike(facts.lives), over_empty=True),
    Resort(tells=lambda facts: fallen_silent(facts.lives)),
    Resort(tells=lambda facts: ras_causes(facts.ras), unless=Unless.ANSWER),
    Resort(tells=_given_up),
    Resort(tells=lambda facts: ras_claims(facts.ras), unless=Unless.CLAIM),
)
"""Ranks that each could have failed for another one, traces, and one answer of NCCL's RAS."""
