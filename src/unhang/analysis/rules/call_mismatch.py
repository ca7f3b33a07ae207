"""Members that made different calls under one number, or one call with data that do not fit.

The majority is right; without one both are reported and neither is blamed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.collectives import Aspect, Disagreement, Side
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.kinds import Kind, Trait
from unhang.report import CallSide
from unhang.wording import rank_phrase

_AFTER_A_SKIP: Final = "If one side skipped or repeated an earlier call, different calls meet here."

OP_MISMATCH: Final = Kind(
    "UH201",
    "op-mismatch",
    "disagreement",
    "Members made different calls under one sequence number.",
    traits=Trait.OF_NOW,
    alternatives=(_AFTER_A_SKIP,),
    actions=(
        ("Make every rank issue the same calls in the same order; check what depends on the rank."),
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
)
SHAPE_MISMATCH: Final = Kind(
    "UH202",
    "shape-mismatch",
    "disagreement",
    "Members disagree about the shapes of one call.",
    traits=Trait.OF_NOW | Trait.SIZES,
    alternatives=(
        _AFTER_A_SKIP,
        "Batches of uneven size, or a last batch that one rank alone did not drop.",
    ),
    actions=(
        "Print the tensors' shapes just before this line on all ranks.",
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
)
DTYPE_MISMATCH: Final = Kind(
    "UH203",
    "dtype-mismatch",
    "disagreement",
    "Members disagree about the dtypes of one call.",
    traits=Trait.OF_NOW,
    alternatives=("Autocast or a parameter left in another precision on some ranks.",),
    actions=("Print the tensors' dtypes just before this line on all ranks.",),
)
SPLIT_MISMATCH: Final = Kind(
    "UH204",
    "split-mismatch",
    "disagreement",
    "What members of an all-to-all, gather or scatter send is not what they receive.",
    traits=Trait.OF_NOW,
    alternatives=("Each rank computes split sizes from its own data, without exchanging them.",),
    actions=(("Exchange the split sizes first, and check that the sums sent and received agree."),),
)

KIND_OF: Final = {
    Aspect.OP: OP_MISMATCH,
    Aspect.SIZES: SHAPE_MISMATCH,
    Aspect.DTYPES: DTYPE_MISMATCH,
    Aspect.AMOUNTS: SPLIT_MISMATCH,
}
_DISAGREE: Final[dict[Kind, str]] = {
    SHAPE_MISMATCH: "disagree about the sizes of",
    DTYPE_MISMATCH: "disagree about the dtypes of",
    SPLIT_MISMATCH: "send and receive different amounts in",
}
_MOST_SIDES = 8
_MOST_SITES = 6
_MOST_OPS = 4
_MOST_NAMED = 3


class CallSaid(Struct, frozen=True):
    """The operation that some ranks called."""

    ranks: tuple[int, ...]
    op: str


class MembersDisagree(Struct, frozen=True):
    """What members of one call disagree about.

    Attributes:
        call: Name of the call, by one of its sides.
        group: Label of the group.
        sides: Largest first.
        majority: The right side; empty where no side has more than half of the members.
        totals: Elements sent and received in all, where these do not agree.
        roots: Ranks that took the call as its root, where these are not just one.
        ended: How many such calls of the group have ended all the same; 0 for one that has not.
    """

    call: str
    group: str
    sides: tuple[CallSaid, ...]
    majority: tuple[int, ...]
    totals: tuple[int, int] | None
    roots: tuple[int, ...] | None = None
    ended: int = 0


def explain_disagreement(situation: Situation, found: Disagreement) -> Claim:
    """Explain a call about which its members disagree."""
    call, culprits = found.waiting_call, set(found.odd_ranks)
    distance = situation.graph.reaching(np.asarray([situation.graph.n_ranks + call], np.int64))
    involved = {rank for side in found.sides for rank in side.ranks}
    majority = found.majority or found.sides[0]
    return Claim(
        kind=KIND_OF[found.aspect],
        about=_disagree(situation, found),
        culprits=found.odd_ranks,
        victims=tuple(sorted({*situation.victims(distance), *involved} - culprits)),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=_op_of(situation, majority) if found.aspect is Aspect.OP else situation.op(call),
        calls=tuple(_sides(situation, found)),
        waits=situation.chain(distance),
        sites=tuple(
            site
            for side in found.sides[:_MOST_SITES]
            for site in situation.book.sites_of_rows(
                _rows(situation, call, side),
                "culprit" if set(side.ranks) <= culprits else "victim",
            )
        ),
        doubts=(
            *situation.doubts_of_members(call),
            *(() if found.majority else (Doubt.NO_MAJORITY,)),
            *(() if found.of_all or not found.majority else (Doubt.MAJORITY_OF_SEEN,)),
            *(() if found.roots is None or not found.majority else (Doubt.BY_HABIT,)),
        ),
    )


def _disagree(situation: Situation, found: Disagreement) -> MembersDisagree:
    return MembersDisagree(
        call=situation.label(found.waiting_call),
        group=situation.group(found.waiting_call).label,
        sides=tuple(CallSaid(side.ranks, _op_of(situation, side)) for side in found.sides),
        majority=found.majority.ranks if found.majority else (),
        totals=found.totals,
        roots=found.roots,
    )


def _op_of(situation: Situation, side: Side) -> str:
    case = situation.evidence.case
    return case.names[int(case.calls.name[side.row])].op


def _rows(situation: Situation, call: int, side: Side) -> Ints:
    rows = situation.matched.of(call)
    return rows[np.isin(situation.evidence.case.calls.rank[rows], side.ranks)]


def _sides(situation: Situation, found: Disagreement) -> list[CallSide]:
    culprits = set(found.odd_ranks)
    ordered = sorted(found.sides[:_MOST_SIDES], key=lambda side: not set(side.ranks) <= culprits)
    return [
        situation.side(side.ranks, side.row, "culprit" if set(side.ranks) <= culprits else "peer")
        for side in ordered
    ]


@words_for(MembersDisagree)
def _verdict_of_members_disagree(about: MembersDisagree, claim: Claim) -> Words:
    if about.roots is not None:
        return _roots(about, about.roots, claim)
    return Words(_mismatch(about, claim), tuple(_agreement(about)))


def _roots(about: MembersDisagree, roots: tuple[int, ...], claim: Claim) -> Words:
    who = f"{rank_phrase(roots)} all act as" if roots else "no member acts as"
    before = (
        f"In earlier calls from this line {rank_phrase(claim.culprits)} always had the other role."
        if about.majority
        else "No earlier call from this line shows which rank is wrong, so none is blamed."
    )
    return Words(
        f"Members disagree about the root of {about.call}: {who} its root.",
        ("Only a root has a tensor for each member; the dumps show which ranks have.", before),
        alternatives=(_AFTER_A_SKIP,),
        actions=("Print the rank and the root (src or dst) just before this line on all ranks.",),
    )


def _mismatch(about: MembersDisagree, claim: Claim) -> str:
    if claim.kind == OP_MISMATCH:
        said = "; ".join(f"{rank_phrase(s.ranks)}: {s.op}" for s in about.sides[:_MOST_OPS])
        return f"Members of {about.group} made different calls as #{claim.seq}: {said}."
    if about.majority:
        who = f"{rank_phrase(claim.culprits)} against {rank_phrase(about.majority)}"
    else:
        who = " against ".join(rank_phrase(side.ranks) for side in about.sides[:_MOST_NAMED])
    return f"Members {_DISAGREE[claim.kind]} {about.call}: {who}."


def _agreement(about: MembersDisagree) -> list[str]:
    found = []
    if about.totals:
        sent, received = about.totals
        found.append(f"All members together send {sent:,} and receive {received:,} elements.")
    if about.ended:
        more = f" and {about.ended - 1} more of its group" if about.ended > 1 else ""
        found.append(f"The call{more} ended nevertheless; the results may be wrong.")
    known = sum(len(side.ranks) for side in about.sides)
    found.append(
        f"{len(about.majority)} of {known} members agree."
        if about.majority
        else "No side has a majority, so neither is blamed."
    )
    return found
