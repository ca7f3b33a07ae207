"""Ranks that want a core, or memory, and do not get it: next to where they stand, or why.

A rank that is throttled looks busy or stuck in its stack, and its peers wait for it. Where a limit
holds up a rank for half of the time that does work of its own, the limit is the cause and the
waiting its consequence. Who waits may spin and be held up in that, which is no reason for anything;
and a machine that is merely crowded makes ranks slow, so it is an observation that blames no rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Observer, Rule
from unhang.analysis.rules.telling import MORE_MEMORY, Words, adding_for, merged, subject, words_for
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Observation, Seeing, Weighed
from unhang.analysis.shared.reason import Among, Because, Explanation, Reason
from unhang.analysis.sources.shortages import Hungry, OfWhat, Starved
from unhang.kinds import Kind, Role, Trait
from unhang.model import UNKNOWN_RANK, Shortage
from unhang.report import Subject
from unhang.wording import count_of, rank_phrase

KIND: Final = Kind(
    "UH607",
    "starved",
    "environment",
    "Ranks lack a core or memory, and so come late to every call.",
    alternatives=("A short burst, such as loading data or compiling, hits a limit as well.",),
    actions=(
        (
            "Raise the limit where it was set: docker --cpus and --memory, resources.limits in"
            " Kubernetes, --cpus-per-task and --mem in SLURM."
        ),
        "Or start fewer threads and workers: OMP_NUM_THREADS, num_workers of the data loader.",
    ),
)

_HELD_UP: Final = 0.5
"""Share of the time from which on a limit is the reason why others wait."""
_MOST: Final = 8

LATENESS: Final = Explanation(
    Because.OWN,
    Among.NAMED,
    "A rank that gets no core, or no memory, comes late to every call. It has to be every rank "
    "that is waited for: one that is not short is late for another reason.",
    trait=Trait.MAY_COME,
    hands_on=("victims", "moving", "op", "sites"),
)


class StarvedToo(Observation, frozen=True, kw_only=True):
    """Culprits of a claim that are short of something."""

    starved: Starved


def _claims(facts: CaseFacts) -> Iterator[Claim]:
    """The limits that hold ranks up, as reasons for who waits for them; all else that is short."""
    for about in facts.short:
        held = _held_up(about)
        yield _held(replace(about, who=held)) if held else _claim(about)


def _short_too(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """What culprits of a claim are short of that holds none of them up."""
    for about in facts.short:
        who = tuple(each for each in about.who if each.rank in claim.culprits)
        if who and not _held_up(about):
            lacks = replace(about, who=who)
            yield (
                StarvedToo(source="stacks", ranks=claim.culprits, starved=lacks),
                Bearing.SHORT_TOO,
            )


RULE: Final = Rule(kind=KIND, tells=_claims, observers=(Observer(sees=_short_too, but=(KIND,)),))


def _held_up(about: Starved) -> tuple[Hungry, ...]:
    """Those who do work of their own and are kept from it by a limit for half of the time."""
    if about.what is OfWhat.CORES:
        return ()
    return tuple(
        each
        for each in about.who
        if each.works
        and (each.held_up if about.what is OfWhat.SHARE else each.lacks.memory_stalled) >= _HELD_UP
    )


def _held(about: Starved) -> Claim:
    ranks = frozenset(each.rank for each in about.who) - {UNKNOWN_RANK}
    return replace(
        _claim(about, "cause"),
        culprits=tuple(sorted(ranks)),
        reasons=(Reason(Because.OWN, ranks, (LATENESS,)),),
    )


def _claim(about: Starved, role: Role = "observation") -> Claim:
    return Claim(
        kind=KIND,
        rests_on="stacks",
        about=about,
        role=role,
        subjects=tuple(_subject(each, is_cause=role == "cause") for each in about.who[:_MOST]),
        doubts=(Doubt.ONE_MOMENT,),
    )


def _subject(each: Hungry, *, is_cause: bool) -> Subject:
    return Subject(
        "process",
        f"pid {each.pid}",
        role="culprit" if is_cause else "victim",
        rank=None if each.rank == UNKNOWN_RANK else each.rank,
        host=each.host or None,
        pid=each.pid,
    )


# ------------------------------------------------------------------ words


@words_for(Starved)
def _verdict_of_starved(about: Starved, claim: Claim) -> Words:
    who = _who(about)
    verb = "are" if who.startswith("Ranks ") else "is"
    waits = ""
    if claim.victims:
        verb_of = "waits" if len(claim.victims) == 1 else "wait"
        within = f" in {claim.op}" if claim.op else ""
        waits = f"; {rank_phrase(claim.victims)} {verb_of} for it{within}"
    return Words(
        f"{who} {verb} short of {_what(about)}: {_worst(about)}{waits}.",
        tuple(_evidence(about)),
        actions=_actions(about),
    )


@adding_for(StarvedToo)
def _adding_starved_too(seen: StarvedToo, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    about = seen.starved
    who = _who(about)
    verb = "are" if who.startswith("Ranks ") else "is"
    said = f"{who} {verb} short of {_what(about)}: {_worst(about)}."
    return replace(
        words,
        evidence=(*words.evidence, said),
        actions=merged(words.actions, _actions(about)),
    )


def _who(about: Starved) -> str:
    ranks = tuple(sorted({each.rank for each in about.who} - {UNKNOWN_RANK}))
    return subject(ranks) if ranks else f"Process {about.who[0].pid}"


def _what(about: Starved) -> str:
    return "memory" if about.what is OfWhat.MEMORY else "CPU time"


def _worst(about: Starved) -> str:
    """The figures of the one that lacks most."""
    first = about.who[0]
    if about.what is OfWhat.SHARE:
        return _share(first.lacks)
    return _crowd(about, first) if about.what is OfWhat.CORES else _memory(first.lacks)


def _share(lacks: Shortage) -> str:
    part = lacks.throttled / lacks.periods if lacks.periods else 0.0
    return (
        f"its cgroup may use {_cores(lacks.cores)}, and was throttled in {lacks.throttled:,} of "
        f"{lacks.periods:,} periods ({part:.0%})"
    )


def _cores(number: float) -> str:
    return f"{number:g} core" if number == 1 else f"{number:g} cores"


def _crowd(about: Starved, first: Hungry) -> str:
    said = f"it wanted a core and had none for {first.held_up:.0%} of the time"
    usable = first.lacks.usable
    if about.threads > usable > 0:
        ours = count_of(about.processes, "process", "processes")
        return f"{said}, as {about.threads:,} threads of {ours} share {count_of(usable, 'core')}"
    return f"{said}: other processes of the node use them"


def _memory(lacks: Shortage) -> str:
    return "; ".join(_memory_figures(lacks))


def _memory_figures(lacks: Shortage) -> Iterator[str]:
    if lacks.memory_limit and lacks.pushed_back:
        yield (
            f"its cgroup uses {lacks.memory_used >> 20:,} of {lacks.memory_limit >> 20:,} MB "
            f"({lacks.memory_held >> 20:,} without page cache), and hit the limit "
            f"{count_of(lacks.pushed_back, 'time')}"
        )
    if lacks.memory_stalled:
        yield f"processes waited for memory for {lacks.memory_stalled:.0%} of the time"
    if lacks.faults:
        yield f"it read back {lacks.faults / lacks.seconds:,.0f} pages per second from a disk"
    if lacks.swapped:
        yield f"{lacks.swapped >> 20:,} MB of it are swapped out"
    if lacks.swapped_in:
        yield f"the node reads back {lacks.swapped_in / lacks.seconds / 1e6:,.1f} MB/s from swap"


def _evidence(about: Starved) -> Iterator[str]:
    for each in about.who[:_MOST]:
        lacks, name = each.lacks, f"pid {each.pid}"
        if each.rank != UNKNOWN_RANK:
            name = f"rank {each.rank} ({name})"
        ran = lacks.ran_s / lacks.seconds
        told = [f"ran for {ran:.0%} of {lacks.seconds:.1f} s, waited for a core {each.held_up:.0%}"]
        if about.what is OfWhat.SHARE:
            told.append(_share(lacks))
        told += _memory_figures(lacks) if about.what is OfWhat.MEMORY else ()
        yield f"{name}: {'; '.join(told)}."


def _actions(about: Starved) -> tuple[str, ...]:
    """The settings to change, with numbers where the figures give them."""
    if about.what is OfWhat.SHARE:
        return KIND.actions
    if about.what is OfWhat.MEMORY:
        return MORE_MEMORY
    usable = about.who[0].lacks.usable
    each = max(usable // max(about.processes, 1), 1)
    if about.threads > usable > 0:
        ours = count_of(about.processes, "process", "processes")
        return (
            (
                f"Start fewer threads: OMP_NUM_THREADS={each} MKL_NUM_THREADS={each} for {ours} on "
                f"{count_of(usable, 'core')}, and fewer workers of the data loader."
            ),
            "Check where ranks may run: taskset -cp PID; --cpus-per-task in SLURM.",
        )
    return (
        "Check what else runs there: top; give the job cores of its own (--exclusive in SLURM).",
        "Check where ranks may run: taskset -cp PID; --cpus-per-task in SLURM.",
    )
