"""How words are registered: by the type of what a claim is about, and of what was observed.

Standing sentences are the kind's (`unhang.kinds`); a claim's own words say what is so in this case.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from msgspec import Struct

from unhang.analysis.claims import Claim, Observation, Weighed
from unhang.wording import rank_phrase

__all__ = ["Words", "adding", "all_words_of", "merged", "subject", "words_of"]


class Words(Struct, frozen=True):
    """The sentences of one finding.

    Attributes:
        alternatives, actions: None for the standing sentences of the kind.
    """

    summary: str
    evidence: tuple[str, ...] = ()
    alternatives: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None


@singledispatch
def words_of(about: object, claim: Claim) -> Words:
    """The words of a claim alone, by the type of what it is about.

    Register with `@words_of.register` a function `(about: MyFacts, claim: Claim) -> Words`.
    """
    raise TypeError(f"no words for {type(about).__name__} ({claim.kind.slug})")


@singledispatch
def adding(
    observation: Observation,
    words: Words,  # noqa: ARG001 - what is registered takes it
    claim: Claim,
    weighed: Weighed,  # noqa: ARG001 - what is registered takes it
) -> Words:
    """Words of a claim with those of an observation that was weighed for it, by its type.

    Register with `@adding.register` a function of the same parameters. `words` are complete (never
    None); what is added stands where the function puts it, before or after.
    """
    raise TypeError(f"no words for {type(observation).__name__} beside {claim.kind.slug}")


def all_words_of(claim: Claim) -> Words:
    """Its own words, the standing ones of its kind, and those of what other sources saw."""
    words = words_of(claim.about, claim)
    kind = claim.kind
    words = Words(
        words.summary,
        words.evidence,
        kind.alternatives if words.alternatives is None else words.alternatives,
        kind.actions if words.actions is None else words.actions,
    )
    for weighed in claim.weighed:
        words = adding(weighed.observation, words, claim, weighed)
    return words


def merged(first: Sequence[str] | None, second: Sequence[str] | None) -> tuple[str, ...]:
    """Sentences of both, each once."""
    return tuple(dict.fromkeys((*(first or ()), *(second or ()))))


def subject(ranks: Sequence[int]) -> str:
    """Ranks at the beginning of a sentence: "Ranks 3-5"."""
    phrase = rank_phrase(ranks)
    return phrase[:1].upper() + phrase[1:]
