"""Where culprits were last heard of, by traces; where no rank is blamed, who fell silent first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from unhang.analysis.lives.life import Lives
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Observer, Rule, Unless
from unhang.analysis.rules.starved import KIND as STARVED
from unhang.analysis.rules.telling import Words, adding_for, words_for
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Seeing, Weighed
from unhang.analysis.sources.traces import LastHeard
from unhang.kinds import Kind, Trait
from unhang.model import Frame, LastCall
from unhang.report import Site, Subject
from unhang.wording import printable

KIND: Final = Kind(
    "UH603",
    "last-traced-call",
    "program",
    "A process made its last traced call before the others.",
    role="observation",
    traits=Trait.UNDECIDED,
)

_MOST: Final = 8


def _silent(facts: CaseFacts) -> Iterator[Claim]:
    """Who fell silent first."""
    return (_claim(heard) for heard in facts.lives.heard if heard.is_silent)


def _of_culprits_too(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """What the culprits of a claim did last, by their traces; the last comes first.

    With the place, where nothing else tells it.
    """
    known = {rank for site in claim.sites if site.role == "culprit" for rank in site.ranks}
    for heard in reversed(_of_culprits(claim, facts.lives)):
        placed = heard.call.open_calls and heard.call.rank not in known
        sites = (_site(heard, "culprit"),) if placed else ()
        yield replace(heard, sites=sites), Bearing.TRACED


RULE: Final = Rule(
    kind=KIND,
    unless=Unless.CAUSE,
    tells=_silent,
    observers=(Observer(sees=_of_culprits_too, but=(STARVED,)),),
)


def _of_culprits(claim: Claim, lives: Lives) -> list[LastHeard]:
    return [heard for heard in lives.heard if heard.call.rank in claim.culprits][:_MOST]


def stack_id(heard: LastHeard) -> str:
    """Under which the stack of its open calls stands in the report."""
    return f"p{heard.call.pid}"


def stacks_heard(lives: Lives) -> dict[str, tuple[Frame, ...]]:
    """The stacks of open calls, by that name."""
    return {stack_id(h): h.call.open_calls for h in lives.heard if h.call.open_calls}


def _site(heard: LastHeard, role: str) -> Site:
    frame = heard.call.open_calls[0]
    return Site(heard.ranks, role, frame.file, frame.line, frame.function, "", heard.age_s)


def _claim(heard: LastHeard) -> Claim:
    return Claim(
        kind=KIND,
        rests_on="traces",
        about=heard,
        victims=heard.ranks,
        subjects=(Subject("process", f"pid {heard.call.pid}", pid=heard.call.pid),),
        sites=(dataclasses.replace(_site(heard, "victim"), stack_id=stack_id(heard)),),
        doubts=(Doubt.ONE_MOMENT,),
    )


# ------------------------------------------------------------------ words


def last_call(call: LastCall) -> str:
    """The last traced call, after "rank 3"."""
    word = "entered" if call.entered else "left"
    frame = call.frame
    return f"{word} {printable(frame.function)} at {printable(frame.file)}:{frame.line}"


@words_for(LastHeard)
def _verdict_of_last_heard(heard: LastHeard, claim: Claim) -> Words:  # noqa: ARG001 - as all words
    call = heard.call
    who = f"Rank {call.rank}" if call.rank >= 0 else f"Process {call.pid}"
    return Words(
        f"{who} made its last traced call {heard.age_s:.0f} s before the others: "
        f"{last_call(call)}.",
        tuple(
            f"open call: {printable(f.function)} at {printable(f.file)}:{f.line}"
            for f in call.open_calls[:_MOST]
        ),
        (),
        ("Sample it with unhang stacks, or trace its system calls with --syscalls.",),
    )


@adding_for(LastHeard)
def _adding_last_heard(heard: LastHeard, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    names = [printable(frame.function) for frame in heard.call.open_calls[:_MOST]]
    within = f"; open calls, innermost first: {', '.join(names)}" if names else ""
    said = (
        f"Trace: rank {heard.call.rank} {last_call(heard.call)}, {heard.age_s:.1f} s before the "
        f"last call of all ranks{within}."
    )
    return replace(words, evidence=(said, *words.evidence))
