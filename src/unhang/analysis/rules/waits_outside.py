"""Ranks that wait for an answer from outside the job: links of the chain, and not its end.

The others wait for such a rank, and it waits for a server, or for tasks of Ray. What to look at is
there. It is not blamed; it may still be the one that asked for what no server answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from unhang.analysis.rules.by_stacks import HOST_PROGRAM_STUCK
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Observer, Rule
from unhang.analysis.rules.telling import Words, adding_for, merged, subject, waits
from unhang.analysis.shared.claims import Bearing, Claim, Observation, Seeing, Weighed
from unhang.analysis.sources.outside import Respondent
from unhang.analysis.sources.stacks import RankLook, at_site, looks_of_others
from unhang.kinds import Trait
from unhang.model import Frame
from unhang.report import Subject
from unhang.stacks.meaning import meaning_of_frames
from unhang.stacks.ownership import user_frame
from unhang.wording import rank_phrase

_ASKED_FOR: Final = (
    "It may have asked for something that cannot be answered: see the line at which it waits."
)


class WaitsOutside(Observation, frozen=True, kw_only=True):
    """They wait for an answer of one that is no rank of the job.

    Attributes:
        whom: Who is asked, each once.
        does: What that process does, where it was looked at too; "" where it was not.
    """

    whom: tuple[Respondent, ...]
    does: str = ""

    @property
    def asked(self) -> tuple[Subject, ...]:
        """Who is to be looked at."""
        return tuple(
            Subject("process", each.names, host=each.host or None, pid=each.pid or None)
            for each in self.whom
        )


def _waits_outside(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """Those who are missed, and stand at a question to one outside."""
    looks = [look for look in facts.lives.looks_at(claim.culprits) if look.outside is not None]
    whom = tuple(dict.fromkeys(look.outside for look in looks if look.outside is not None))
    if not looks or any(look.moves or look.age_s is not None for look in looks):
        return
    does = _doing(whom, looks_of_others(facts.case.samples)) if len(whom) == 1 else ""
    ranks = tuple(look.rank for look in looks)
    yield WaitsOutside(source="stacks", ranks=ranks, whom=whom, does=does), Bearing.WAITS_OUTSIDE


def _doing(whom: Sequence[Respondent], others: Sequence[RankLook]) -> str:
    """What the process that is asked does: rather where it serves than where it takes requests."""
    (asked,) = whom
    here = asked.host, asked.pid
    seen = next((look for look in others if asked.pid and (look.host, look.pid) == here), None)
    if seen is None or seen.unseen:
        return ""
    threads = [thread.frames for thread in seen.sample.threads if not thread.is_main]
    serving = dict.fromkeys(map(_says, filter(user_frame, threads))) if seen.serves else {}
    return f"{next(iter(serving))} in a thread" if len(serving) == 1 else seen.says


def _says(frames: tuple[Frame, ...]) -> str:
    meaning = meaning_of_frames(frames)
    return f"{meaning.says}{at_site(meaning.site)}"


RULE: Final = Rule(
    observers=(Observer(sees=_waits_outside, kinds=(HOST_PROGRAM_STUCK,), traits=Trait.MAY_COME),)
)


@adding_for(WaitsOutside)
def _adding_waits_outside(
    seen: WaitsOutside,
    words: Words,
    claim: Claim,
    weighed: Weighed,  # noqa: ARG001
) -> Words:
    rest = sorted({*claim.culprits} - {*seen.ranks})
    if rest:
        said = f"{waits(seen.ranks).capitalize()} for {_whom(seen)}."
        return replace(words, evidence=(said, *words.evidence))
    return Words(
        f"{_chain(seen, claim)}.",
        (words.summary, *words.evidence),
        (_ASKED_FOR, *_unseen(seen), *(words.alternatives or ())),
        merged(tuple(_look_there(seen)), words.actions),
    )


def _chain(seen: WaitsOutside, claim: Claim) -> str:
    """Who waits for whom, from the ranks that ask to those that wait for them."""
    verb = "waits" if len(seen.ranks) == 1 else "wait"
    first = f"{subject(seen.ranks)} {verb} for an answer of {_whom(seen)}"
    does = f", which is {seen.does}" if seen.does else ""
    others = [rank for rank in claim.victims if rank not in seen.ranks]
    where = f" in {claim.call}" if claim.call else ""
    behind = f"; {waits(others)} for {rank_phrase(seen.ranks)}{where}" if others else ""
    return f"{first}{does}{behind}"


def _unseen(seen: WaitsOutside) -> Iterator[str]:
    """An address whose process was not seen may be anyone's, a rank's on another node too."""
    for each in seen.whom:
        if each.address and not each.pid:
            yield f"{each.names} was not looked at: it may be a rank on another node."


def _whom(seen: WaitsOutside) -> str:
    return ", ".join(each.names for each in seen.whom)


def _look_there(seen: WaitsOutside) -> Iterator[str]:
    for each in seen.whom:
        if each.tasks:
            yield "Look at these tasks: ray list tasks, ray list actors, ray stack."
        elif each.pid:
            yield f"Look at what is asked: unhang stacks --pid {each.pid}, and its log."
        elif each.address:
            yield f"Look at what is asked: who listens at {each.address}, its stacks and its log."
        else:
            yield "Look at the server that is asked: its stacks and its log."
