"""What follows from NCCL's RAS: next to the claims of other sources, and where there are none.

One answer is of one moment, and a job that moves shows ranks behind as well; so what it says alone
is of medium confidence at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.rule import Observer, Rule, Unless
from unhang.analysis.rules.silent_rank import SILENT_RANK
from unhang.analysis.rules.starved import KIND as STARVED
from unhang.analysis.rules.telling import Words, adding_for, subject, words_for
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Seeing, Stance, Weighed
from unhang.analysis.sources.ras import Lagging, RasSays
from unhang.kinds import INSUFFICIENT_EVIDENCE
from unhang.ras import GpuProcess
from unhang.report import GroupRef, Subject
from unhang.wording import count_of, printable, rank_phrase

_MOST_SIDES = 8
_MOST = 8
_AGAIN = "Ask RAS again: the counts of a moving job grow."
_SAME = "A second answer shows the same counts."
_DUMPS = "Dump the recorders of all ranks, which name calls and lines: unhang dump."


class _Counter(NamedTuple):
    """Who counted the calls of ranks, and what such counts are worth.

    Attributes:
        name, whose: As a label, and within a sentence.
        done: What ranks have done with the calls that it counts.
        moves: Why ranks of a job that moves may differ.
        shows: What level counts do not show.
        actions: What to do next.
    """

    name: str
    whose: str
    done: str
    moves: str
    shows: str
    actions: tuple[str, ...]


_RAS: Final = _Counter(
    "NCCL RAS",
    "NCCL's RAS",
    "launched",
    "The job may move: RAS counts launches at moments that differ by rank.",
    "RAS counts launches; it does not show whether they have finished.",
    (_AGAIN, _DUMPS),
)
_INSPECTOR: Final = _Counter(
    "NCCL Inspector",
    "NCCL Inspector",
    "ended",
    "The job may move, or a process that was ended may not have written its last calls.",
    "Inspector records calls that have ended: of one that hangs it has nothing.",
    (_DUMPS,),
)


def _counter(told: RasSays | RasLagging | RasLevel) -> _Counter:
    return _INSPECTOR if told.of_ended else _RAS


class RasLagging(Struct, frozen=True):
    """Ranks that have launched fewer calls than their peers, and wait nowhere.

    Attributes:
        worst: Where they are behind, and others ahead.
        n_others: On how many other counts.
        stands: A second answer shows the same counts.
        of_ended: The counts are of calls that ended, by NCCL Inspector.
    """

    worst: Lagging
    n_others: int
    stands: bool
    of_ended: bool = False


class RasUnheard(Struct, frozen=True):
    """Ranks whose processes do not answer; `dead`: NCCL has given them up."""

    ranks: tuple[int, ...]
    dead: tuple[int, ...]


class RasLevel(Struct, frozen=True):
    """RAS names no rank: all have launched the same, or those who are behind wait as well.

    Attributes:
        n_ranks: How many ranks it knows of.
        circle: Ranks that are behind on one communicator and ahead on another.
        unnamed: Processes that do not answer and whose rank nothing tells.
        late: Ranks that are behind, as ranks of a job that moves are for a moment.
        of_ended: The counts are of calls that ended, by NCCL Inspector.
        unseen: Of how many ranks it has no file.
    """

    n_ranks: int
    circle: tuple[int, ...]
    unnamed: int
    late: tuple[int, ...] = ()
    of_ended: bool = False
    unseen: int = 0


class RasGone(Struct, frozen=True):
    """Processes that NCCL has given up; nothing tells their ranks."""

    processes: tuple[GpuProcess, ...]


def _agrees(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """What RAS says of the culprits of a claim."""
    says = facts.ras
    if says is None or not claim.culprits:
        return
    named = {*says.ranks, *says.unheard}
    if not named:
        return
    if set(claim.culprits) <= named:
        yield says, Bearing.RAS_AGREES
    else:
        ahead = set(claim.culprits) & set(says.waiting)
        yield says, Bearing.RAS_DENIES if ahead else Bearing.RAS_BESIDE


def _causes(facts: CaseFacts) -> list[Claim]:
    """The causes that RAS alone shows."""
    return [claim for claim in _claims(facts) if claim.is_cause]


def _given_up(facts: CaseFacts) -> list[Claim]:
    """Ranks that are behind for a moment may be so in a job that moves; not those given up."""
    says = facts.ras
    return _causes(facts) if says is not None and (says.dead or says.gone) else []


def _claims(facts: CaseFacts) -> list[Claim]:
    """What RAS alone amounts to; nothing where it was not asked."""
    says = facts.ras
    if says is None:
        return []
    if says.unheard:
        return [_unheard(says)]
    if says.gone:
        return [_gone(says)]
    if says.ranks and not says.moves:
        return [_lagging(says)]
    behind = {rank for each in says.lagging for rank, _ in each.counts}
    circle = tuple(sorted(behind & set(says.waiting)))
    unseen = says.n_ranks - len(says.places) if says.of_ended else 0
    about = RasLevel(says.n_ranks, circle, says.unnamed, says.ranks, says.of_ended, unseen)
    return [
        Claim(rests_on="ras", kind=INSUFFICIENT_EVIDENCE, about=about, doubts=(Doubt.NOBODY_NAMED,))
    ]


# That a rank is behind says nothing of what it is short of.
_BESIDE: Final = Observer(sees=_agrees, but=(STARVED,), apart="ras")

CAUSES: Final = Rule(unless=Unless.ANSWER, tells=_causes, observers=(_BESIDE,))
GIVEN_UP: Final = Rule(unless=Unless.CAUSE, tells=_given_up)
ALL: Final = Rule(unless=Unless.CLAIM, tells=_claims)


def _unheard(says: RasSays) -> Claim:
    return Claim(
        kind=SILENT_RANK,
        rests_on="ras",
        about=RasUnheard(says.unheard, says.dead),
        culprits=says.unheard,
        victims=tuple(rank for rank in says.waiting if rank not in says.unheard),
        subjects=_subjects(says, says.unheard),
        doubts=(Doubt.NOTHING_SEEN,),
    )


def _gone(says: RasSays) -> Claim:
    from unhang.logs.rules.known import RAS_DEAD

    return Claim(
        kind=RAS_DEAD.kind,
        rests_on="ras",
        about=RasGone(says.gone),
        role="cause",
        subjects=tuple(
            Subject("process", f"{p.host}:{p.pid}", role="culprit", host=p.host, pid=p.pid)
            for p in says.gone[:_MOST_SIDES]
        ),
        doubts=(Doubt.NOTHING_SEEN,),
    )


def _lagging(says: RasSays) -> Claim:
    """Ranks that are behind: others wait for them where a second answer shows that all stand.

    One answer tells of launches alone: it does not show that any rank waits.
    """
    from unhang.logs.rules.known import RAS_MISMATCH

    own = [each for each in says.lagging if {rank for rank, _ in each.counts} & set(says.ranks)]
    worst = max(own, key=lambda each: (len(each.ahead), each.size))
    return Claim(
        kind=NEVER_JOINED if says.stands else RAS_MISMATCH.kind,
        role="cause",
        rests_on="ras",
        about=RasLagging(worst, len(own) - 1, says.stands, says.of_ended),
        culprits=says.ranks,
        victims=tuple(rank for rank in says.waiting if rank not in says.ranks),
        subjects=_subjects(says, says.ranks),
        group=GroupRef(worst.communicator, "", worst.size),
        op=worst.op or None,
        doubts=(Doubt.ENDS_RECORDED,)
        if says.of_ended
        else (Doubt.COUNTERS_ONLY, *(() if says.stands else (Doubt.ONE_MOMENT,))),
    )


def _subjects(says: RasSays, ranks: Sequence[int]) -> tuple[Subject, ...]:
    """The processes of some ranks."""
    known = {rank: says.places[rank] for rank in ranks[:_MOST_SIDES] if rank in says.places}
    return tuple(
        Subject(
            kind="process",
            id=f"{p.host}:{p.pid}",
            role="culprit",
            rank=rank,
            host=p.host,
            pid=p.pid,
        )
        for rank, p in known.items()
    )


# ------------------------------------------------------------------ words


def _counts(each: Lagging, by: _Counter) -> str:
    what = f"{printable(each.op)} calls" if each.op else "collective calls"
    had = ", ".join(f"rank {rank}: {count:,}" for rank, count in each.counts[:_MOST])
    return (
        f"On communicator {printable(each.communicator)} of {each.size:,} ranks, "
        f"{rank_phrase(each.ahead) if each.ahead else 'others'} {by.done} {each.most:,} {what}; "
        f"{had}."
    )


@words_for(RasLagging)
def _verdict_of_ras_lagging(about: RasLagging, claim: Claim) -> Words:
    verb, lead = ("has", "leads") if len(claim.culprits) == 1 else ("have", "lead")
    op = printable(about.worst.op) if about.worst.op else "collective"
    others = count_of(about.n_others, "other count")
    more = (f"The same holds for {others}.",) if about.n_others else ()
    its, them = ("its", "it") if len(claim.culprits) == 1 else ("their", "them")
    peers = f"the ranks that wait for {them}" if about.stands else f"{its} peers"
    by = _counter(about)
    return Words(
        f"{subject(claim.culprits)} {verb} {by.done} fewer {op} calls than {peers}, "
        f"and {lead} in no other count ({by.name}).",
        (_counts(about.worst, by), *more, *((_SAME,) if about.stands else ())),
        alternatives=() if about.stands else (by.moves,),
        actions=by.actions,
    )


@words_for(RasUnheard)
def _verdict_of_ras_unheard(about: RasUnheard, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    answer = "does not answer" if len(about.ranks) == 1 else "do not answer"
    dead = (f"NCCL considers {rank_phrase(about.dead)} dead.",) if about.dead else ()
    return Words(
        f"{subject(about.ranks)} {answer} NCCL's RAS: dead, stopped, or cut off.",
        dead or ("NCCL does not consider them dead yet.",),
        alternatives=("Only the network that RAS uses may be down.",),
        actions=("Inspect these processes: do they run, are they stopped, or exiting?", _AGAIN),
    )


@words_for(RasGone)
def _verdict_of_ras_gone(about: RasGone, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    shown = [
        f"process {p.pid} on {printable(p.host)} (GPU {p.gpu})" for p in about.processes[:_MOST]
    ]
    one = len(about.processes) == 1
    have, their, rank = ("it has", "its", "rank") if one else ("they have", "their", "ranks")
    return Words(
        f"NCCL's RAS considers {', '.join(shown)} dead: {have} not answered for long.",
        (f"Nothing here shows {their} {rank}.",),
        alternatives=("Only the network that RAS uses may be down.",),
        actions=("Inspect these processes: do they run, are they stopped, or exiting?", _AGAIN),
    )


@words_for(RasLevel)
def _verdict_of_ras_level(about: RasLevel, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    by = _counter(about)
    if about.circle:
        said = f"{rank_phrase(about.circle)} are behind on one communicator and ahead on another."
    elif about.late:
        verb = "is" if len(about.late) == 1 else "are"
        who = rank_phrase(about.late)
        said = f"{who} {verb} no further behind than ranks of a moving job may be."
    elif about.unnamed:
        processes = count_of(about.unnamed, "process", "processes")
        said = f"{processes} did not answer, and nothing shows their ranks."
    elif about.unseen:
        said = f"{about.unseen:,} of {count_of(about.n_ranks, 'rank')} left no file."
    elif not about.n_ranks:
        said = "it reports no communicator."
    else:
        have = "has" if about.n_ranks == 1 else "have"
        said = f"{count_of(about.n_ranks, 'rank')} {have} {by.done} the same calls everywhere."
    return Words(f"Not enough evidence: by {by.whose}, {said}", (by.shows,), actions=by.actions)


@adding_for(RasSays)
def _adding_ras_says(says: RasSays, words: Words, claim: Claim, weighed: Weighed) -> Words:
    by = _counter(says)
    if weighed.bearing.stance is Stance.CONTRADICTS:
        ahead = rank_phrase(sorted(set(claim.culprits) & set(says.waiting)))
        told = f"{by.name}: {ahead} {by.done} more calls than others, which are behind."
    elif set(claim.culprits) & set(says.unheard):
        answer = "does not answer" if len(says.unheard) == 1 else "do not answer"
        told = f"{by.name}: {rank_phrase(says.unheard)} {answer}."
    else:
        lagging = [each for each in says.lagging if {r for r, _ in each.counts} & set(says.ranks)]
        told = f"{by.name}: {_counts(lagging[0], by)}" if lagging else f"{by.name} was asked."
    return replace(words, evidence=(*words.evidence, told))
