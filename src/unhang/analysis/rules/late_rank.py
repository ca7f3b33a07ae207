"""Not stuck but slow: ranks that arrive last, and those that the watch saw being slow.

How it is measured is `unhang.analysis.findings.late`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from math import isfinite
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.findings.late import Late, late_ranks
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.kinds import Kind
from unhang.model import SlowRank
from unhang.report import GroupRef
from unhang.wording import count_of, rank_phrase

KIND: Final = Kind(
    "UH501",
    "late-rank",
    "slow",
    "Not stuck but slow: the same ranks arrive last.",
    role="observation",
)

_PROFILE: Final = "unhang stacks --samples 5, py-spy record."
_SLOW_FOR: Final = (
    "They do more work than their peers (logging, evaluation, uneven data).",
    "Their hosts or GPUs are slower: clocks, temperature, neighbours on the machine.",
)


class LateRanks(Struct, frozen=True):
    """Ranks that keep others waiting; most of it is of the group in which it is worst.

    Attributes:
        group: Its label.
        since: Number of the first call to which they were late; None if from the beginning.
        median_ms: How late they come.
        share: Part of the time that the others spend waiting for them.
        last, calls: In how many of the calls one of them came last.
        ahead: How many more the others had made ahead, each counted with one of these.
        n_others: In how many other groups it is so.
        clocks_set: Whether clocks of hosts could be compared.
    """

    group: str
    since: int | None
    median_ms: float
    share: float
    last: int
    calls: int
    ahead: int
    n_others: int
    clocks_set: bool


class SlowSteps(Struct, frozen=True):
    """A rank that needs longer for its steps than the others, as the watch saw it."""

    seen: SlowRank


def _told(facts: CaseFacts) -> list[Claim]:
    return _told_slow(facts.situation) if facts.situation is not None and facts.moving else []


def _told_slow(situation: Situation) -> list[Claim]:
    """The rank that the watch told of, where its calls do not show it; none where it told of none.

    It adds up what each rank needs. Who is late to one call of a step alone, or to one of many
    steps, is seldom last, and costs the others time all the same.
    """
    told, ranks = situation.evidence.case.slow, situation.evidence.ranks.numbers.tolist()
    if told is None or told.rank not in ranks or not isfinite(told.excess + told.late_ms):
        return []
    return [
        Claim(
            kind=KIND,
            about=SlowSteps(told),
            culprits=(told.rank,),
            victims=tuple(rank for rank in ranks if rank != told.rank),
            doubts=(Doubt.NOT_IN_CALLS,),
        )
    ]


def late_claims(situation: Situation, *, eager: bool) -> list[Claim]:
    """One claim for all ranks that keep others waiting; none where there are none.

    Args:
        situation: All that is known.
        eager: Report small shares too: they were asked for.
    """
    found = late_ranks(situation.evidence, eager=eager)
    return [_explain(situation, found)] if found else []


def _explain(situation: Situation, found: Sequence[Late]) -> Claim:
    case, worst = situation.evidence.case, found[0]
    group = case.groups[situation.evidence.group_of(worst.channel)]
    culprits = situation.named({rank for late in found for rank in late.ranks})
    others = situation.named({rank for late in found for rank in late.others})
    shown = np.asarray(sorted({row for late in found for row in late.rows}), np.int64)
    since = worst.since if worst.since >= 0 else None
    return Claim(
        kind=KIND,
        about=LateRanks(
            group=group.label,
            since=since,
            median_ms=worst.median_ms,
            share=worst.share,
            last=worst.last,
            calls=worst.calls,
            ahead=worst.ahead,
            n_others=len(found) - 1,
            clocks_set=worst.clocks_set,
        ),
        culprits=culprits,
        victims=tuple(rank for rank in others if rank not in culprits),
        group=GroupRef.of(group),
        seq=since,
        op=case.names[int(case.calls.name[worst.rows[0]])].op,
        sites=situation.book.sites_of_rows(shown, "culprit"),
        doubts=() if worst.clocks_set else (Doubt.CLOCKS_UNSET,),
    )


RULE: Final = Rule(kind=KIND, when=When.CALLS, unless=Unless.CLAIM, tells=_told)


# ------------------------------------------------------------------ words


def _made_ahead(about: LateRanks) -> tuple[str, ...]:
    """Calls that are not counted, since no rank came late to them once more."""
    if not about.ahead:
        return ()
    more = count_of(about.ahead, "more call")
    return (f"The others had made {more} ahead: each counts with the call that held them up.",)


@words_for(SlowSteps)
def _verdict_of_slow_steps(about: SlowSteps, claim: Claim) -> Words:
    slow = about.seen
    takes, it = ("takes", "it") if len(claim.culprits) == 1 else ("take", "them")
    return Words(
        f"Not stuck but slow: {rank_phrase(claim.culprits)} {takes} {slow.excess:.0%} longer per "
        f"step than the others, which wait {slow.late_ms:,.1f} ms per call for {it}.",
        (f"Seen while the job ran, for {slow.for_s:,.0f} s since {_clock(slow.since_ns)}.",),
        alternatives=_SLOW_FOR,
        actions=_slow_actions(claim),
    )


def _clock(time_ns: int) -> str:
    """A moment as people of all time zones read it; hostile numbers are no moment."""
    try:
        when = datetime.fromtimestamp(time_ns / 1e9, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return "a time that makes no sense"
    return f"{when:%H:%M:%S} UTC"


def _slow_actions(claim: Claim) -> tuple[str, ...]:
    return (
        f"Profile rank {claim.culprits[0]} together with a peer: {_PROFILE}",
        "Compare clocks and throttling: nvidia-smi -q -d CLOCK,PERFORMANCE.",
    )


@words_for(LateRanks)
def _verdict_of_late_ranks(about: LateRanks, claim: Claim) -> Words:
    began = f" since #{about.since}" if about.since is not None else ""
    comes = "comes" if len(claim.culprits) == 1 else "come"
    others = count_of(about.n_others, "other group")
    elsewhere = (f"The same in {others}.",) if about.n_others else ()
    return Words(
        f"Not stuck but slow: {rank_phrase(claim.culprits)} {comes} last to calls of "
        f"{about.group}{began}, {about.median_ms:,.0f} ms after the others, which costs them "
        f"{about.share:.0%} of their time.",
        (
            f"Last in {about.last} of {count_of(about.calls, 'call')} of {about.group}.",
            *_made_ahead(about),
            *elsewhere,
            "Clocks were aligned by the times at which calls finished."
            if about.clocks_set
            else "Clocks could not be aligned; lateness began later, or all ranks share a host.",
        ),
        alternatives=_SLOW_FOR,
        actions=_slow_actions(claim),
    )
