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
from unhang.analysis.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.ops import rule_of
from unhang.analysis.state.progress import Stage
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


def explain_disagreement(situation: Situation, disagreement: Disagreement) -> Finding:
    """Explain a call about which its members disagree."""
    waiting_call = disagreement.waiting_call
    culprits = disagreement.odd_ranks
    node = np.asarray([situation.graph.n_ranks + waiting_call], np.int64)
    distance = situation.graph.reaching(node)
    involved = sorted({rank for side in disagreement.sides for rank in side.ranks})
    victims = sorted({*situation.victims(distance), *involved} - set(culprits))
    return Finding(
        id="",
        code=disagreement.code,
        role="cause",
        confidence=_agreement_confidence(situation, disagreement),
        summary=_mismatch_sentence(situation, disagreement),
        culprits=culprits,
        victims=tuple(victims),
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call)
        if disagreement.code != "UH201"
        else _majority_op(situation, disagreement),
        calls=tuple(_sides(situation, disagreement)),
        waits=situation.chain(distance),
        sites=tuple(
            site
            for side in disagreement.sides[:6]
            for site in situation.book.sites_of_rows(
                _rows(situation, waiting_call, side),
                "culprit" if set(side.ranks) <= set(culprits) else "victim",
            )
        ),
        evidence=tuple(_mismatch_evidence(disagreement)),
        alternatives=ALTERNATIVES[disagreement.code],
        actions=ACTIONS[disagreement.code],
    )


def _rows(situation: Situation, waiting_call: int, side: Side) -> Ints:
    rows = situation.matched.of(waiting_call)
    return rows[np.isin(situation.evidence.case.calls.rank[rows], side.ranks)]


def _majority_op(situation: Situation, disagreement: Disagreement) -> str:
    case = situation.evidence.case
    side = disagreement.majority or disagreement.sides[0]
    return case.names[int(case.calls.name[side.row])].op


def _sides(situation: Situation, disagreement: Disagreement) -> list[CallSide]:
    culprits = set(disagreement.odd_ranks)
    ordered = sorted(disagreement.sides[:8], key=lambda side: not set(side.ranks) <= culprits)
    return [
        situation.side(side.ranks, side.row, "culprit" if set(side.ranks) <= culprits else "peer")
        for side in ordered
    ]


def _mismatch_sentence(situation: Situation, disagreement: Disagreement) -> str:
    label = situation.label(disagreement.waiting_call)
    if disagreement.code == "UH201":
        case = situation.evidence.case
        said = "; ".join(
            f"{rank_phrase(side.ranks)}: {case.names[int(case.calls.name[side.row])].op}"
            for side in disagreement.sides[:4]
        )
        group = situation.group(disagreement.waiting_call).label
        return f"Members of {group} made different calls as #{situation.seq(disagreement.waiting_call)}: {said}."
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


def _agreement_confidence(situation: Situation, disagreement: Disagreement) -> Confidence:
    _, stages = situation.stages(disagreement.waiting_call)
    unseen = (stages == Stage.UNKNOWN).any() or situation.group(disagreement.waiting_call).inferred
    return "medium" if unseen or disagreement.majority is None else "high"


def explain_joined(situation: Situation, roots: Sequence[Root]) -> list[Finding]:
    """Explain calls in which all members are and agree.

    A stopped device is a finding of its own; the rest is told together, the call with most
    victims first.
    """
    found, stuck = [], []
    for root in roots:
        stopped = behind_on_device(situation, np.asarray(root.ranks, np.int64))
        unstarted = never_started(situation, np.asarray(root.ranks, np.int64))
        if len(stopped):
            found.append(_device_behind(situation, root.waiting_calls[0], stopped))
        elif len(unstarted):
            found.append(_never_started(situation, root.waiting_calls[0], unstarted))
        else:
            stuck.append(root)
    if stuck:
        found.append(_not_moving(situation, stuck))
    return found


def _not_moving(situation: Situation, roots: Sequence[Root]) -> Finding:
    def weight(root: Root) -> tuple[int, int]:
        return len(root.ranks), -root.waiting_calls[0]

    waiting_calls = [
        u for root in sorted(roots, key=weight, reverse=True) for u in root.waiting_calls
    ]
    waiting_call, inside = (
        waiting_calls[0],
        np.unique([rank for root in roots for rank in root.ranks]),
    )
    distance = situation.graph.reaching(
        situation.graph.n_ranks + np.asarray(waiting_calls, np.int64)
    )
    out = (
        situation.at_stage(waiting_call, Stage.FINISHED)
        if waiting_call < situation.heads.n_collective
        else ()
    )
    code = "UH402" if out else "UH401"
    culprits = _left_behind(situation, waiting_call, out)
    victims = tuple(rank for rank in situation.victims(distance) if rank not in culprits)
    rows: Ints = situation.heads.row[inside]
    return Finding(
        id="",
        code=code,
        role="cause",
        confidence="medium",
        summary=_not_moving_sentence(situation, waiting_call, out) + _and_others(waiting_calls),
        culprits=culprits,
        victims=victims,
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call),
        calls=situation.sides_by_row(rows, "culprit" if culprits else "victim"),
        sites=situation.book.sites_of_rows(rows, "culprit" if culprits else "victim"),
        evidence=(
            waiting_for(len(victims)),
            *_started(situation, waiting_call),
            *(
                f"Also stuck with everybody in it: {situation.label(other)}."
                for other in waiting_calls[1:5]
            ),
        ),
        alternatives=ALTERNATIVES[code],
        actions=ACTIONS[code],
    )


def _left_behind(situation: Situation, waiting_call: int, out: Sequence[int]) -> tuple[int, ...]:
    """The few who did not come out of what most came out of, where they were needed for that.

    They were if the call needs everybody, or if those who are out finished a later one that does.
    """
    stuck = situation.named(situation.heads.inside(waiting_call))
    few = 2 * len(out) > situation.group(waiting_call).size and len(out) > len(stuck)
    return stuck if out and few and _needed(situation, waiting_call) else ()


def _needed(situation: Situation, waiting_call: int) -> bool:
    case, standing = situation.evidence.case, situation.standing
    if rule_of(case.names[int(case.calls.name[situation.row(waiting_call)])].op).synchronising:
        return True
    at = standing.at(situation.members(waiting_call), int(situation.heads.channel[waiting_call]))
    return bool((standing.last_sync[at[at >= 0]] > int(situation.heads.seq[waiting_call])).any())


def _not_moving_sentence(situation: Situation, waiting_call: int, out: tuple[int, ...]) -> str:
    label, stuck = (
        situation.label(waiting_call),
        situation.named(situation.heads.inside(waiting_call)),
    )
    if out:
        return f"{subject(out)} came out of {label}, {rank_phrase(stuck)} did not."
    if waiting_call >= situation.heads.n_collective:
        return f"Both sides are in {label} of {rank_phrase(stuck)}, and it does not move."
    return f"All {situation.group(waiting_call).size} members are in {label}, and it does not move."


def _and_others(waiting_calls: Sequence[int]) -> str:
    others = len(waiting_calls) - 1
    return f" So do {count_of(others, 'other call')}." if others else ""


def _started(situation: Situation, waiting_call: int) -> list[str]:
    """Who started, where the recorder had timing on."""
    calls = situation.evidence.case.calls
    rows = situation.heads.row[situation.heads.inside(waiting_call)]
    started = calls.started_ns[rows] > 0
    if not started.any() or started.all():
        return ["All of them have started it on their devices."] if started.any() else []
    waiting = tuple(sorted(calls.rank[rows[~started]].tolist()))
    return [f"Started on all devices but those of {rank_phrase(waiting)}."]


def _device_behind(situation: Situation, waiting_call: int, stopped: Ints) -> Finding:
    culprits = situation.named(stopped)
    distance = situation.graph.reaching(stopped)
    node = situation.graph.reaching(np.asarray([situation.graph.n_ranks + waiting_call], np.int64))
    victims = sorted({*situation.victims(distance), *situation.victims(node)} - set(culprits))
    rows: Ints = situation.heads.row[stopped]
    return Finding(
        id="",
        code="UH105",
        role="cause",
        confidence="high" if not situation.group(waiting_call).inferred else "medium",
        summary=(
            f"The device of {rank_phrase(culprits)} finishes nothing any more: it is stuck at "
            f"{situation.label(waiting_call)}, which its peers have finished, while its host went on."
        ),
        culprits=culprits,
        victims=tuple(victims),
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call),
        calls=situation.sides_by_row(rows, "culprit"),
        waits=situation.chain(distance),
        sites=situation.book.sites_of_rows(rows, "culprit"),
        evidence=tuple(_lag_sentences(situation, stopped)),
        alternatives=ALTERNATIVES["UH105"],
        actions=ACTIONS["UH105"],
    )


def _never_started(situation: Situation, waiting_call: int, unstarted: Ints) -> Finding:
    culprits = situation.named(unstarted)
    node = situation.graph.reaching(np.asarray([situation.graph.n_ranks + waiting_call], np.int64))
    rows: Ints = situation.heads.row[unstarted]
    others = situation.heads.inside(waiting_call)
    others = others[~np.isin(others, unstarted)]
    return Finding(
        id="",
        code="UH105",
        role="cause",
        confidence="medium",
        summary=(
            f"{subject(culprits)} enqueued {situation.label(waiting_call)}, and the device never started it; "
            "on all other members it is running."
        ),
        culprits=culprits,
        victims=tuple(rank for rank in situation.victims(node) if rank not in culprits),
        group=situation.group_ref(waiting_call),
        seq=situation.seq(waiting_call),
        op=situation.op(waiting_call),
        calls=(
            *situation.sides_by_row(rows, "culprit"),
            *situation.sides_by_row(situation.heads.row[others], "victim"),
        ),
        sites=(
            *situation.book.sites_of_rows(rows, "culprit"),
            *situation.book.sites_of_rows(situation.heads.row[others], "victim"),
        ),
        evidence=(
            (
                f"Timing was on: {count_of(len(others), 'member')} of {situation.group(waiting_call).size} "
                "started the call on their devices."
            ),
            "All of its own calls before are finished: something else keeps that device busy.",
        ),
        alternatives=("A kernel of the model hangs or runs for very long on that device.",),
        actions=ACTIONS["UH105"],
    )


def _lag_sentences(situation: Situation, stopped: Ints) -> list[str]:
    groups = situation.evidence.case.groups
    sentences = []
    for rank in stopped.tolist()[:4]:
        number = int(situation.evidence.ranks.numbers[rank])
        lags = lags_of(situation, rank)
        shown = "; ".join(
            f"{groups[situation.evidence.group_of(lag.channel)].label}: finished #{lag.finished}, "
            f"a peer #{lag.peers}, enqueued #{lag.enqueued}"
            for lag in lags[:4]
        )
        sentences.append(
            f"Rank {number} is behind its peers in {count_of(len(lags), 'group')}: {shown}."
        )
    return sentences
