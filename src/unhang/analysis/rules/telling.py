"""How words are registered: by the type of what a claim is about, and of what was observed.

Standing sentences are the kind's (`unhang.kinds`); a claim's own words say what is so in this case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.shared.claims import Claim, Observation, Weighed
from unhang.wording import rank_phrase


class Words(Struct, frozen=True):
    """The sentences of one finding.

    Attributes:
        alternatives, actions: None for the standing sentences of the kind.
    """

    summary: str
    evidence: tuple[str, ...] = ()
    alternatives: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None


MOVES: Final = (
    "It may only be slow and still arrive: then let no other rank wait in a call while it works."
)

MORE_MEMORY: Final = (
    (
        "Raise the limit where it was set: memory.high or memory.max of the cgroup, docker"
        " --memory, resources.limits in Kubernetes, --mem in SLURM."
    ),
    "Or hold less: fewer workers of the data loader, smaller caches, no swap in use.",
)

_Facts = TypeVar("_Facts")
_Seen = TypeVar("_Seen", bound=Observation)

_VERDICTS: Final[dict[type, Callable[..., Words]]] = {}
_ADDITIONS: Final[dict[type, Callable[..., Words]]] = {}


def words_for(
    facts: type[_Facts],
) -> Callable[[Callable[[_Facts, Claim], Words]], Callable[[_Facts, Claim], Words]]:
    """Register the function that words claims about `facts`: `(about, claim) -> Words`."""

    def register(tell: Callable[[_Facts, Claim], Words]) -> Callable[[_Facts, Claim], Words]:
        _VERDICTS[facts] = tell
        return tell

    return register


_Adding: TypeAlias = Callable[[_Seen, Words, Claim, Weighed], Words]


def adding_for(seen: type[_Seen]) -> Callable[[_Adding[_Seen]], _Adding[_Seen]]:
    """Register the function that adds an observation to the words of a claim.

    It takes `(seen, words, claim, weighed)`. `words` are complete (never None); what is added
    stands where the function puts it, before or after.
    """

    def register(add: _Adding[_Seen]) -> _Adding[_Seen]:
        _ADDITIONS[seen] = add
        return add

    return register


def words_of(about: object, claim: Claim) -> Words:
    """The words of a claim alone, by the type of what it is about."""
    tell = _VERDICTS.get(type(about))
    if tell is None:
        raise TypeError(f"no words for {type(about).__name__} ({claim.kind.slug})")
    return tell(about, claim)


def adding(observation: Observation, words: Words, claim: Claim, weighed: Weighed) -> Words:
    """Words of a claim with those of an observation that was weighed for it, by its type."""
    add = _ADDITIONS.get(type(observation))
    if add is None:
        raise TypeError(f"no words for {type(observation).__name__} for {claim.kind.slug}")
    return add(observation, words, claim, weighed)


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
    return begun(rank_phrase(ranks))


def waits(ranks: Sequence[int]) -> str:
    """That ranks wait: "ranks 1-7 wait"."""
    return f"{rank_phrase(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"


def last_lines(ranks: Sequence[int]) -> tuple[str, ...]:
    """Say for whom the last call is shown, not where they stand."""
    if not ranks:
        return ()
    last, now = (
        ("its last finished call", "it is")
        if len(ranks) == 1
        else ("their last finished calls", "they are")
    )
    text = f"The line of {rank_phrase(ranks)} is that of {last}; the dumps do not show where {now}"
    return (f"{text} now.",)


def begun(text: str) -> str:
    """A text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def then(words: Words, said: str, source: str = "") -> Words:
    """Words that end their summary, and begin their evidence, with one more sentence."""
    summary = f"{words.summary.removesuffix('.')}; {said[:1].lower()}{said[1:]}"
    return replace(words, summary=summary, evidence=(f"{source}{said}", *words.evidence))


def or_else(words: Words, *said: str) -> Words:
    """Words with further explanations, before those that they have."""
    return replace(words, alternatives=(*said, *(words.alternatives or ())))
