"""Words for ranks that want a core, or memory, and do not get it, with the figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from unhang.analysis.claims import Claim, Weighed
from unhang.analysis.lives.starved import Hungry, OfWhat, Starved, StarvedToo
from unhang.analysis.words.telling import Words, adding_for, merged, subject, words_for
from unhang.kinds import STARVED
from unhang.model import UNKNOWN_RANK, Shortage
from unhang.wording import count_of, rank_phrase

__all__ = ["MORE_MEMORY"]

_MOST = 8
MORE_MEMORY: Final = (
    (
        "Raise the limit where it was set: memory.high or memory.max of the cgroup, docker"
        " --memory, resources.limits in Kubernetes, --mem in SLURM."
    ),
    "Or hold less: fewer workers of the data loader, smaller caches, no swap in use.",
)


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
        f"{who} {verb} kept from {_from(about)}: {_worst(about)}{waits}.",
        tuple(_evidence(about)),
        actions=_actions(about),
    )


@adding_for(StarvedToo)
def _adding_starved_too(seen: StarvedToo, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    about = seen.starved
    who = _who(about)
    verb = "are" if who.startswith("Ranks ") else "is"
    said = f"{who} {verb} kept from {_from(about)}: {_worst(about)}."
    return replace(
        words,
        evidence=(*words.evidence, said),
        actions=merged(words.actions, _actions(about)),
    )


def _who(about: Starved) -> str:
    ranks = tuple(sorted({each.rank for each in about.who} - {UNKNOWN_RANK}))
    return subject(ranks) if ranks else f"Process {about.who[0].pid}"


def _from(about: Starved) -> str:
    return "memory" if about.what is OfWhat.MEMORY else "running"


def _worst(about: Starved) -> str:
    """The figures of the one that lacks most."""
    first = about.who[0]
    if about.what is OfWhat.SHARE:
        return _share(first.lacks)
    return _crowd(about, first) if about.what is OfWhat.CORES else _memory(first.lacks)


def _share(lacks: Shortage) -> str:
    part = lacks.throttled / lacks.periods if lacks.periods else 0.0
    return (
        f"its cgroup may use {lacks.cores:g} cores, and had to stop in {lacks.throttled:,} of "
        f"{lacks.periods:,} periods ({part:.0%})"
    )


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
            f"({lacks.memory_held >> 20:,} without page cache), and was pushed back "
            f"{lacks.pushed_back:,} times"
        )
    if lacks.memory_stalled:
        yield f"somebody waited for memory for {lacks.memory_stalled:.0%} of the time"
    if lacks.faults:
        yield f"it read {lacks.faults / lacks.seconds:,.0f} pages a second back from a disk"
    if lacks.swapped:
        yield f"{lacks.swapped >> 20:,} MB of it are swapped out"
    if lacks.swapped_in:
        yield f"the node reads {lacks.swapped_in / lacks.seconds / 1e6:,.1f} MB/s back from swap"


def _evidence(about: Starved) -> Iterator[str]:
    for each in about.who[:_MOST]:
        lacks, name = each.lacks, f"pid {each.pid}"
        if each.rank != UNKNOWN_RANK:
            name = f"rank {each.rank} ({name})"
        ran = lacks.ran_s / lacks.seconds
        told = [f"on a core {ran:.0%} of {lacks.seconds:.1f} s, in want of one {each.held_up:.0%}"]
        if about.what is OfWhat.SHARE:
            told.append(_share(lacks))
        told += _memory_figures(lacks) if about.what is OfWhat.MEMORY else ()
        yield f"{name}: {'; '.join(told)}."


def _actions(about: Starved) -> tuple[str, ...]:
    """The settings to change, with numbers where the figures give them."""
    if about.what is OfWhat.SHARE:
        return STARVED.actions
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
            "See where ranks may run: taskset -cp PID; --cpus-per-task in SLURM.",
        )
    return (
        "See what else runs there: top; give the job cores of its own (--exclusive in SLURM).",
        "See where ranks may run: taskset -cp PID; --cpus-per-task in SLURM.",
    )
