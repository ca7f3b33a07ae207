"""Findings about calls in which everybody is and that still do not move.

Members that disagree (UH201 to UH204), nobody to blame (UH401), only some out of it (UH402), or a
device that has stopped while its host went on (UH105).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unhang.analysis.findings.devices import behind_on_device, lags_of, never_started
from unhang.analysis.matching.collectives import Disagreement, Side
from unhang.analysis.matching.roots import Root
from unhang.analysis.situation import Picture
from unhang.analysis.state.index import Ints
from unhang.analysis.state.ops import rule_of
from unhang.analysis.state.progress import Place
from unhang.analysis.words import ACTIONS, ALTERNATIVES, subject, waiting_for
from unhang.report import CallSide, Confidence, Finding
from unhang.wording import count_of, rank_phrase

__all__ = ["explain_disagreement", "explain_joined"]

_WHAT = {
    "UH201": "made different calls under number",
    "UH202": "disagree about the sizes of",
    "UH203": "disagree about the dtypes of",
    "UH204": "send and receive different amounts in",
}


def explain_disagreement(picture: Picture, disagreement: Disagreement) -> Finding:
    """Explain a call about which its members disagree."""
    unit = disagreement.unit
    culprits = disagreement.odd_ranks
    node = np.asarray([picture.graph.n_ranks + unit], np.int64)
    distance = picture.graph.reaching(node)
    involved = sorted({rank for side in disagreement.sides for rank in side.ranks})
    victims = sorted({*picture.victims(distance), *involved} - set(culprits))
    return Finding(
        id="",
        code=disagreement.code,
        role="cause",
        confidence=_agreement_confidence(picture, disagreement),
        summary=_mismatch_sentence(picture, disagreement),
        culprits=culprits,
        victims=tuple(victims),
        group=picture.group_ref(unit),
        seq=picture.seq(unit),
        op=picture.op(unit)
        if disagreement.code != "UH201"
        else _majority_op(picture, disagreement),
        calls=tuple(_sides(picture, disagreement)),
        waits=picture.chain(distance),
        sites=tuple(
            site
            for side in disagreement.sides[:6]
            for site in picture.book.sites_of_rows(
                _rows(picture, unit, side),
                "culprit" if set(side.ranks) <= set(culprits) else "victim",
            )
        ),
        evidence=tuple(_mismatch_evidence(disagreement)),
        alternatives=ALTERNATIVES[disagreement.code],
        actions=ACTIONS[disagreement.code],
    )


def _rows(picture: Picture, unit: int, side: Side) -> Ints:
    rows = picture.matched.of(unit)
    return rows[np.isin(picture.evidence.case.calls.rank[rows], side.ranks)]


def _majority_op(picture: Picture, disagreement: Disagreement) -> str:
    case = picture.evidence.case
    side = disagreement.majority or disagreement.sides[0]
    return case.names[int(case.calls.name[side.row])].op


def _sides(picture: Picture, disagreement: Disagreement) -> list[CallSide]:
    culprits = set(disagreement.odd_ranks)
    ordered = sorted(disagreement.sides[:8], key=lambda side: not set(side.ranks) <= culprits)
    return [
        picture.side(side.ranks, side.row, "culprit" if set(side.ranks) <= culprits else "peer")
        for side in ordered
    ]


def _mismatch_sentence(picture: Picture, disagreement: Disagreement) -> str:
    label = picture.label(disagreement.unit)
    if disagreement.code == "UH201":
        case = picture.evidence.case
        said = "; ".join(
            f"{rank_phrase(side.ranks)}: {case.names[int(case.calls.name[side.row])].op}"
            for side in disagreement.sides[:4]
        )
        group = picture.group(disagreement.unit).label
        return (
            f"Members of {group} made different calls as #{picture.seq(disagreement.unit)}: {said}."
        )
    who = (
        rank_phrase(disagreement.odd_ranks) + " against " + rank_phrase(disagreement.majority.ranks)
        if disagreement.majority
        else " against ".join(rank_phrase(side.ranks) for side in disagreement.sides[:3])
    )
    return f"Members {_WHAT[disagreement.code]} {label}: {who}."


def _mismatch_evidence(disagreement: Disagreement) -> list[str]:
    sentences = []
    if disagreement.totals:
        sent, received = disagreement.totals
        sentences.append(f"All members together send {sent:,} and receive {received:,} elements.")
    if disagreement.majority is None:
        sentences.append("No side has a majority, so neither is blamed.")
    else:
        known = sum(len(side.ranks) for side in disagreement.sides)
        sentences.append(f"{len(disagreement.majority.ranks)} of {known} members agree.")
    return sentences


def _agreement_confidence(picture: Picture, disagreement: Disagreement) -> Confidence:
    _, places = picture.places(disagreement.unit)
    unseen = (places == Place.UNKNOWN).any() or picture.group(disagreement.unit).inferred
    return "medium" if unseen or disagreement.majority is None else "high"


def explain_joined(picture: Picture, roots: Sequence[Root]) -> list[Finding]:
    """Explain calls in which all members are and agree.

    A stopped device is a finding of its own; the rest is told together, the call with most
    victims first.
    """
    found, stuck = [], []
    for root in roots:
        stopped = behind_on_device(picture, np.asarray(root.ranks, np.int64))
        unstarted = never_started(picture, np.asarray(root.ranks, np.int64))
        if len(stopped):
            found.append(_device_behind(picture, root.units[0], stopped))
        elif len(unstarted):
            found.append(_never_started(picture, root.units[0], unstarted))
        else:
            stuck.append(root)
    if stuck:
        found.append(_not_moving(picture, stuck))
    return found


def _not_moving(picture: Picture, roots: Sequence[Root]) -> Finding:
    def weight(root: Root) -> tuple[int, int]:
        return len(root.ranks), -root.units[0]

    units = [u for root in sorted(roots, key=weight, reverse=True) for u in root.units]
    unit, inside = units[0], np.unique([rank for root in roots for rank in root.ranks])
    distance = picture.graph.reaching(picture.graph.n_ranks + np.asarray(units, np.int64))
    out = picture.at_place(unit, Place.FINISHED) if unit < picture.heads.n_collective else ()
    code = "UH402" if out else "UH401"
    culprits = _left_behind(picture, unit, out)
    victims = tuple(rank for rank in picture.victims(distance) if rank not in culprits)
    rows: Ints = picture.heads.row[inside]
    return Finding(
        id="",
        code=code,
        role="cause",
        confidence="medium",
        summary=_not_moving_sentence(picture, unit, out) + _and_others(units),
        culprits=culprits,
        victims=victims,
        group=picture.group_ref(unit),
        seq=picture.seq(unit),
        op=picture.op(unit),
        calls=picture.sides_by_row(rows, "culprit" if culprits else "victim"),
        sites=picture.book.sites_of_rows(rows, "culprit" if culprits else "victim"),
        evidence=(
            waiting_for(len(victims)),
            *_started(picture, unit),
            *(f"Also stuck with everybody in it: {picture.label(other)}." for other in units[1:5]),
        ),
        alternatives=ALTERNATIVES[code],
        actions=ACTIONS[code],
    )


def _left_behind(picture: Picture, unit: int, out: Sequence[int]) -> tuple[int, ...]:
    """The few who did not come out of what most came out of, where they were needed for that.

    They were if the call needs everybody, or if those who are out finished a later one that does.
    """
    stuck = picture.named(picture.heads.inside(unit))
    few = 2 * len(out) > picture.group(unit).size and len(out) > len(stuck)
    return stuck if out and few and _needed(picture, unit) else ()


def _needed(picture: Picture, unit: int) -> bool:
    case, standing = picture.evidence.case, picture.standing
    if rule_of(case.names[int(case.calls.name[picture.row(unit)])].op).synchronising:
        return True
    at = standing.at(picture.members(unit), int(picture.heads.channel[unit]))
    return bool((standing.last_sync[at[at >= 0]] > int(picture.heads.seq[unit])).any())


def _not_moving_sentence(picture: Picture, unit: int, out: tuple[int, ...]) -> str:
    label, stuck = picture.label(unit), picture.named(picture.heads.inside(unit))
    if out:
        return f"{subject(out)} came out of {label}, {rank_phrase(stuck)} did not."
    if unit >= picture.heads.n_collective:
        return f"Both sides are in {label} of {rank_phrase(stuck)}, and it does not move."
    return f"All {picture.group(unit).size} members are in {label}, and it does not move."


def _and_others(units: Sequence[int]) -> str:
    others = len(units) - 1
    return f" So do {count_of(others, 'other call')}." if others else ""


def _started(picture: Picture, unit: int) -> list[str]:
    """Who started, where the recorder had timing on."""
    calls = picture.evidence.case.calls
    rows = picture.heads.row[picture.heads.inside(unit)]
    started = calls.started_ns[rows] > 0
    if not started.any() or started.all():
        return ["All of them have started it on their devices."] if started.any() else []
    waiting = tuple(sorted(calls.rank[rows[~started]].tolist()))
    return [f"Started on all devices but those of {rank_phrase(waiting)}."]


def _device_behind(picture: Picture, unit: int, stopped: Ints) -> Finding:
    culprits = picture.named(stopped)
    distance = picture.graph.reaching(stopped)
    node = picture.graph.reaching(np.asarray([picture.graph.n_ranks + unit], np.int64))
    victims = sorted({*picture.victims(distance), *picture.victims(node)} - set(culprits))
    rows: Ints = picture.heads.row[stopped]
    return Finding(
        id="",
        code="UH105",
        role="cause",
        confidence="high" if not picture.group(unit).inferred else "medium",
        summary=(
            f"The device of {rank_phrase(culprits)} finishes nothing any more: it is stuck at "
            f"{picture.label(unit)}, which its peers have finished, while its host went on."
        ),
        culprits=culprits,
        victims=tuple(victims),
        group=picture.group_ref(unit),
        seq=picture.seq(unit),
        op=picture.op(unit),
        calls=picture.sides_by_row(rows, "culprit"),
        waits=picture.chain(distance),
        sites=picture.book.sites_of_rows(rows, "culprit"),
        evidence=tuple(_lag_sentences(picture, stopped)),
        alternatives=ALTERNATIVES["UH105"],
        actions=ACTIONS["UH105"],
    )


def _never_started(picture: Picture, unit: int, unstarted: Ints) -> Finding:
    culprits = picture.named(unstarted)
    node = picture.graph.reaching(np.asarray([picture.graph.n_ranks + unit], np.int64))
    rows: Ints = picture.heads.row[unstarted]
    others = picture.heads.inside(unit)
    others = others[~np.isin(others, unstarted)]
    return Finding(
        id="",
        code="UH105",
        role="cause",
        confidence="medium",
        summary=(
            f"{subject(culprits)} enqueued {picture.label(unit)}, and the device never started it; "
            "on all other members it is running."
        ),
        culprits=culprits,
        victims=tuple(rank for rank in picture.victims(node) if rank not in culprits),
        group=picture.group_ref(unit),
        seq=picture.seq(unit),
        op=picture.op(unit),
        calls=(
            *picture.sides_by_row(rows, "culprit"),
            *picture.sides_by_row(picture.heads.row[others], "victim"),
        ),
        sites=(
            *picture.book.sites_of_rows(rows, "culprit"),
            *picture.book.sites_of_rows(picture.heads.row[others], "victim"),
        ),
        evidence=(
            (
                f"Timing was on: {count_of(len(others), 'member')} of {picture.group(unit).size} "
                "started the call on their devices."
            ),
            "All of its own calls before are finished: something else keeps that device busy.",
        ),
        alternatives=("A kernel of the model hangs or runs for very long on that device.",),
        actions=ACTIONS["UH105"],
    )


def _lag_sentences(picture: Picture, stopped: Ints) -> list[str]:
    groups = picture.evidence.case.groups
    sentences = []
    for rank in stopped.tolist()[:4]:
        number = int(picture.evidence.ranks.numbers[rank])
        lags = lags_of(picture, rank)
        shown = "; ".join(
            f"{groups[picture.evidence.group_of(lag.channel)].label}: finished #{lag.finished}, "
            f"a peer #{lag.peers}, enqueued #{lag.enqueued}"
            for lag in lags[:4]
        )
        sentences.append(
            f"Rank {number} is behind its peers in {count_of(len(lags), 'group')}: {shown}."
        )
    return sentences
