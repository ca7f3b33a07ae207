"""Words for what NCCL's RAS says."""

from __future__ import annotations

from msgspec.structs import replace

from unhang.analysis.claims import Claim, Stance, Weighed
from unhang.analysis.lives.by_ras import RasGone, RasLagging, RasLevel, RasUnheard
from unhang.analysis.rules.telling import Words, adding_for, subject, words_for
from unhang.analysis.sources.ras import Lagging, RasSays
from unhang.wording import count_of, printable, rank_phrase

__all__: list[str] = []

_MOST = 8
_AGAIN = "Ask RAS again: counts that grow are those of a job that moves."
_SAME = "A second answer shows the same counts."
_DUMPS = "Dump the recorders of all ranks, which name calls and lines: unhang dump."


def _counts(each: Lagging) -> str:
    what = f"{printable(each.op)} calls" if each.op else "collective calls"
    had = ", ".join(f"rank {rank} {count:,}" for rank, count in each.counts[:_MOST])
    return (
        f"On communicator {printable(each.communicator)} of {each.size:,} ranks, "
        f"{rank_phrase(each.ahead) if each.ahead else 'others'} launched {each.most:,} {what}; "
        f"{had}."
    )


@words_for(RasLagging)
def _verdict_of_ras_lagging(about: RasLagging, claim: Claim) -> Words:
    verb, are = ("has", "is") if len(claim.culprits) == 1 else ("have", "are")
    op = printable(about.worst.op) if about.worst.op else "collective"
    more = (f"So on {count_of(about.n_others, 'other count')}.",) if about.n_others else ()
    its, them = ("its", "it") if len(claim.culprits) == 1 else ("their", "them")
    others = f"those who wait for {them}" if about.stands else f"{its} peers"
    moment = "The job may move: RAS counts launches at moments that differ by rank."
    return Words(
        f"{subject(claim.culprits)} {verb} launched fewer {op} calls than {others}, "
        f"and {are} ahead nowhere (NCCL RAS).",
        (_counts(about.worst), *more, *((_SAME,) if about.stands else ())),
        alternatives=() if about.stands else (moment,),
        actions=(_AGAIN, _DUMPS),
    )


@words_for(RasUnheard)
def _verdict_of_ras_unheard(about: RasUnheard, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    answer = "does not answer" if len(about.ranks) == 1 else "do not answer"
    dead = (f"NCCL has given up {rank_phrase(about.dead)}.",) if about.dead else ()
    return Words(
        f"{subject(about.ranks)} {answer} NCCL's RAS: dead, stopped, or cut off.",
        dead or ("NCCL has not given them up yet.",),
        alternatives=("Only the network that RAS uses may be down.",),
        actions=("Look at these processes: are they there, stopped, or exiting?", _AGAIN),
    )


@words_for(RasGone)
def _verdict_of_ras_gone(about: RasGone, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    shown = [
        f"process {p.pid} on {printable(p.host)} (GPU {p.gpu})" for p in about.processes[:_MOST]
    ]
    verb = "has" if len(about.processes) == 1 else "have"
    return Words(
        f"NCCL's RAS holds {', '.join(shown)} for dead: it {verb} not answered for long.",
        ("Nothing here tells of which rank it is.",),
        alternatives=("Only the network that RAS uses may be down.",),
        actions=("Look at these processes: are they there, stopped, or exiting?", _AGAIN),
    )


@words_for(RasLevel)
def _verdict_of_ras_level(about: RasLevel, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    if about.circle:
        said = f"{rank_phrase(about.circle)} are behind on one communicator and ahead on another."
    elif about.late:
        verb = "is" if len(about.late) == 1 else "are"
        who = rank_phrase(about.late)
        said = f"{who} {verb} behind by no more than ranks of a job that moves may be."
    elif about.unnamed:
        processes = count_of(about.unnamed, "process", "processes")
        said = f"{processes} did not answer, and nothing tells their ranks."
    elif not about.n_ranks:
        said = "nothing is told of any communicator."
    else:
        said = f"{count_of(about.n_ranks, 'rank')} have launched the same calls everywhere."
    return Words(
        f"Not enough evidence: by NCCL's RAS, {said}",
        ("RAS counts launches; whether they have finished it does not tell.",),
        actions=(_AGAIN, _DUMPS),
    )


@adding_for(RasSays)
def _adding_ras_says(says: RasSays, words: Words, claim: Claim, weighed: Weighed) -> Words:
    if weighed.stance is Stance.CONTRADICTS:
        ahead = rank_phrase(sorted(set(claim.culprits) & set(says.waiting)))
        told = f"NCCL RAS: {ahead} launched more calls than others, who are behind."
    elif set(claim.culprits) & set(says.unheard):
        told = f"NCCL RAS: {rank_phrase(says.unheard)} do not answer."
    else:
        lagging = [each for each in says.lagging if {r for r, _ in each.counts} & set(says.ranks)]
        told = f"NCCL RAS: {_counts(lagging[0])}" if lagging else "NCCL RAS was asked."
    return replace(words, evidence=(*words.evidence, told))
