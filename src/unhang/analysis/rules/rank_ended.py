"""Ranks whose process ended while their peers went on: who was first, and whom that explains.

A death explains what follows: peers wait for a rank that is no more, or fail because it is no
more. Where all ranks ended alike, none of them is blamed; an end with exit status 0 counts only
where peers were left in calls.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from unhang.analysis.lives.ended import Ends
from unhang.analysis.lives.life import Lives
from unhang.analysis.rules.telling import MORE_MEMORY, Words, subject, words_for
from unhang.analysis.shared.claims import Because, Claim, Doubt, Reason
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.exits import CRASHES, SIGNAL_BASE, End, Manner
from unhang.kinds import Kind, Trait
from unhang.model import MemoryKill, Note, ProcessSample
from unhang.report import Site, Subject
from unhang.stacks.ownership import shown_frame
from unhang.wording import count_of, printable, rank_phrase

RANK_ENDED: Final = Kind(
    "UH106",
    "rank-ended",
    "failure",
    "A rank's process ended, by a signal, an error or an early exit, while its peers went on.",
    traits=Trait.ENDED | Trait.FROM_FAILURE | Trait.FROM_BAD_NODE,
)

_MOST_ENDS: Final = 8
_SHOWN_TEXT = 160
_KILL = SIGNAL_BASE + 9
_ABORT = SIGNAL_BASE + 6


class Ended(Struct, frozen=True):
    """The ends that nothing else explains.

    Attributes:
        followed: Those that came of them.
        blamed: Not all ranks ended alike, nor did most of them end as if all were well.
        before: Ranks that had ended with exit status 0 well before them.
    """

    first: tuple[End, ...]
    followed: tuple[End, ...]
    blamed: bool
    before: tuple[int, ...]


def ended(
    ends: Ends, missed: Mapping[int, frozenset[int]], lives: Lives, book: StackBook
) -> Iterator[Claim]:
    """The ranks that ended first, as the reason for what is said of them and of who followed.

    Args:
        ends: Of all ranks.
        missed: Which ranks calls miss, and who waits for each.
        lives: How each rank ended.
        book: Takes the stacks that are referred to.
    """
    first, followed = ends.first, ends.followed
    if not first:
        return
    culprits, after = {end.rank for end in first}, {end.rank for end in followed}
    about = Ended(
        first,
        followed,
        blamed=len(culprits) < max(len(lives.expected), 2) and not _have_most_left(first, lives),
        before=_gone_before(first, lives) if first[0].manner is Manner.UNCLEAR else (),
    )
    alike = not about.blamed and first[0].manner in (Manner.KILLED, Manner.UNCLEAR)
    waiting = {rank for each in culprits | after for rank in missed.get(each, ())}
    everybody = set(lives.expected) <= culprits | after | waiting
    yield Claim(
        kind=RANK_ENDED,
        rests_on="exits",
        about=about,
        culprits=tuple(sorted(culprits)) if about.blamed else (),
        victims=tuple(sorted(after - culprits)),
        subjects=tuple(_subjects(first)),
        sites=tuple(_sites(first, "culprit" if about.blamed else "peer", book)),
        doubts=tuple(_doubts(about, everybody=everybody)),
        reasons=(
            Reason(Because.KILLED_ALIKE if alike else Because.ENDED, frozenset(culprits)),
            Reason(Because.GONE, frozenset(culprits | after)),
        ),
    )


def _have_most_left(first: Sequence[End], lives: Lives) -> bool:
    """Whether rather those are wrong that still call: for calls that no other rank makes."""
    return first[0].manner is Manner.LEFT and 2 * len(first) > len(lives.expected)


def _gone_before(first: Sequence[End], lives: Lives) -> tuple[int, ...]:
    """Ranks that had ended as if all were well before: what came then may come of that."""
    began_ns = min(end.ended_ns for end in first)
    gone = [life.end for life in lives.ranks.values() if life.end and life.end.status == 0]
    return tuple(end.rank for end in gone if 0 < end.ended_ns < began_ns)


def _doubts(about: Ended, *, everybody: bool) -> Iterator[Doubt]:
    manner = about.first[0].manner
    if not about.blamed:
        yield Doubt.MOST_LEFT if manner is Manner.LEFT else Doubt.ENDED_ALIKE
    if manner is Manner.LEFT and not everybody:
        yield Doubt.MAY_HAVE_FINISHED
    if manner is Manner.UNCLEAR:
        several = len(about.first) > 1 or about.before
        yield Doubt.ENDS_UNCLEAR if several else Doubt.END_UNCLEAR


def _subjects(ends: Sequence[End]) -> Iterator[Subject]:
    for end in ends[:_MOST_ENDS]:
        if end.pid > 0:
            yield Subject(
                "process", f"pid {end.pid}", rank=end.rank, host=end.host or None, pid=end.pid
            )


def _sites(ends: Iterable[End], role: str, book: StackBook) -> Iterator[Site]:
    for end in list(ends)[:_MOST_ENDS]:
        site = book.site((end.rank,), role, end.frames)
        if site is not None:
            yield dataclasses.replace(site, age_s=end.age_s)


@words_for(Ended)
def _verdict_of_ended(about: Ended, claim: Claim) -> Words:
    first = about.first
    same = len({_how(end) for end in first}) == 1
    how = _how(first[0]) if same else "ended in different ways"
    how = how if len(first) == 1 else _of_many(how)
    told = tuple(site for site in claim.sites if site.role == "culprit")
    where = _where(first[0], told) if len(first) == 1 else ""
    return Words(
        f"{subject([end.rank for end in first])} {how}{where}.",
        tuple(_evidence(about, told)),
        (*_earlier(about), *_alternatives(about)),
        _actions(first[0]),
    )


def _of_many(how: str) -> str:
    """How one rank ended, as it is said of several."""
    verb, _, rest = how.partition(" ")
    verb = {"was": "were", "has": "have"}.get(verb, verb)
    return f"{verb} {rest}".replace("its p", "their p")


def _how(end: End) -> str:
    """How it ended, after "rank 3"."""
    if end.error:
        return f"raised {printable(end.error, _SHOWN_TEXT)}"
    if end.memory_kill is not None and end.for_memory:
        return f"was killed by the kernel for lack of memory{_within(end.memory_kill)}"
    if end.status is None:
        left = "has reached the end of its program while its peers are in calls"
        return (
            left if end.manner is Manner.LEFT else "disappeared, and no source shows how it ended"
        )
    if end.status - SIGNAL_BASE in CRASHES:
        return f"was ended by {CRASHES[end.status - SIGNAL_BASE]}"
    if end.manner is Manner.LEFT:
        return "ended with exit code 0 while its peers were in calls"
    return f"ended with exit code {end.status}"


def _within(kill: MemoryKill) -> str:
    """The figures of its cgroup, after "for lack of memory"."""
    if kill.limit:
        return f": its cgroup used up to {kill.used >> 20:,} of {kill.limit >> 20:,} MB"
    return "; its cgroup shows no limit, so the node or a parent cgroup ran out of memory"


def _where(end: End, told: Sequence[Site]) -> str:
    """Where it stood; by what others tell of it, as its log, where it left no line itself."""
    frame = shown_frame(end.frames)
    site = next((site for site in told if end.rank in site.ranks), None)
    if frame is None and site is not None:
        return f" at {printable(site.function)} ({printable(PurePath(site.file).name)}:{site.line})"
    if frame is None:
        return "" if end.error else "; its last line is unknown"
    place = f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"
    if end.age_s is None:
        return f" at {place}"
    return f"; its last known line, {end.age_s:.1f} s old, is {place}"


def _evidence(about: Ended, told: Sequence[Site]) -> Iterator[str]:
    for end in about.first[:_MOST_ENDS]:
        status = f" (exit status {end.status})" if end.error and end.status is not None else ""
        yield f"{subject([end.rank])} {_how(end)}{status}{_where(end, told)}."
    yield from _counted(about.first)
    if about.followed:
        error = next((end.error for end in about.followed if end.error), "")
        text = f": {printable(error, _SHOWN_TEXT)}" if error else ""
        verb = "was" if len(about.followed) == 1 else "were"
        ranks = subject([end.rank for end in about.followed])
        yield f"{ranks} failed or {verb} ended after it{text}"


def _counted(ends: Iterable[End]) -> Iterator[str]:
    """What the counters of cgroups say of ends that they explain, or may explain."""
    for end in list(ends)[:_MOST_ENDS]:
        kill = end.memory_kill
        if kill is not None:
            killed = f"killed {count_of(kill.kills, 'process', 'processes')} of its cgroup"
            of = "it ended" if kill.ended == 1 else f"{kill.ended} ranks of it ended"
            yield f"{subject([end.rank])}: the kernel {killed} for lack of memory as {of}."


def notes_on_kills(samples: Iterable[ProcessSample]) -> Iterator[Note]:
    """What the kernel killed next to ranks that live: one that is missing may be among it."""
    beside: defaultdict[tuple[str, MemoryKill], set[int]] = defaultdict(set)
    for sample in samples:
        if sample.memory_kill is not None and not sample.memory_kill.ended and sample.rank >= 0:
            beside[sample.host, sample.memory_kill].add(sample.rank)
    for (host, kill), ranks in beside.items():
        killed = f"the kernel killed {count_of(kill.kills, 'process', 'processes')}"
        yield Note(
            "info",
            f"memory of {printable(host, 60)}" if host else "memory",
            f"{killed} for lack of memory in the cgroup of {rank_phrase(sorted(ranks))} since its "
            f"creation{_within(kill)}. A missing rank may be one of them",
        )


def _earlier(about: Ended) -> Iterator[str]:
    if about.before:
        verb = "was" if len(about.before) == 1 else "were"
        yield (
            f"{subject(about.before)} had ended with exit code 0 before it: it may have failed "
            f"because {rank_phrase(about.before)} {verb} gone."
        )


def _alternatives(about: Ended) -> tuple[str, ...]:
    end = about.first[0]
    if not about.blamed:
        return ("All ranks ended alike: a user or a program outside the job may have ended them.",)
    if end.for_memory:
        return (
            "The kernel may have killed another process of its cgroup, and a user ended the rank.",
        )
    if end.status == _KILL:
        return ("A user or the scheduler may have sent the signal.",)
    if end.manner is Manner.LEFT:
        return ("It may have ended as intended, and its peers made a call too many.",)
    if end.manner is Manner.UNCLEAR:
        return ("An earlier failure of another rank may not be in the evidence.",)
    return ()


def _actions(end: End) -> tuple[str, ...]:
    if end.error:
        return ("Inspect that line; the errors of the other ranks follow from it.",)
    if end.manner is Manner.LEFT:
        return (
            "Find out why its program ends before its peers': uneven data, early return, exit().",
            "With uneven data: drop_last, a DistributedSampler, or DistributedDataParallel.join().",
        )
    if end.for_memory:
        return MORE_MEMORY
    if end.status == _KILL:
        return (
            "Look for the out-of-memory killer on its host: dmesg | grep -iE 'oom|killed process'.",
            "Check the memory limit of the job or its container.",
        )
    if end.manner is Manner.KILLED or end.status == _ABORT:
        return ("Inspect its core file: unhang core; and its last output: unhang logs.",)
    return ("Read its last output: unhang logs.",)
