"""Findings about ranks that keep others waiting and wait for nobody themselves.

Never joined (UH101), silent (UH103), stuck inside the enqueue (UH104). Whether a rank that never
joined skipped a call long before is for `unhang.analysis.divergence.in_group`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unhang.analysis.findings.exchanges import explain_unpaired
from unhang.analysis.matching.roots import Root
from unhang.analysis.matching.wait_graph import Edge
from unhang.analysis.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.progress import Known, Stage
from unhang.analysis.words import ACTIONS, ALTERNATIVES, subject, waiting_for
from unhang.model import DumpStatus
from unhang.report import CallSide, Confidence, Finding, Site
from unhang.wording import count_of, rank_phrase

__all__ = ["explain_absent"]

_UNLAUNCHED = (
    "The entry #{seq} is there, and the counters of these ranks stand at the call before it; they "
    "move only once the library's call has returned."
)


def explain_absent(situation: Situation, root: Root) -> Finding:
    """Explain a root made of ranks that wait for nobody."""
    if root.edge == Edge.UNKNOWN:
        return _silent(situation, root)
    if root.edge == Edge.NOT_LAUNCHED:
        return _inside_enqueue(situation, root)
    if root.edge in (Edge.UNPAIRED, Edge.ANY_SOURCE):
        return explain_unpaired(situation, root)
    return _never_joined(situation, root)


def _never_joined(situation: Situation, root: Root) -> Finding:
    waiting_call = root.waiting_calls[0]
    culprits = situation.named(root.ranks)
    distance = situation.graph.reaching(np.asarray(root.ranks, np.int64))
    victims = situation.victims(distance)
    waiting = situation.named(situation.heads.inside(waiting_call))
    label = situation.label(waiting_call)
    return Finding(
        id="",
        code="UH101",
        role="cause",
        confidence=_confidence(situation, root),
        summary=(f"{subject(culprits)} never called {label}, in which {_they_wait(waiting)}."),
        culprits=culprits,
        victims=victims,
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call),
        calls=(
            _never_called(situation, culprits, waiting_call),
            *_waiting_sides(situation, waiting_call),
        ),
        waits=situation.chain(distance),
        sites=_sites(situation, root.ranks, waiting_call),
        evidence=(
            *_last_calls(situation, root.ranks, waiting_call),
            *situation.whose_lines(root.ranks),
            _how_known(root.known),
            waiting_for(len(victims)),
        ),
        alternatives=ALTERNATIVES["UH101"],
        actions=ACTIONS["UH101"],
    )


def _never_called(situation: Situation, ranks: tuple[int, ...], waiting_call: int) -> CallSide:
    return situation.never_called(ranks, situation.row(waiting_call), "culprit")


def _waiting_sides(situation: Situation, waiting_call: int) -> tuple[CallSide, ...]:
    return situation.sides_by_row(
        situation.heads.row[situation.heads.inside(waiting_call)], "victim"
    )


def _sites(situation: Situation, culprits: tuple[int, ...], waiting_call: int) -> tuple[Site, ...]:
    return (
        *situation.sites_of_absent(culprits),
        *situation.book.sites_of_rows(
            situation.heads.row[situation.heads.inside(waiting_call)], "victim"
        ),
    )


def _last_calls(situation: Situation, ranks: tuple[int, ...], waiting_call: int) -> list[str]:
    """What each culprit called last: in the group, or at all."""
    channel = int(situation.heads.channel[waiting_call])
    sentences = []
    for rank in ranks[:8]:
        at = int(situation.standing.at(np.asarray([rank], np.int64), channel)[0])
        reach = int(situation.standing.reach[at]) if at >= 0 else -1
        number = int(situation.evidence.ranks.numbers[rank])
        sentences.append(
            f"Rank {number}: its last call in this group is #{reach}, and it is finished."
            if reach >= 0
            else f"Rank {number}: its dump shows no call in this group."
        )
    return sentences


def _how_known(known: int) -> str:
    if known >= Known.SURE:
        return "Their dumps cover that moment and do not have the call."
    if known == Known.INFERRED:
        return (
            "Their counters stand before the call; the counters were joined to the group by the "
            "order of groups, which is inferred."
        )
    return "Their dumps do not have the call, and could have left it out had it finished."


def _confidence(situation: Situation, root: Root) -> Confidence:
    """High only where everybody's dump is there and covers the moment."""
    waiting_call = root.waiting_calls[0]
    _, stages = situation.stages(waiting_call)
    complete = not (stages == Stage.UNKNOWN).any() and not situation.group(waiting_call).inferred
    return "high" if root.known >= Known.SURE and complete else "medium"


def _silent(situation: Situation, root: Root) -> Finding:
    waiting_call = root.waiting_calls[0]
    culprits = situation.named(root.ranks)
    ranks = np.asarray(root.ranks, np.int64)
    distance = situation.graph.reaching(ranks)
    victims = situation.victims(distance)
    label = situation.label(waiting_call)
    if np.isin(ranks, situation.outdated).all():
        return _outdated(situation, root, victims)
    if (
        2 * int(np.isin(situation.members(waiting_call), ranks).sum())
        > situation.group(waiting_call).size
    ):
        return _mostly_silent(situation, root, victims)
    return Finding(
        id="",
        code="UH103",
        role="cause",
        confidence="medium",
        summary=(
            f"{subject(culprits)} left no usable dump, and nobody else is missing from {label}: "
            "dead, or unable to write."
        ),
        culprits=culprits,
        victims=victims,
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call),
        calls=_waiting_sides(situation, waiting_call),
        waits=situation.chain(distance),
        sites=_sites(situation, (), waiting_call),
        evidence=(*_why_silent(situation, culprits), _everybody_else(situation, waiting_call)),
        alternatives=ALTERNATIVES["UH103"],
        actions=ACTIONS["UH103"],
    )


def _everybody_else(situation: Situation, waiting_call: int) -> str:
    inside = len(situation.heads.inside(waiting_call))
    return f"{count_of(inside, 'rank')} of {situation.group(waiting_call).size} are seen waiting in the call."


def _why_silent(situation: Situation, ranks: tuple[int, ...]) -> list[str]:
    status = {d.rank: d for d in situation.evidence.case.dumps if not d.usable}
    cut = {d.rank: d for d in situation.evidence.dumps if d.status is DumpStatus.TRUNCATED}
    sentences = []
    for rank in ranks[:8]:
        if rank in status:
            dump = status[rank]
            sentences.append(f"The dump of rank {rank} ({dump.source}) is {dump.status.value}.")
        elif rank in cut:
            sentences.append(f"The dump of rank {rank} ({cut[rank].source}) is cut short.")
        else:
            sentences.append(f"There is no dump of rank {rank}.")
    return sentences


def _mostly_silent(situation: Situation, root: Root, victims: tuple[int, ...]) -> Finding:
    """Where most dumps are missing, that they are is no evidence against anybody."""
    waiting_call, ranks = root.waiting_calls[0], situation.named(root.ranks)
    return replace(
        _untold(situation, waiting_call, victims),
        summary=(
            f"Not enough evidence: {_they_wait(victims)}, and most of those who may be missing "
            f"from {situation.label(waiting_call)} left no usable dump."
        ),
        evidence=(f"No usable dump of {rank_phrase(ranks)}.", *_why_silent(situation, ranks)[:2]),
        actions=ACTIONS["UH103"],
    )


def _outdated(situation: Situation, root: Root, victims: tuple[int, ...]) -> Finding:
    """Where the only dumps are old, what they lack is no evidence against anybody."""
    waiting_call, ranks = root.waiting_calls[0], situation.named(root.ranks)
    return replace(
        _untold(situation, waiting_call, victims),
        summary=(
            f"Not enough evidence: {_they_wait(victims)} in {situation.label(waiting_call)}, and the "
            f"only dumps of {rank_phrase(ranks)} are older than that."
        ),
        evidence=("Their peers finished calls that need everybody and that these dumps lack.",),
        alternatives=("The dumps may come from two incidents, or from moments far apart.",),
        actions=("Take all dumps at one moment: unhang dump, or run under unhang run.",),
    )


def _they_wait(ranks: tuple[int, ...]) -> str:
    return f"{rank_phrase(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"


def _untold(situation: Situation, waiting_call: int, victims: tuple[int, ...]) -> Finding:
    """That ranks wait in a call, and that nobody can be named for it."""
    return Finding(
        id="",
        code="UH901",
        role="observation",
        confidence="low",
        summary="",
        victims=victims,
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call),
        calls=_waiting_sides(situation, waiting_call),
        sites=_sites(situation, (), waiting_call),
    )


def _inside_enqueue(situation: Situation, root: Root) -> Finding:
    waiting_call = root.waiting_calls[0]
    culprits = situation.named(root.ranks)
    distance = situation.graph.reaching(np.asarray(root.ranks, np.int64))
    rows: Ints = situation.heads.row[np.asarray(root.ranks, np.int64)]
    return Finding(
        id="",
        code="UH104",
        role="cause",
        confidence=_confidence(situation, root),
        summary=(
            f"{subject(culprits)} entered {situation.label(waiting_call)} and never came out of the "
            "enqueue: the call is recorded, but was not launched."
        ),
        culprits=culprits,
        victims=situation.victims(distance),
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call),
        calls=(
            *situation.sides_by_row(rows, "culprit"),
            *(
                side
                for side in _waiting_sides(situation, waiting_call)
                if not set(side.ranks) <= set(culprits)
            ),
        ),
        waits=situation.chain(distance),
        sites=(
            *situation.book.sites_of_rows(rows, "culprit"),
            *situation.book.sites_of_rows(_others(situation, waiting_call, root.ranks), "victim"),
        ),
        evidence=(_UNLAUNCHED.format(seq=situation.seq(waiting_call)),),
        alternatives=ALTERNATIVES["UH104"],
        actions=ACTIONS["UH104"],
    )


def _others(situation: Situation, waiting_call: int, ranks: tuple[int, ...]) -> Ints:
    inside = situation.heads.inside(waiting_call)
    others: Ints = situation.heads.row[inside[~np.isin(inside, ranks)]]
    return others
