"""Findings about calls that were left out or made once too often (UH102).

They replace what is seen at the end: a call that a rank never joins, or that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unhang.analysis.divergence.in_group import Divergence
from unhang.analysis.sites import shown_frame
from unhang.analysis.situation import Situation
from unhang.analysis.words import ACTIONS, ALTERNATIVES, subject, waiting_for
from unhang.report import CallSide, Confidence, Finding, Site
from unhang.stacks.places import bare_name
from unhang.wording import count_of, rank_phrase

__all__ = ["explain_divergence"]


def explain_divergence(
    situation: Situation,
    divergence: Divergence,
    waiting_call: int,
    symptom: str,
    nodes: Sequence[int],
) -> Finding:
    """Explain ranks that parted from their peers.

    Args:
        situation: The situation.
        divergence: Where they parted.
        waiting_call: The call in which it is seen.
        symptom: What is seen there, as a sentence.
        nodes: Nodes of the wait-for graph that stand for the symptom.
    """
    distance = situation.graph.reaching(np.asarray(nodes, np.int64))
    culprits = situation.named(divergence.ranks)
    reached = {*situation.victims(distance), *situation.named(situation.heads.inside(waiting_call))}
    reached |= set(situation.named(divergence.suspects))
    reached |= set(situation.named(node for node in nodes if node < situation.graph.n_ranks))
    victims = tuple(sorted(reached - set(culprits)))
    case = situation.evidence.case
    row = divergence.row
    return Finding(
        id="",
        code="UH102" if situation.evidence.collective[row] else "UH302",
        role="cause",
        confidence=_confidence(situation, divergence, waiting_call),
        summary=_sentence(situation, divergence),
        culprits=culprits,
        victims=victims,
        group=situation.group_ref(waiting_call),
        seq=int(case.calls.seq[row]) if situation.evidence.collective[row] else None,
        op=case.names[int(case.calls.name[row])].op,
        calls=tuple(_sides(situation, divergence)),
        waits=situation.chain(distance),
        sites=tuple(_sites(situation, divergence)),
        evidence=tuple(_evidence(situation, divergence, symptom, len(victims))),
        alternatives=_alternatives(divergence),
        actions=ACTIONS["UH102"],
    )


def _call_words(situation: Situation, row: int) -> str:
    """A call with its line: "all_gather #41 of tp (2) at train.py:88"."""
    case = situation.evidence.case
    calls = case.calls
    name = case.names[int(calls.name[row])].op
    number = f" #{int(calls.seq[row])}" if situation.evidence.collective[row] else ""
    words = f"{name}{number} of {case.groups[int(calls.group[row])].label}"
    frame = shown_frame(case.stacks[int(calls.stack[row])])
    if frame is None:
        return words
    file = frame.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{words} ({file}:{frame.line} in {bare_name(frame.function)})"


def _sentence(situation: Situation, divergence: Divergence) -> str:
    who = subject(situation.named(divergence.suspects))
    peers = rank_phrase(situation.named(divergence.peers))
    call = _call_words(situation, divergence.row)
    if not divergence.ranks:
        has, lacks = (peers, who) if divergence.kind == "missing" else (who, peers)
        return (
            f"{has[:1].upper()}{has[1:]} made {call} and {lacks[:1].lower()}{lacks[1:]} did not; "
            "with two sides only it cannot be said which is wrong."
        )
    if _elsewhere(situation, divergence):
        if divergence.kind == "missing":
            did = f"did not make what {peers} made, whose part in the program is the same: {call}"
        else:
            did = f"made {call}; {peers}, whose part in the program is the same, make none there"
        return f"{who} {did}."
    peers = rank_phrase(_in_its_group(situation, divergence)[1])
    if divergence.kind == "missing":
        return f"{who} did not make {call}, which {peers} made; all later calls meet wrong ones."
    return f"{who} made {call}, which {peers} did not; all later calls meet wrong ones."


def _elsewhere(situation: Situation, divergence: Divergence) -> bool:
    """Whether suspects and peers have no group in common in which the call could be made."""
    return not all(_in_its_group(situation, divergence))


def _in_its_group(
    situation: Situation, divergence: Divergence
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Suspects and peers (global) that are members of the group of the call in question."""
    case = situation.evidence.case
    members = set(case.groups[int(case.calls.group[divergence.row])].members)
    suspects, peers = situation.named(divergence.suspects), situation.named(divergence.peers)
    return (
        tuple(rank for rank in suspects if rank in members),
        tuple(rank for rank in peers if rank in members),
    )


def _sides(situation: Situation, divergence: Divergence) -> list[CallSide]:
    role = "culprit" if divergence.ranks else "peer"
    if _elsewhere(situation, divergence):
        return _sides_elsewhere(situation, divergence, role)
    suspects, peers = _in_its_group(situation, divergence)
    if divergence.kind == "missing":
        return [
            situation.never_called(suspects, divergence.row, role),
            situation.side(peers, divergence.row, "peer"),
        ]
    return [
        situation.side(suspects, divergence.row, role),
        situation.never_called(peers, divergence.row, "peer"),
    ]


def _sides_elsewhere(situation: Situation, divergence: Divergence, role: str) -> list[CallSide]:
    """What each side called there, each in its own group."""
    suspects = set(situation.named(divergence.suspects))
    rank_of = situation.evidence.case.calls.rank
    rows = [row for row in (divergence.row, divergence.instead) if row >= 0]
    ranks = [int(rank_of[row]) for row in rows]
    return [
        situation.side((rank,), row, role if rank in suspects else "peer")
        for rank, row in sorted(zip(ranks, rows, strict=True), key=lambda p: p[0] not in suspects)
    ]


def _sites(situation: Situation, divergence: Divergence) -> list[Site]:
    """The line of the call in question, and the line at which the other side went on."""
    case, book = situation.evidence.case, situation.book
    suspects, peers = situation.named(divergence.suspects), situation.named(divergence.peers)
    own, other = (
        (divergence.instead, divergence.row)
        if divergence.kind == "missing"
        else (divergence.row, divergence.instead)
    )
    found = []
    for ranks, role, row in ((suspects, "culprit", own), (peers, "victim", other)):
        if row >= 0:
            shown = role if divergence.ranks else "victim"
            found.append(book.site(ranks, shown, case.stacks[int(case.calls.stack[row])]))
    return [site for site in found if site is not None]


def _evidence(
    situation: Situation, divergence: Divergence, symptom: str, victims: int
) -> list[str]:
    sentences = []
    if divergence.instead >= 0:
        other = "They" if divergence.kind == "missing" else "Their peers"
        sentences.append(
            f"{other} went on with {_call_words(situation, divergence.instead)} instead."
        )
    if divergence.before_window:
        sentences.append("The windows begin there, so the first difference may lie before it.")
    by = count_of(abs(divergence.shift), "call")
    sentences.append(f"From there on the two sides are apart by {by}.")
    return [*sentences, f"Seen in the end as: {symptom}", waiting_for(victims)]


def _alternatives(divergence: Divergence) -> tuple[str, ...]:
    if divergence.ranks:
        return ALTERNATIVES["UH102"]
    return ("One side left the call out, or the other made one too many.", *ALTERNATIVES["UH102"])


def _confidence(situation: Situation, divergence: Divergence, waiting_call: int) -> Confidence:
    calls = situation.evidence.case.calls
    located = int(calls.stack[divergence.row]) >= 0 and not divergence.before_window
    known = not situation.group(waiting_call).inferred
    return "high" if located and known and divergence.ranks else "medium"
