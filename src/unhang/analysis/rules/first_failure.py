"""What failed first, by the logs, and whether that is why others wait.

A log tells a reason, dumps tell who waits for whom. Where a failure is that of a rank for which
others wait, it is the cause and the waiting its consequence. A failure of a rank that is seen
waiting like the others is never made the cause: both are reported, and neither is sure.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from unhang.analysis.findings.nothing_stuck import AllFinished
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rank_ended import RANK_ENDED
from unhang.analysis.rules.rule import Observer, Rule
from unhang.analysis.rules.said_beside import SHOWN, quoted, told_rule, who_of
from unhang.analysis.rules.telling import (
    Words,
    adding_for,
    all_words_of,
    merged,
    subject,
    waits,
    words_for,
)
from unhang.analysis.shared.claims import (
    Bearing,
    Because,
    Claim,
    Doubt,
    Observation,
    Reason,
    Seeing,
    Stance,
    Weighed,
)
from unhang.analysis.sources.logs import Failure, Said
from unhang.kinds import Trait
from unhang.model import LogEvent
from unhang.report import Subject
from unhang.wording import printable, rank_phrase

if TYPE_CHECKING:
    from unhang.logs.failure import FailureGroup
    from unhang.logs.rules import LogRule

_MOST = 4


class Finished(Observation, frozen=True, kw_only=True):
    """All calls of the dumps are finished: what failed kept no rank waiting in them."""


# ------------------------------------------------------------------ the first failure


def failures(said: Said) -> list[Claim]:
    """All failures that logs report as reasons, one of them the first; the earliest first."""
    first = said.failures[0].group if said.failures else None
    later = (replace(each, earlier=first) for each in said.failures[1:])
    return [_claim(each) for each in (*said.failures[:1], *later)]


def _all_finished(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """That by the dumps no rank waits, for a failure that explains nothing."""
    calls = facts.nothing_stuck
    sure = isinstance(calls, AllFinished) and calls.sure
    if sure and isinstance(claim.about, Failure) and not claim.explains:
        yield Finished(source="dumps"), Bearing.ALL_FINISHED


RULE: Final = Rule(observers=(Observer(sees=_all_finished, apart="dumps"),))


def _claim(failure: Failure) -> Claim:
    culprits = failure.culprits
    return Claim(
        kind=failure.kind,
        rests_on="logs",
        about=failure,
        role="cause",
        culprits=culprits,
        subjects=() if culprits or failure.everybody else _subjects(failure.group.first),
        sites=failure.raised_at,
        doubts=tuple(_doubts(failure)),
        reasons=(
            Reason(Because.FAILED, frozenset(culprits)),
            *((Reason(Because.FAILED_SOMEWHERE),) if failure.of_unknown else ()),
        ),
    )


def _doubts(failure: Failure) -> Iterator[Doubt]:
    if not failure.is_first:
        yield Doubt.UNORDERED
    elif not failure.culprits:
        yield Doubt.BLAMES_NOBODY
    if failure.earlier:
        yield Doubt.EARLIER_FAILURE
    if failure.thread:
        yield Doubt.IN_A_THREAD


def _subjects(event: LogEvent) -> tuple[Subject, ...]:
    pid = next((v for k, v in event.fields.items() if k.startswith("pid") and v.isdigit()), "")
    if pid:
        return (Subject("process", f"pid {pid}", host=event.host or None, pid=int(pid)),)
    return (Subject("host", event.host, host=event.host),) if event.host else ()


def _unreached(group: FailureGroup) -> str:
    from unhang.logs.addresses import UNREACHED_BY

    return group.first.fields.get(UNREACHED_BY, "")


@cache
def _reported_later() -> LogRule | None:
    from unhang.logs.rules import RULES

    return next((rule for rule in RULES if Trait.REPORTED_LATER in rule.traits), None)


# ------------------------------------------------------------------ words


_WHOSE: Final = {
    True: "Its log says the same",
    False: "The log does not say which rank failed, and only this rank ended this way",
}


@words_for(Failure)
def _verdict_of_failure(failure: Failure, claim: Claim) -> Words:
    return _leading(failure, claim) if claim.explains else _alone(failure, claim)


def _alone(failure: Failure, claim: Claim) -> Words:
    group, rule = failure.group, told_rule(failure.group.first)
    named = claim.culprits and not group.ranks
    who = rank_phrase(claim.culprits) if named else who_of(group)
    who = "every rank" if failure.everybody else who
    who = f"a thread of {who}" if failure.thread else who
    own = named or rule is None or rule.blames == "writer"
    of = "comes from" if own else "was reported by"
    head = f"The first failure in the logs {of} {who}"
    if failure.sides:
        differs = "differs" if len(claim.culprits) == 1 else "differ"
        head = f"{subject(claim.culprits)} {differs} from most ranks, by what ranks reported"
    return Words(
        f"{head}: {group.first.text[:SHOWN]}",
        (quoted(group.first), claim.kind.meaning, *_more(failure)),
        tuple(_others(failure)),
    )


def _more(failure: Failure) -> Iterator[str]:
    group = failure.group
    if failure.sides:
        sides = "; ".join(f"{rank_phrase(who)}: {printable(had)}" for had, who in failure.sides)
        yield f"By what each rank says of itself and of another one: {sides}."
    elif failure.everybody:
        yield "Every rank prints this message, so it blames none of them."
    number = group.first.fields.get("before") or group.first.fields.get("xid", "")
    if number.isdigit():
        from unhang.logs.rules.xids import XIDS

        if int(number) in XIDS:
            yield f"Xid {number}: {XIDS[int(number)]}."
    switch = group.first.fields.get("sxid", "")
    if switch.isdigit():
        from unhang.logs.rules.sxids import SXIDS

        if int(switch) in SXIDS:
            yield f"SXid {switch}: {SXIDS[int(switch)]}."
    if address := _unreached(group):
        yield f"Another host could not reach that address: {address}"
    if failure.reported_later and (rule := _reported_later()):
        # The line shown is not the one at fault.
        yield f"{rule.meaning} {rule.action}"
    for rank, code in failure.blamed:
        ended = f", which ended with exit code {code}" if code else ""
        yield f"torchelastic blames rank {rank}{ended}: it saw that rank end first."


def _others(failure: Failure) -> Iterator[str]:
    if failure.earlier:
        yield f"An earlier failure in the logs: {quoted(failure.earlier.first)}"
    for group in failure.rivals[:_MOST]:
        yield f"{who_of(group)} printed at about the same time: {group.first.text[:SHOWN]}"


def _leading(failure: Failure, claim: Claim) -> Words:
    """A failure with the waiting that it explains."""
    own, main = all_words_of(replace(claim, explains=(), weighed=())), all_words_of(claim.main)
    reason, waiting = _reason(failure, claim), _waiting(claim, main.summary)
    return Words(
        f"{reason[:1].upper()}{reason[1:]}; {waiting}",
        (
            *(f"Log: {sentence}" for sentence in own.evidence[:1]),
            *own.evidence[1:],
            *(f"Dumps: {all_words_of(each).summary}" for each in claim.explains[:_MOST]),
            *(() if claim.main.kind is RANK_ENDED else main.evidence),
        ),
        own.alternatives,
        merged(own.actions, main.actions),
    )


def _reason(failure: Failure, claim: Claim) -> str:
    """What failed: the log's own words after its rank, or after whom it names."""
    who = rank_phrase(claim.culprits) if claim.culprits else "a process of unknown rank"
    who = f"a thread of {who}" if failure.thread else who
    does = f"{who} failed first, by its log"
    group = failure.group
    if failure.names_others:
        does = f"the log{f' of {rank_phrase(group.ranks)}' if group.ranks else ''} names {who}"
    where, fields = "", group.first.fields
    if "file" in fields and fields.get("line", "").isdigit():
        file = printable(fields["file"].rpartition("/")[2])
        where = f" at {printable(fields['function'])} ({file}:{int(fields['line'])})"
    return f"{does}: {printable(group.first.text[:SHOWN], SHOWN)}{where}"


def _waiting(claim: Claim, main: str) -> str:
    if not claim.victims:
        return f"{main[:1].lower()}{main[1:]}"
    if not claim.op:
        return f"{waits(claim.victims)} for it, or failed after it."
    return f"{waits(claim.victims)} in {claim.call}."


@adding_for(Failure)
def _adding_failure(failure: Failure, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    line = quoted(failure.group.first)
    if weighed.bearing.stance is Stance.SUPPORTS:
        return replace(
            words,
            evidence=(*words.evidence, f"{_WHOSE[bool(failure.culprits)]}: {line}"),
            actions=merged(words.actions, failure.kind.actions),
        )
    said = f"the logs show another first failure: {line}"
    if weighed.bearing.stance is Stance.CONTRADICTS:
        return replace(words, evidence=(*words.evidence, f"Sources disagree: {said}"))
    return replace(words, alternatives=(*(words.alternatives or ()), said))


@adding_for(Finished)
def _adding_finished(seen: Finished, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    return words
