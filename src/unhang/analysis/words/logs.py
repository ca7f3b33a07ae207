"""Words for what logs say: the first failure, watchdogs' counters, and other messages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from unhang.analysis.claims import Claim, Stance, Weighed
from unhang.analysis.lives.failed import (
    Finished,
    SaidBeside,
)
from unhang.analysis.rules.telling import Words, adding_for, all_words_of, merged, words_for
from unhang.analysis.sources.logs import Failure
from unhang.kinds import RANK_ENDED, Trait
from unhang.model import LogEvent
from unhang.wording import printable, rank_phrase

if TYPE_CHECKING:
    from unhang.logs.failure import FailureGroup
    from unhang.logs.rules import LogRule

__all__ = ["SHOWN", "quoted"]


SHOWN = 160
SHOWN_WHOLE = 2_400
_MOST = 4


def _rule_of(event: LogEvent) -> LogRule | None:
    from unhang.logs.rules import rule_of

    return rule_of(event.code)


def _unreached(group: FailureGroup) -> str:
    from unhang.logs.addresses import UNREACHED_BY

    return group.first.fields.get(UNREACHED_BY, "")


@cache
def _reported_later() -> LogRule | None:
    from unhang.logs.rules import RULES

    return next((rule for rule in RULES if Trait.REPORTED_LATER in rule.traits), None)


def quoted(event: LogEvent) -> str:
    """Where a line stands and what it says; one that tells two sides is not cut."""
    rule = _rule_of(event)
    whole = rule is not None and rule.blames == "nobody"
    return f"{event.source}: {event.text[: SHOWN_WHOLE if whole else SHOWN]}"


def _who(group: FailureGroup) -> str:
    if group.ranks:
        return rank_phrase(group.ranks)
    if "pci" in group.first.fields:
        return f"the device at PCI {group.first.fields['pci']}"
    return group.first.host or "a process whose rank the log does not tell"


# ------------------------------------------------------------------ failures


_WHOSE: Final = {
    True: "Its log says the same",
    False: "The log does not say whose failure this was, and only this rank ended so",
}


@words_for(Failure)
def _verdict_of_failure(failure: Failure, claim: Claim) -> Words:
    return _leading(failure, claim) if claim.explains else _alone(failure, claim)


def _alone(failure: Failure, claim: Claim) -> Words:
    group, rule = failure.group, _rule_of(failure.group.first)
    named = claim.culprits and not group.ranks
    who = rank_phrase(claim.culprits) if named else _who(group)
    who = "every rank" if failure.everybody else who
    who = f"a thread of {who}" if failure.thread else who
    of = "that of" if named or rule is None or rule.blames == "writer" else "told by"
    return Words(
        f"The first failure in the logs is {of} {who}: {group.first.text[:SHOWN]}",
        (quoted(group.first), claim.kind.meaning, *_more(failure)),
        tuple(_others(failure)),
    )


def _more(failure: Failure) -> Iterator[str]:
    group = failure.group
    if failure.everybody:
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
        yield f"torchelastic blames rank {rank}{ended}: it saw that one end first."


def _others(failure: Failure) -> Iterator[str]:
    if failure.earlier:
        yield f"An earlier failure in the logs: {quoted(failure.earlier.first)}"
    for group in failure.rivals[:_MOST]:
        yield f"{_who(group)} printed at about the same time: {group.first.text[:SHOWN]}"


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
        return f"{rank_phrase(claim.victims)} wait for it, or failed after it."
    call = claim.op if claim.seq is None else f"{claim.op} #{claim.seq}"
    verb = "waits" if len(claim.victims) == 1 else "wait"
    return f"{rank_phrase(claim.victims)} {verb} in {call}."


@adding_for(Failure)
def _adding_failure(failure: Failure, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    line = quoted(failure.group.first)
    if weighed.stance is Stance.SUPPORTS:
        return replace(
            words,
            evidence=(*words.evidence, f"{_WHOSE[bool(failure.culprits)]}: {line}"),
            actions=merged(words.actions, failure.kind.actions),
        )
    said = f"the logs' first failure is another one: {line}"
    if weighed.stance is Stance.CONTRADICTS:
        return replace(words, evidence=(*words.evidence, f"Sources disagree: {said}"))
    return replace(words, alternatives=(*(words.alternatives or ()), said))


@adding_for(Finished)
def _adding_finished(seen: Finished, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    return words


# ------------------------------------------------------------------ other messages


@words_for(SaidBeside)
def _verdict_of_said_beside(about: SaidBeside, claim: Claim) -> Words:
    group = about.message.group
    return Words(
        f"{_who(group)}: {group.first.text[:SHOWN]}",
        (f"{group.first.source} ({group.count} times)", claim.kind.meaning),
        (),
    )
