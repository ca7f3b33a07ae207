"""What failed first, by the logs, and whether that is why others wait.

A log tells a reason, dumps tell who waits for whom. Where a failure is that of a rank for which
others wait, it is the cause and the waiting its consequence. A failure of a rank that is seen
waiting like the others is never made the cause: both are told, and neither is sure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.claims import (
    Bearing,
    Because,
    Claim,
    Doubt,
    Observation,
    Reason,
    Seeing,
    confidence_of,
)
from unhang.analysis.lives.ended import Ended
from unhang.analysis.sources.logs import Failure, Message, Said
from unhang.kinds import (
    IDLE,
    INSUFFICIENT_EVIDENCE,
    RANK_ENDED,
    Trait,
)
from unhang.model import Frame, LogEvent
from unhang.report import Site, Subject

__all__ = [
    "Finished",
    "SaidBeside",
    "Unexplained",
    "all_finished",
    "besides",
    "failures",
    "unexplained",
    "with_last_line",
]

MAX_BESIDES = 12


class SaidBeside(Struct, frozen=True):
    """A message beside the verdict."""

    message: Message


class Unexplained(Struct, frozen=True):
    """Something went wrong, and no rule says why.

    Attributes:
        errors: Lines that mark themselves as errors.
        effect: What followed from a failure that is not in the logs.
        last: The last line that tells of trouble.
        new: Lines that a good run never wrote.
        standing: A serving engine that makes no token.
        waiters: Messages of who waited until a time-out, each with its ranks.
    """

    errors: tuple[LogEvent, ...]
    effect: LogEvent | None
    last: LogEvent
    new: tuple[LogEvent, ...] = ()
    standing: LogEvent | None = None
    waiters: tuple[Message, ...] = ()


class Finished(Observation, frozen=True, kw_only=True):
    """All calls of the dumps are finished: what failed kept no rank waiting in them."""


# ------------------------------------------------------------------ the first failure


def failures(said: Said) -> list[Claim]:
    """All failures that logs tell of as reasons, of which one was the first; the earliest first."""
    first = said.failures[0].group if said.failures else None
    later = (replace(each, earlier=first) for each in said.failures[1:])
    return [_claim(each) for each in (*said.failures[:1], *later)]


def with_last_line(claim: Claim, told: Iterable[Claim]) -> Claim:
    """The end of a rank with the failure that its log tells of it, if any."""
    if not claim.is_cause or claim.kind is not RANK_ENDED:
        return claim
    for each in told:
        if isinstance(each.about, Failure) and _is_the_end(each.about, claim):
            return _confirmed(claim, each.about, each)
    return claim


def all_finished(claim: Claim, idle: Claim | None) -> Iterator[Seeing]:
    """That by the dumps no rank waits, for a failure that explains nothing."""
    sure = idle is not None and idle.kind is IDLE and confidence_of(idle) == "high"
    if sure and isinstance(claim.about, Failure) and not claim.explains:
        yield Finished(source="dumps"), Bearing.ALL_FINISHED


def _of_anybody(failure: Failure) -> bool:
    """Whether its line does not tell of which rank it is: it may be of one that left nothing."""
    from unhang.logs.rules import rule_of

    rule = rule_of(failure.group.first.code)
    told = failure.culprits or failure.everybody or failure.group.first.rank >= 0
    return not told and rule is not None and rule.blames == "writer"


def _is_the_end(failure: Failure, claim: Claim) -> bool:
    """Whether it says no more than that a process ended, which is claimed already."""
    if claim.kind is not RANK_ENDED or not failure.kind.has(Trait.ENDING) or failure.thread:
        return False
    if _of_anybody(failure) and isinstance(claim.about, Ended):
        # Launchers of people's own do not say whose line it is: it is of the one that ended so.
        (first, *others), followed = claim.about.first, claim.about.followed
        return first.status == 1 and not (others or followed or first.error)
    return bool(failure.culprits) and set(failure.culprits) <= set(claim.culprits)


def _claim(failure: Failure) -> Claim:
    culprits = failure.culprits
    return Claim(
        kind=failure.kind,
        rests_on="logs",
        about=failure,
        role="cause",
        culprits=culprits,
        subjects=() if culprits or failure.everybody else _subjects(failure.group.first),
        sites=_own_site(failure),
        doubts=tuple(_doubts(failure)),
        reasons=(
            Reason(Because.FAILED, frozenset(culprits)),
            *((Reason(Because.FAILED_SOMEWHERE),) if _of_anybody(failure) else ()),
        ),
    )


def _doubts(failure: Failure) -> Iterator[Doubt]:
    if not failure.ordered or failure.rivals:
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


def _own_site(failure: Failure) -> tuple[Site, ...]:
    """Where it was raised: by who printed it, whoever else it names."""
    fields = failure.group.first.fields
    if "file" not in fields or not fields.get("line", "").isdigit():
        return ()
    line, function = int(fields["line"]), fields["function"]
    if failure.names_others:
        return (Site(failure.group.ranks, "victim", fields["file"], line, function),)
    return (Site(failure.culprits, "culprit", fields["file"], line, function),)


def _confirmed(claim: Claim, failure: Failure, told: Claim) -> Claim:
    """The end of a rank that its log tells as well."""
    unsure = confidence_of(told) == "low" or not failure.culprits
    own = (dataclasses.replace(site, ranks=claim.culprits) for site in told.sites)
    placed = replace(claim, sites=claim.sites or tuple(own))
    if not failure.culprits and isinstance(claim.about, Ended):
        (first,) = claim.about.first
        site = next(iter(told.sites), None)
        frames = (Frame(site.function, site.file, site.line),) if site else first.frames
        raised = replace(first, error=failure.group.first.text, frames=frames, age_s=None)
        placed = replace(placed, about=replace(claim.about, first=(raised,)))
    return placed.seen(failure, Bearing.MAY_TELL_THE_END if unsure else Bearing.TELLS_THE_END)


# ------------------------------------------------------------------ everything else


def besides(said: Said, joined: Sequence[Claim]) -> list[Claim]:
    """What else is worth a line: other failures, consequences, hints.

    Failures after the one that leads are its consequences.

    Args:
        said: All that the logs say.
        joined: What is claimed already, the lead first.
    """
    if any(isinstance(claim.about, Unexplained) for claim in joined):
        return []  # all that is recognised is told with it
    lead = tuple(joined[:1]) if any(claim.is_cause for claim in joined) else ()
    told = _told_among(said.failures, joined)
    leads = told is not None and _tells(joined[0], told)
    at = next((i for i, f in enumerate(said.failures) if told and f.group is told.group), -1)
    found = [
        *(
            _beside(failure, lead if leads and i > at else ())
            for i, failure in enumerate(said.failures)
            if i != at
        ),
        *(
            _beside(message, lead if message.group.first.role == "consequence" else ())
            for message in said.effects
        ),
    ]
    return found[:MAX_BESIDES]


def _told_among(failures: Sequence[Failure], claims: Sequence[Claim]) -> Failure | None:
    """The failure that a claim tells of, or that the end of a rank was weighed with."""
    own = [claim.about for claim in claims if isinstance(claim.about, Failure)]
    own += [
        each.observation
        for claim in claims
        if claim.kind is RANK_ENDED
        for each in claim.weighed
        if isinstance(each.observation, Failure)
        and each.bearing in (Bearing.MAY_TELL_THE_END, Bearing.TELLS_THE_END)
    ]
    return next((f for f in own for each in failures if f.group is each.group), None)


def _tells(first: Claim, failure: Failure) -> bool:
    """Whether the first claim is that failure, or the end of its rank that it confirms."""
    ended = first.kind is RANK_ENDED and set(failure.culprits) <= set(first.culprits)
    return first.is_cause and (first.kind == failure.kind or ended)


def _beside(message: Message, reason: tuple[Claim, ...]) -> Claim:
    follows = reason or message.group.first.role == "consequence"
    return Claim(
        kind=message.kind,
        rests_on="logs",
        about=SaidBeside(message),
        role="consequence" if follows else "observation",
        victims=message.ranks,
        doubts=(Doubt.A_LINE_ALONE,),
        caused_by=reason,
    )


def unexplained(said: Said) -> Iterator[Claim]:
    """That something went wrong, and no rule says why; with all that is recognised."""
    from unhang.logs.novelty import NEW_LINE

    if not said.trouble or said.failures:
        return
    effect = next((event for event in said.trouble if event.role == "consequence"), None)
    new = tuple(event for event in said.events if event.code == NEW_LINE.code)
    about = Unexplained(
        errors=said.errors,
        effect=effect,
        last=said.trouble[-1],
        new=new,
        standing=said.standing,
        waiters=tuple(said.waiters),
    )
    yield Claim(
        rests_on="logs", kind=INSUFFICIENT_EVIDENCE, about=about, doubts=(Doubt.NOBODY_NAMED,)
    )
    known = [_beside(message, ()) for message in (*said.effects, *said.recognised)]
    yield from known[: MAX_BESIDES - 1]
