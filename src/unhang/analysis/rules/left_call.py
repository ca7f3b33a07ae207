"""A call that has failed and that its ranks have left: they handled the error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unhang.analysis.lives.out_of_calls import out_of_calls
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Observer, Rule
from unhang.analysis.rules.telling import Words, adding_for, subject, then
from unhang.analysis.shared.claims import Bearing, Claim, Observation, Seeing, Weighed
from unhang.analysis.sources.logs import Failure
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import Trait

_ENDING: Final = frozenset({"teardown", "abort"})
"""Where ranks stand that an error is about to end."""


class LeftCall(Observation, frozen=True, kw_only=True):
    """The call has failed in these, and they stand in their own code again: nothing waits in it."""


def _left_call(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """That of the ranks that wait by a claim none does any more: they handled the error.

    A log tells that a call has failed, and a dump which: of now is only what the ranks do since.
    """
    told = isinstance(claim.about, Failure) and claim.about.names_others
    if not (told or (claim.calls and claim.kind.has(Trait.OF_NOW))):
        return
    waiting = frozenset(claim.victims or set(facts.lives.sampled) - set(claim.culprits))
    left = frozenset(look.rank for look in out_of_calls(facts.lives) if _goes_on(look))
    if waiting and waiting <= left:
        yield LeftCall(source="stacks", ranks=tuple(sorted(waiting))), Bearing.LEFT_CALL


def _goes_on(look: RankLook) -> bool:
    """Whether it is back in its program, rather than held or on its way out."""
    return not (look.held or look.meaning.kind in _ENDING) and look.sample.phase in ("", "ready")


RULE: Final = Rule(observers=(Observer(sees=_left_call),))


@adding_for(LeftCall)
def _adding_left_call(seen: LeftCall, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    said = f"{subject(seen.ranks)} left that call after it failed, and went on."
    return then(words, said, "Stacks: ")
