"""Words for recorders that hold nothing of the calls that their ranks have made."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.analysis.claims import Claim
from unhang.analysis.lives.blind import Blind
from unhang.analysis.sources.stacks import RankLook
from unhang.analysis.words.telling import Words, words_for
from unhang.wording import count_of, printable, rank_phrase

__all__: list[str] = []

_MOST = 3


@words_for(Blind)
def _verdict_of_blind(about: Blind, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    whose = f" ({', '.join(map(printable, about.backends))})" if about.backends else ""
    ranks = tuple(look.rank for look in about.looks)
    has = "has" if len(ranks) == 1 else "have"
    summary = (
        f"The recorder{whose} holds nothing of what {rank_phrase(ranks)} "
        f"{has} called: it is off, or another one records."
    )
    evidence = tuple(_seen(about))
    return Words(
        summary,
        evidence,
        ("NCCL's older class records nothing until a group's communicator is up.",),
    )


def _seen(about: Blind) -> Iterator[str]:
    n = len(about.looks)
    yield f"Of {count_of(about.n_dumps, 'rank')} with a dump, {n:,} left an empty one after calls."
    for look in about.looks[:_MOST]:
        yield _call_of(look)
    if n > _MOST:
        yield f"So it is with {count_of(n - _MOST, 'more rank')}."


def _call_of(look: RankLook) -> str:
    inside = look.inside or look.meaning.op
    if inside:
        return f"Rank {look.rank} is seen in {printable(inside)}."
    made = count_of(look.sample.last_call, "call")
    return f"Rank {look.rank} has made {made}; the last is {printable(look.sample.last_op)}."
