"""Every rule that is asked by itself, in order: the one list to which a new finding is added.

Most are weak: their evidence fits a job that is well, or stuck for another reason. So they are
asked only while the claims leave their question open (`Unless`). Rules about calls are not here:
`unhang.analysis.steps` asks them first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from unhang.analysis.rules import (
    abort_unfinished,
    beside_dumps,
    by_stacks,
    came_back,
    ended_unlike,
    failed_alike,
    first_failure,
    idle,
    idle_by_design,
    known_fault,
    last_traced_call,
    late_rank,
    left_call,
    left_over,
    may_come,
    ranks_differ,
    ras,
    recorder_blind,
    rpc_workers,
    sizes_apart,
    stale_meeting,
    starved,
    told,
    unexplained,
    unranked,
    waits_outside,
    watchdog_counters,
)
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.explaining import without_empty
from unhang.analysis.rules.rule import Observer, Rule, Unless, When
from unhang.analysis.shared.claims import Claim
from unhang.kinds import Trait


def asked(claims: Sequence[Claim], facts: CaseFacts, when: When) -> list[Claim]:
    """The claims, with what each rule of a step finds that is still needed."""
    known = list(claims)
    for rule in RULES:
        if rule.when is when and not _is_needless(rule, known, facts):
            known = _joined(
                rule, [c for c in rule.tells(facts) if not _is_weighed(c, known)], known
            )
    return known


def _is_weighed(claim: Claim, known: Iterable[Claim]) -> bool:
    """Whether it is about no more than what another claim was weighed with."""
    seen = claim.observed
    return seen is not None and any(each.knows(seen) for each in known)


def _joined(rule: Rule, found: list[Claim], known: list[Claim]) -> list[Claim]:
    """What a weak rule finds comes before the rest; of what is always reported, causes do."""
    if rule.unless is Unless.NEVER:
        first = [claim for claim in found if claim.is_cause]
        return [*first, *known, *(claim for claim in found if not claim.is_cause)]
    return [*found, *(without_empty(known) if found and rule.over_empty else known)]


def _is_needless(rule: Rule, claims: Sequence[Claim], facts: CaseFacts) -> bool:
    """Whether what is claimed already leaves it nothing to say."""
    if rule.unless in (Unless.NEVER, Unless.CLAIM):
        return rule.unless is Unless.CLAIM and bool(claims)
    answered = facts.situation is not None and not _is_open(claims)
    return _has_cause(claims) or (rule.unless is Unless.ANSWER and answered)


def _has_cause(claims: Iterable[Claim]) -> bool:
    return any(claim.is_cause for claim in claims)


def _is_open(claims: Iterable[Claim]) -> bool:
    return any(claim.kind.has(Trait.UNDECIDED) for claim in claims)


RULES: Final = (
    rpc_workers.RULE,
    by_stacks.RULE,
    unranked.RULE,
    came_back.RULE,
    # Calls that have ended, or are young, keep no rank waiting.
    late_rank.RULE,
    ended_unlike.RULE,
    idle.RULE,
    recorder_blind.RULE,
    # Counters of watchdogs lag behind, and what marks itself as an error need not be one.
    watchdog_counters.RULE,
    unexplained.RULE,
    ranks_differ.RULE,
    # Ranks that each could have failed for another one, traces, and one answer of NCCL's RAS.
    failed_alike.RULE,
    abort_unfinished.RULE,
    last_traced_call.RULE,
    ras.CAUSES,
    ras.GIVEN_UP,
    ras.ALL,
    starved.RULE,
    stale_meeting.RULE,
    # These only look at what others claim.
    beside_dumps.RULE,
    may_come.RULE,
    left_call.RULE,
    left_over.RULE,
    first_failure.RULE,
    known_fault.RULE,
    sizes_apart.RULE,
    idle_by_design.RULE,
    waits_outside.RULE,
    told.RULE,
)  # fmt: skip
"""In the order in which those of a step are asked."""

OBSERVERS: Final = tuple(observer for rule in RULES for observer in rule.observers)
"""Which observations are weighed for which claims: each sees the claim as its rule made it.

An observer reads one claim and the facts of the case, and never what another observer saw; so their
order makes no difference. What an observation then counts is one table, `claims.Bearing`.
"""


def weighed(claims: Iterable[Claim], facts: CaseFacts, *, early: bool = False) -> list[Claim]:
    """The claims with what every observer sees next to them, those that look early or the rest."""
    observers = [each for each in OBSERVERS if each.early is early]
    return [_weighed(claim, facts, observers) for claim in claims]


def _weighed(claim: Claim, facts: CaseFacts, observers: Iterable[Observer]) -> Claim:
    found = claim
    for each in observers:
        if each.fits(claim):
            for observation, bearing in each.sees(claim, facts):
                found = found.seen(observation, bearing)
                found = replace(found, reasons=each.gives) if each.gives else found
    return found
