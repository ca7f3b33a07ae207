"""Findings about sends and receives that do not meet, or that disagree.

A send or a receive without a counterpart (UH302), or with one of other size, dtype or peer (UH304).
Circles of them are told by `unhang.analysis.cycles`. With two sides only there is no majority, so a
mismatch blames neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unhang.analysis.ops import elements
from unhang.analysis.picture import Picture
from unhang.analysis.roots import Root
from unhang.analysis.standing import Known
from unhang.analysis.waits import Edge
from unhang.analysis.words import ACTIONS, ALTERNATIVES, subject, waiting_for
from unhang.report import CallSide, Finding
from unhang.wording import rank_phrase

__all__ = ["PairMismatch", "explain_pair_mismatch", "explain_unpaired", "pair_mismatches"]


@dataclass(frozen=True, slots=True)
class PairMismatch:
    """A send and a receive that meet and disagree.

    Attributes:
        units: Of the sender and of the receiver.
        rows: Of the send and of the receive.
        what: "size", "dtype" or "peer".
    """

    units: tuple[int, int]
    rows: tuple[int, int]
    what: str


def pair_mismatches(picture: Picture) -> list[PairMismatch]:
    """Find sends and receives, both in flight as heads, that disagree about size or dtype."""
    pairs, case = picture.pairs, picture.evidence.case
    found = []
    sends = np.flatnonzero(pairs.sending & (pairs.unit >= 0) & (pairs.counterpart >= 0))
    for at in sends.tolist():
        send, receive = int(pairs.row[at]), int(pairs.counterpart[at])
        other = pairs.at_row(receive)
        if other < 0 or pairs.unit[other] < 0:
            continue
        left = case.signatures[int(case.calls.signature[send])]
        right = case.signatures[int(case.calls.signature[receive])]
        counts = elements(left.input_sizes), elements(right.output_sizes)
        dtypes = set(left.input_dtypes), set(right.output_dtypes)
        what = ""
        if None not in counts and counts[0] != counts[1]:
            what = "size"
        elif all(dtypes) and dtypes[0] != dtypes[1]:
            what = "dtype"
        if what:
            units = int(pairs.unit[at]), int(pairs.unit[other])
            found.append(PairMismatch(units, (send, receive), what))
    return found


def explain_pair_mismatch(picture: Picture, mismatch: PairMismatch) -> Finding:
    """Explain a send and a receive that disagree."""
    nodes = picture.graph.n_ranks + np.asarray(mismatch.units, np.int64)
    victims = picture.victims(picture.graph.reaching(nodes))
    rows = np.asarray(mismatch.rows, np.int64)
    ranks = picture.evidence.case.calls.rank[rows].tolist()
    return Finding(
        id="",
        code="UH304",
        role="cause",
        confidence="medium",
        summary=(
            f"Rank {ranks[0]} sends to rank {ranks[1]} what that does not receive: they disagree "
            f"about the {mismatch.what}."
        ),
        victims=victims,
        group=picture.group_ref(mismatch.units[0]),
        op="send",
        calls=picture.sides_by_row(rows, "peer"),
        sites=picture.book.sites_of_rows(rows, "victim"),
        evidence=(
            "Both calls are in flight and are each other's counterpart.",
            "There are two sides only, so neither is blamed.",
        ),
        alternatives=ALTERNATIVES["UH304"],
        actions=ACTIONS["UH304"],
    )


def explain_unpaired(picture: Picture, root: Root) -> Finding:
    """Explain ranks that never made the send or receive that others wait for."""
    blame = picture.graph.blame
    here = np.isin(blame.rank, root.ranks) & np.isin(blame.kind, (Edge.UNPAIRED, Edge.ANY_SOURCE))
    units = sorted({int(unit) for unit in blame.unit[here]})
    distance = picture.graph.reaching(np.asarray(root.ranks, np.int64))
    ranks = picture.named(root.ranks)
    any_source = root.edge == Edge.ANY_SOURCE and len(root.ranks) > 1
    waiting = picture.named(picture.heads.owner[units])
    rows = picture.heads.row[picture.heads.owner[units]]
    unit = units[0]
    asked = "the sends and receives" if len(units) > 1 else _asked(picture, unit)
    verb = "wait" if len(waiting) > 1 else "waits"
    return Finding(
        id="",
        code="UH302",
        role="cause",
        confidence="high" if root.known >= Known.SURE else "medium",
        summary=f"{subject(ranks)} never made {asked} for which {rank_phrase(waiting)} {verb}.",
        culprits=() if any_source else ranks,
        victims=picture.victims(distance),
        group=picture.group_ref(unit),
        op=picture.op(unit),
        calls=(
            *picture.sides_by_row(rows, "victim"),
            CallSide(ranks=ranks, role="culprit"),
        ),
        waits=picture.chain(distance),
        sites=(
            *picture.book.sites_of_rows(picture.last_rows(root.ranks), "culprit"),
            *picture.book.sites_of_rows(rows, "victim"),
        ),
        evidence=(
            *_counts(picture, units),
            waiting_for(len(picture.victims(distance))),
        ),
        alternatives=ALTERNATIVES["UH302"],
        actions=ACTIONS["UH302"],
    )


def _asked(picture: Picture, unit: int) -> str:
    calls = picture.pairs.of_unit(unit)
    return "the receive" if picture.pairs.sending[calls].all() else "the send"


def _counts(picture: Picture, units: list[int]) -> list[str]:
    """What each waiting side has called, and that nothing meets it."""
    sentences = []
    for unit in units[:4]:
        owner = int(picture.evidence.ranks.numbers[int(picture.heads.owner[unit])])
        calls = picture.pairs.of_unit(unit)
        lonely = calls[picture.pairs.counterpart[calls] < 0]
        sure = bool(picture.pairs.sure[lonely].all())
        how = "" if sure else " (counted from the first unfinished one: the windows lack the start)"
        sentences.append(f"Rank {owner} is in {picture.label(unit)}; nothing meets it{how}.")
    return sentences
