"""Ranks that recorded a call and never launched it: they are inside the library's enqueue."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.roots import Root
from unhang.analysis.rules.never_joined import doubts_of_absence
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.kinds import Kind, Trait

INSIDE_ENQUEUE: Final = Kind(
    "UH104",
    "inside-enqueue",
    "absent",
    "The call is recorded but was never launched: stuck inside the library's enqueue.",
    traits=Trait.FROM_FAILURE | Trait.FROM_BAD_NODE | Trait.MAY_COME | Trait.OF_NOW,
    alternatives=(
        "The library may be creating a communicator or waiting for a full launch queue.",
        "The counters may have been read a moment before the launch returned.",
    ),
    actions=(
        "Take native stacks of that rank: unhang stacks --native.",
        "Run with NCCL_DEBUG=INFO and look at its last line.",
    ),
)


class InsideEnqueue(Struct, frozen=True):
    """Ranks that recorded a call and never launched it."""

    call: str
    seq: int | None


def explain_inside_enqueue(situation: Situation, root: Root) -> Claim:
    """Explain ranks that are inside the enqueue of a call."""
    call = root.waiting_calls[0]
    culprits = situation.named(root.ranks)
    distance = situation.graph.reaching(np.asarray(root.ranks, np.int64))
    rows: Ints = situation.heads.row[np.asarray(root.ranks, np.int64)]
    inside = situation.heads.inside(call)
    others: Ints = situation.heads.row[inside[~np.isin(inside, root.ranks)]]
    waiting = situation.waiting_sides(call)
    return Claim(
        kind=INSIDE_ENQUEUE,
        about=InsideEnqueue(situation.label(call), situation.seq(call)),
        culprits=culprits,
        victims=situation.victims(distance),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=(
            *situation.sides_by_row(rows, "culprit"),
            *(side for side in waiting if not set(side.ranks) <= set(culprits)),
        ),
        waits=situation.chain(distance),
        sites=(
            *situation.book.sites_of_rows(rows, "culprit"),
            *situation.book.sites_of_rows(others, "victim"),
        ),
        doubts=doubts_of_absence(situation, root),
    )


@words_for(InsideEnqueue)
def _verdict_of_inside_enqueue(about: InsideEnqueue, claim: Claim) -> Words:
    summary = (
        f"{subject(claim.culprits)} entered {about.call} and never returned from the enqueue: the "
        "call is recorded, but was not launched."
    )
    why = (
        f"The dump has entry #{about.seq}, and the rank's counters still show the call before it; "
        "they move only after the library's call has returned."
    )
    return Words(summary, (why,))
