"""Recorders that hold nothing of calls that their ranks have made: nothing follows from that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unhang.analysis.lives.blind import Blind
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Rule, When
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Claim
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import Kind, Trait
from unhang.wording import count_of, printable, rank_phrase

KIND: Final = Kind(
    "UH902",
    "recorder-blind",
    "evidence",
    "A recorder has no entries, though its rank has made calls.",
    role="observation",
    traits=Trait.UNDECIDED,
    actions=(
        "Check that it is on: TORCH_FR_BUFFER_SIZE must not be 0.",
        (
            "From torch 2.15 on, ask by the backend's name: unhang dump does, and"
            " torch._C._distributed_c10d._dump_fr_trace(backend='nccl2')."
        ),
        "Where torch does not record a backend, let unhang record: UNHANG_FULL=always.",
    ),
)

_MOST: Final = 3


def _claims(facts: CaseFacts) -> Iterator[Claim]:
    if facts.blind is not None:
        yield Claim(kind=KIND, about=facts.blind)


RULE: Final = Rule(kind=KIND, when=When.CALLS, tells=_claims)


@words_for(Blind)
def _verdict_of_blind(about: Blind, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    whose = f" ({', '.join(map(printable, about.backends))})" if about.backends else ""
    it = "the rank has" if len(about.ranks) == 1 else "the ranks have"
    summary = (
        f"The recorder{whose} of {rank_phrase(about.ranks)} has no entries, though {it} "
        f"made calls: it is off, or another recorder is in use."
    )
    evidence = tuple(_seen(about))
    return Words(
        summary,
        evidence,
        ("NCCL's older class records nothing until a group's communicator is up.",),
    )


def _seen(about: Blind) -> Iterator[str]:
    n = len(about.looks)
    yield f"{n:,} of {count_of(about.n_dumps, 'rank')} with a dump left an empty one after calls."
    for look in about.looks[:_MOST]:
        yield _call_of(look)
    if n > _MOST:
        yield f"The same holds for {count_of(n - _MOST, 'more rank')}."


def _call_of(look: RankLook) -> str:
    inside = look.inside or look.meaning.op
    if inside:
        return f"Rank {look.rank} is seen in {printable(inside)}."
    made = count_of(look.sample.last_call, "call")
    return f"Rank {look.rank} has made {made}; the last is {printable(look.sample.last_op)}."
