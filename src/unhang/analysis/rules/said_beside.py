"""What logs say next to a verdict: other failures, consequences, hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from unhang.analysis.rules.rank_ended import RANK_ENDED
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Bearing, Claim, Doubt
from unhang.analysis.sources.logs import Failure, Message, Said
from unhang.kinds import Trait
from unhang.model import LogEvent
from unhang.wording import rank_phrase

if TYPE_CHECKING:
    from unhang.logs.failure import FailureGroup
    from unhang.logs.rules import LogRule

MAX_BESIDES = 12
SHOWN = 160
SHOWN_WHOLE = 2_400


class SaidBeside(Struct, frozen=True):
    """A message next to the verdict."""

    message: Message


def besides(said: Said, joined: Sequence[Claim]) -> list[Claim]:
    """What else is worth a line: other failures, consequences, hints.

    Failures after the one that leads are its consequences.

    Args:
        said: All that the logs say.
        joined: What is claimed already, the lead first.
    """
    if any(claim.kind.has(Trait.UNDECIDED) and claim.rests_on == "logs" for claim in joined):
        return []  # all that is recognised is reported with it
    lead = tuple(joined[:1]) if any(claim.is_cause for claim in joined) else ()
    told = _told_among(said.failures, joined)
    leads = told is not None and _tells(joined[0], told)
    at = next((i for i, f in enumerate(said.failures) if told and f.group is told.group), -1)
    found = [
        *(
            beside(failure, lead if leads and i > at else ())
            for i, failure in enumerate(said.failures)
            if i != at
        ),
        *(
            beside(message, lead if message.group.first.role == "consequence" else ())
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


def beside(message: Message, reason: tuple[Claim, ...]) -> Claim:
    """A message next to the verdict, as a consequence of a claim if one is given."""
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


def told_rule(event: LogEvent) -> LogRule | None:
    """The rule by which a line was recognised."""
    from unhang.logs.rules import rule_of

    return rule_of(event.code)


def quoted(event: LogEvent) -> str:
    """Where a line stands and what it says; one that tells two sides is not cut."""
    rule = told_rule(event)
    whole = rule is not None and rule.blames == "nobody"
    return f"{event.source}: {event.text[: SHOWN_WHOLE if whole else SHOWN]}"


def who_of(group: FailureGroup) -> str:
    """Which ranks wrote it, or what it is about, in words."""
    if group.ranks:
        return rank_phrase(group.ranks)
    if "pci" in group.first.fields:
        return f"the device at PCI {group.first.fields['pci']}"
    return group.first.host or "a process of unknown rank"


@words_for(SaidBeside)
def _verdict_of_said_beside(about: SaidBeside, claim: Claim) -> Words:
    group = about.message.group
    return Words(
        f"{who_of(group)}: {group.first.text[:SHOWN]}",
        (f"{group.first.source} ({group.count} times)", claim.kind.meaning),
        (),
    )
