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
    confidence_of,
)
from unhang.analysis.explaining import explained_by, following, without_empty
from unhang.analysis.lives.ended import Ended
from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.watchdogs import counters_apart
from unhang.analysis.sources.logs import Failure, Message, Said
from unhang.kinds import (
    IDLE,
    INSUFFICIENT_EVIDENCE,
    NEW_LINE,
    RANK_ENDED,
    RANKS_DIFFER,
    SILENT_RANK,
    Trait,
)
from unhang.model import Frame, LogEvent
from unhang.report import Site, Subject

__all__ = ["Differing", "FailedFirst", "Finished", "SaidBeside", "Unexplained", "failed_first"]

MAX_BESIDES = 12


class FailedFirst(Struct, frozen=True):
    """A failure in the logs and the waiting that it explains, as both were claimed before."""

    failure: Claim
    text: str
    explained: tuple[Claim, ...]

    @property
    def main(self) -> Claim:
        """The claim that tells most of the waiting: one that names a call."""
        return next((claim for claim in self.explained if claim.op), self.explained[0])


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


class Differing(Struct, frozen=True):
    """A fact about which ranks disagree: values with the ranks that have them."""

    name: str
    said: tuple[tuple[str, tuple[int, ...]], ...]


class Finished(Observation, frozen=True, kw_only=True):
    """All calls of the dumps are finished: what failed kept nobody waiting in them."""


def failed_first(claims: Sequence[Claim], lives: Lives) -> list[Claim]:
    """Join what is claimed already with what the logs say.

    Returns:
        All claims, causes first.
    """
    said = lives.said
    told = _fitting(said.failures, claims) if said.failures else None
    joined = list(claims)
    if told is not None:
        joined = _with_failure(claims, told)
    elif not any(claim.is_cause for claim in claims):
        joined = _instead(claims, list(counters_apart(said.counters)))
    found = [*joined, *_besides(said, joined, told)]
    if not claims and said.trouble and not any(claim.is_cause for claim in found):
        known = (_beside(message, ()) for message in said.recognised)
        found = [_unexplained(said), *found, *known][:MAX_BESIDES]
    return [*found, *_differing(said)]


# ------------------------------------------------------------------ the first failure


def _fitting(failures: Sequence[Failure], claims: Sequence[Claim]) -> Failure:
    """The earliest failure of a rank that others wait for; else the earliest one."""
    causes = [claim for claim in claims if claim.is_cause and claim.culprits]
    fits = (f for f in failures if _explained(f, causes) or any(_is_the_end(f, c) for c in causes))
    chosen = next(fits, failures[0])
    return chosen if chosen is failures[0] else replace(chosen, earlier=failures[0].group)


def _with_failure(claims: Sequence[Claim], failure: Failure) -> list[Claim]:
    causes = [claim for claim in claims if claim.is_cause]
    told = _claim(failure)
    if not causes:
        if any(c.kind is IDLE and confidence_of(c) == "high" for c in claims):
            told = told.seen(Finished(source="dumps"), Bearing.ALL_FINISHED)
        return _instead(claims, [told])
    same = next((c for c in causes if _is_the_end(failure, c)), None)
    if same is not None:
        return [_confirmed(c, failure, told) if c is same else c for c in claims]
    explained = _explained(failure, causes)
    if explained and (explained[0] is claims[0] or claims[0].kind is not RANK_ENDED):
        return _led(claims, failure, told, explained)
    beside = replace(told, role="observation", victims=()).doubted([Doubt.OTHER_CAUSE])
    return [*(_doubted(c, failure) if c.is_cause else c for c in claims), beside]


def _explained(failure: Failure, claims: Sequence[Claim]) -> list[Claim]:
    """The claims about waiting of which it can be the reason."""
    found = explained_by(claims, Reason(Because.FAILED, frozenset(failure.culprits)))
    if _of_anybody(failure):
        found += explained_by(claims, Reason(Because.FAILED_SOMEWHERE))
    return [claim for claim in claims if any(claim is each for each in found)]


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


def _led(
    claims: Sequence[Claim], failure: Failure, told: Claim, explained: Sequence[Claim]
) -> list[Claim]:
    """The failure as the cause, with the waiting that it explains after it."""
    if _of_anybody(failure) and explained[0].kind is SILENT_RANK:
        told = replace(told, culprits=explained[0].culprits).doubted([Doubt.NOTHING_SEEN])
    about = FailedFirst(told, failure.group.first.text, tuple(explained))
    main = about.main
    victims = {rank for claim in explained for rank in claim.victims} - set(told.culprits)
    lead = replace(
        told,
        about=about,
        victims=tuple(sorted(victims)),
        subjects=told.subjects or main.subjects,
        group=main.group,
        seq=main.seq,
        op=main.op,
        calls=main.calls,
        waits=main.waits,
        sites=_sites(told, explained),
    )
    if told.kind.has(Trait.MAY_COME):  # whom its peers missed may have worked all the while
        moving = {rank for claim in explained for rank in claim.moving} & set(told.culprits)
        lead = replace(lead, moving=tuple(sorted(moving)))
        lead = lead.doubted([Doubt.MOVES] if moving else [])
    # Where everybody is in the call, only the log names a rank.
    lead = lead if main.culprits else lead.doubted([Doubt.LOG_ALONE])
    rest = following(claims, explained, lead)
    return [lead, *sorted(rest, key=lambda claim: not claim.is_cause)]


def _sites(told: Claim, explained: Sequence[Claim]) -> tuple[Site, ...]:
    """The log's place first; of places that dumps know too, theirs, which has the whole stack."""
    known = {_place(site): site for claim in explained for site in claim.sites}
    own = tuple(known.get(_place(site), site) for site in told.sites)
    rest = (site for claim in explained for site in claim.sites if site not in own)
    return (*own, *dict.fromkeys(rest))


def _place(site: Site) -> tuple[object, ...]:
    return (site.ranks, site.role, site.file, site.line)


def _doubted(claim: Claim, failure: Failure) -> Claim:
    """A cause beside which the logs name another one.

    A wrong call is wrong whatever else failed, and a line of nobody contradicts nobody; nor does
    one that the claim rests on.
    """
    known = (each.observation for each in claim.weighed)
    if any(isinstance(each, Message) and each.group is failure.group for each in known):
        return claim
    against = claim.kind.has(Trait.FROM_FAILURE) and failure.culprits
    return claim.seen(failure, Bearing.OTHER_FAILURE if against else Bearing.FAILURE_BESIDE)


def _instead(claims: Sequence[Claim], causes: Sequence[Claim]) -> list[Claim]:
    """The causes first, without the observations that nothing was found."""
    return [*causes, *without_empty(claims)] if causes else list(claims)


# ------------------------------------------------------------------ everything else


def _besides(said: Said, joined: Sequence[Claim], told: Failure | None) -> list[Claim]:
    """What else is worth a line: other failures, consequences, hints.

    Failures after the one that leads are its consequences.
    """
    lead = tuple(joined[:1]) if any(claim.is_cause for claim in joined) else ()
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


def _unexplained(said: Said) -> Claim:
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
    return Claim(
        rests_on="logs", kind=INSUFFICIENT_EVIDENCE, about=about, doubts=(Doubt.NOBODY_NAMED,)
    )


def _differing(said: Said) -> Iterable[Claim]:
    for name, values in said.differing.items():
        yield Claim(
            kind=RANKS_DIFFER,
            rests_on="logs",
            about=Differing(name, tuple(values.items())),
            subjects=(Subject("setting", name),),
            doubts=(Doubt.A_LINE_ALONE,),
        )
