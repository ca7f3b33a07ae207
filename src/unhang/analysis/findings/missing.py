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
from unhang.analysis.situation import Picture
from unhang.analysis.state.index import Ints
from unhang.analysis.state.progress import Known, Place
from unhang.analysis.words import ACTIONS, ALTERNATIVES, subject, waiting_for
from unhang.model import DumpStatus
from unhang.report import CallSide, Confidence, Finding, Site
from unhang.wording import count_of, rank_phrase

__all__ = ["explain_absent"]

_UNLAUNCHED = (
    "The entry #{seq} is there, and the counters of these ranks stand at the call before it; they "
    "move only once the library's call has returned."
)


def explain_absent(picture: Picture, root: Root) -> Finding:
    """Explain a root made of ranks that wait for nobody."""
    if root.edge == Edge.UNKNOWN:
        return _silent(picture, root)
    if root.edge == Edge.NOT_LAUNCHED:
        return _inside_enqueue(picture, root)
    if root.edge in (Edge.UNPAIRED, Edge.ANY_SOURCE):
        return explain_unpaired(picture, root)
    return _never_joined(picture, root)


def _never_joined(picture: Picture, root: Root) -> Finding:
    unit = root.units[0]
    culprits = picture.named(root.ranks)
    distance = picture.graph.reaching(np.asarray(root.ranks, np.int64))
    victims = picture.victims(distance)
    waiting = picture.named(picture.heads.inside(unit))
    label = picture.label(unit)
    return Finding(
        id="",
        code="UH101",
        role="cause",
        confidence=_confidence(picture, root),
        summary=(f"{subject(culprits)} never called {label}, in which {_they_wait(waiting)}."),
        culprits=culprits,
        victims=victims,
        group=picture.group_ref(unit),
        seq=picture.seq(unit),
        op=picture.op(unit),
        calls=(_never_called(picture, culprits, unit), *_waiting_sides(picture, unit)),
        waits=picture.chain(distance),
        sites=_sites(picture, root.ranks, unit),
        evidence=(
            *_last_calls(picture, root.ranks, unit),
            *picture.whose_lines(root.ranks),
            _how_known(root.known),
            waiting_for(len(victims)),
        ),
        alternatives=ALTERNATIVES["UH101"],
        actions=ACTIONS["UH101"],
    )


def _never_called(picture: Picture, ranks: tuple[int, ...], unit: int) -> CallSide:
    return picture.never_called(ranks, picture.row(unit), "culprit")


def _waiting_sides(picture: Picture, unit: int) -> tuple[CallSide, ...]:
    return picture.sides_by_row(picture.heads.row[picture.heads.inside(unit)], "victim")


def _sites(picture: Picture, culprits: tuple[int, ...], unit: int) -> tuple[Site, ...]:
    return (
        *picture.sites_of_absent(culprits),
        *picture.book.sites_of_rows(picture.heads.row[picture.heads.inside(unit)], "victim"),
    )


def _last_calls(picture: Picture, ranks: tuple[int, ...], unit: int) -> list[str]:
    """What each culprit called last: in the group, or at all."""
    channel = int(picture.heads.channel[unit])
    sentences = []
    for rank in ranks[:8]:
        at = int(picture.standing.at(np.asarray([rank], np.int64), channel)[0])
        reach = int(picture.standing.reach[at]) if at >= 0 else -1
        number = int(picture.evidence.ranks.numbers[rank])
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


def _confidence(picture: Picture, root: Root) -> Confidence:
    """High only where everybody's dump is there and covers the moment."""
    unit = root.units[0]
    _, places = picture.places(unit)
    complete = not (places == Place.UNKNOWN).any() and not picture.group(unit).inferred
    return "high" if root.known >= Known.SURE and complete else "medium"


def _silent(picture: Picture, root: Root) -> Finding:
    unit = root.units[0]
    culprits = picture.named(root.ranks)
    ranks = np.asarray(root.ranks, np.int64)
    distance = picture.graph.reaching(ranks)
    victims = picture.victims(distance)
    label = picture.label(unit)
    if np.isin(ranks, picture.outdated).all():
        return _outdated(picture, root, victims)
    if 2 * int(np.isin(picture.members(unit), ranks).sum()) > picture.group(unit).size:
        return _mostly_silent(picture, root, victims)
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
        group=picture.group_ref(unit),
        seq=picture.seq(unit),
        op=picture.op(unit),
        calls=_waiting_sides(picture, unit),
        waits=picture.chain(distance),
        sites=_sites(picture, (), unit),
        evidence=(*_why_silent(picture, culprits), _everybody_else(picture, unit)),
        alternatives=ALTERNATIVES["UH103"],
        actions=ACTIONS["UH103"],
    )


def _everybody_else(picture: Picture, unit: int) -> str:
    inside = len(picture.heads.inside(unit))
    return f"{count_of(inside, 'rank')} of {picture.group(unit).size} are seen waiting in the call."


def _why_silent(picture: Picture, ranks: tuple[int, ...]) -> list[str]:
    status = {d.rank: d for d in picture.evidence.case.dumps if not d.usable}
    cut = {d.rank: d for d in picture.evidence.dumps if d.status is DumpStatus.TRUNCATED}
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


def _mostly_silent(picture: Picture, root: Root, victims: tuple[int, ...]) -> Finding:
    """Where most dumps are missing, that they are is no evidence against anybody."""
    unit, ranks = root.units[0], picture.named(root.ranks)
    return replace(
        _untold(picture, unit, victims),
        summary=(
            f"Not enough evidence: {_they_wait(victims)}, and most of those who may be missing "
            f"from {picture.label(unit)} left no usable dump."
        ),
        evidence=(f"No usable dump of {rank_phrase(ranks)}.", *_why_silent(picture, ranks)[:2]),
        actions=ACTIONS["UH103"],
    )


def _outdated(picture: Picture, root: Root, victims: tuple[int, ...]) -> Finding:
    """Where the only dumps are old, what they lack is no evidence against anybody."""
    unit, ranks = root.units[0], picture.named(root.ranks)
    return replace(
        _untold(picture, unit, victims),
        summary=(
            f"Not enough evidence: {_they_wait(victims)} in {picture.label(unit)}, and the "
            f"only dumps of {rank_phrase(ranks)} are older than that."
        ),
        evidence=("Their peers finished calls that need everybody and that these dumps lack.",),
        alternatives=("The dumps may come from two incidents, or from moments far apart.",),
        actions=("Take all dumps at one moment: unhang dump, or run under unhang run.",),
    )


def _they_wait(ranks: tuple[int, ...]) -> str:
    return f"{rank_phrase(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"


def _untold(picture: Picture, unit: int, victims: tuple[int, ...]) -> Finding:
    """That ranks wait in a call, and that nobody can be named for it."""
    return Finding(
        id="",
        code="UH901",
        role="observation",
        confidence="low",
        summary="",
        victims=victims,
        group=picture.group_ref(unit),
        seq=picture.seq(unit),
        op=picture.op(unit),
        calls=_waiting_sides(picture, unit),
        sites=_sites(picture, (), unit),
    )


def _inside_enqueue(picture: Picture, root: Root) -> Finding:
    unit = root.units[0]
    culprits = picture.named(root.ranks)
    distance = picture.graph.reaching(np.asarray(root.ranks, np.int64))
    rows: Ints = picture.heads.row[np.asarray(root.ranks, np.int64)]
    return Finding(
        id="",
        code="UH104",
        role="cause",
        confidence=_confidence(picture, root),
        summary=(
            f"{subject(culprits)} entered {picture.label(unit)} and never came out of the "
            "enqueue: the call is recorded, but was not launched."
        ),
        culprits=culprits,
        victims=picture.victims(distance),
        group=picture.group_ref(unit),
        seq=picture.seq(unit),
        op=picture.op(unit),
        calls=(
            *picture.sides_by_row(rows, "culprit"),
            *(
                side
                for side in _waiting_sides(picture, unit)
                if not set(side.ranks) <= set(culprits)
            ),
        ),
        waits=picture.chain(distance),
        sites=(
            *picture.book.sites_of_rows(rows, "culprit"),
            *picture.book.sites_of_rows(_others(picture, unit, root.ranks), "victim"),
        ),
        evidence=(_UNLAUNCHED.format(seq=picture.seq(unit)),),
        alternatives=ALTERNATIVES["UH104"],
        actions=ACTIONS["UH104"],
    )


def _others(picture: Picture, unit: int, ranks: tuple[int, ...]) -> Ints:
    inside = picture.heads.inside(unit)
    others: Ints = picture.heads.row[inside[~np.isin(inside, ranks)]]
    return others
