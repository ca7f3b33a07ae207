"""Ranks that stand still and may go on yet: they pause, have gone on since, or have more data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unhang.analysis.lives.whereabouts import Pausing, ranks_in
from unhang.analysis.rules.by_stacks import HOST_PROGRAM_STUCK
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.late_rank import KIND as LATE_RANK
from unhang.analysis.rules.rule import ANY, Observer, Rule
from unhang.analysis.rules.telling import Words, adding_for, or_else, subject, then
from unhang.analysis.shared.claims import Bearing, Claim, Observation, Seeing, Weighed
from unhang.analysis.sources.stacks import RankLook
from unhang.case import BY_CLOG
from unhang.kinds import Trait
from unhang.stacks.ownership import under
from unhang.wording import rank_phrase

_JOIN: Final = "torch/distributed/algorithms/join.py"


class GoingAlong(Observation, frozen=True, kw_only=True):
    """Those who wait for a late rank have no data left, and answer its calls."""


class GoneOn(Observation, frozen=True, kw_only=True):
    """Calls of these have ended since the alarm, and they have begun others."""


class CallLog(Observation, frozen=True, kw_only=True):
    """The calls are known from logs of them, which are read at any time."""


def _going_along(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """A rank that is late next to ranks that have run out of data, and go along, has more of it."""
    along = [look for look in facts.lives.looks_at(claim.victims) if _goes_along(look)]
    if along:
        yield GoingAlong(source="stacks", ranks=ranks_in(along)), Bearing.GOES_ALONG


def _pauses(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """Ranks that wait in their own code may go on: after so short a while nothing tells."""
    looks = [look for look in facts.lives.looks_at(claim.culprits) if look.paused_s >= 0]
    if not looks or claim.moving:
        return
    longest = max(looks, key=lambda look: look.paused_s)
    yield (
        Pausing(
            source="stacks",
            ranks=ranks_in(looks),
            for_s=longest.paused_s,
            grace_s=longest.sample.grace_s,
        ),
        Bearing.PAUSES,
    )


def _gone_on(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:  # noqa: ARG001 - of all claims alike
    """Where calls end again after the alarm, what stood still then was late rather than stuck."""
    on = ranks_in(look for look in facts.lives.sampled.values() if look.sample.went_on)
    if on:
        yield GoneOn(source="stacks", ranks=on), Bearing.WENT_ON


def _logged(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:  # noqa: ARG001 - of all claims alike
    """A dump is made when a job stands. A log of one that moves, or was ended, looks alike."""
    logs = [dump.rank for dump in facts.case.dumps if dump.reported_by == BY_CLOG]
    if logs and not facts.lives.sampled:
        yield CallLog(source="dumps", ranks=tuple(sorted(logs))), Bearing.CALL_LOG


def _goes_along(look: RankLook) -> bool:
    """Whether it is in torch's `Join`, which answers the calls of ranks that still have data."""
    inside = (f for f in look.frames if under(f.file, _JOIN))
    return any(frame.function.endswith("__exit__") for frame in inside)


RULE: Final = Rule(
    observers=(
        Observer(sees=_going_along, roles=ANY, kinds=(LATE_RANK,)),
        # Only who may come yet can be pausing; a program that stands still may be as well.
        Observer(sees=_pauses, kinds=(HOST_PROGRAM_STUCK,), traits=Trait.MAY_COME),
        Observer(sees=_gone_on, traits=Trait.OF_NOW),
        Observer(sees=_logged, traits=Trait.OF_NOW),
    )
)


@adding_for(GoingAlong)
def _adding_going_along(seen: GoingAlong, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    goes = "has no data left and joins" if len(seen.ranks) == 1 else "have no data left and join"
    said = f"{subject(seen.ranks)} {goes} the others' calls (Join) as long as they have some."
    return then(words, said, "Stacks: ")


@adding_for(Pausing)
def _adding_pausing(seen: Pausing, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    return or_else(
        words,
        f"Nothing had moved for {seen.for_s:.0f} s: a pause of {rank_phrase(seen.ranks)} (data, "
        "storage, a service that answers late) may last as long. Look again later.",
    )


@adding_for(GoneOn)
def _adding_gone_on(seen: GoneOn, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    have = "has" if len(seen.ranks) == 1 else "have"
    said = f"{subject(seen.ranks)} {have} gone on since: a call has ended, and another has begun."
    return then(words, said)


@adding_for(CallLog)
def _adding_call_log(seen: CallLog, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    return or_else(
        words,
        "The job moves, or was ended while it moved: a log of calls ends in the middle of a step "
        "then, too. Read the logs again some seconds later, or take stacks.",
    )
