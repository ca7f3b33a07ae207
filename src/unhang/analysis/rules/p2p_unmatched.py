"""Sends and receives without a counterpart: ranks that never made what others wait for."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from unhang.analysis.divergence.line_counts import level_of
from unhang.analysis.findings.unmade_groups import may_make_a_group, may_make_a_pair
from unhang.analysis.matching.roots import Root
from unhang.analysis.matching.wait_graph import Edge
from unhang.analysis.rules.telling import Words, begun, last_lines, subject, waits, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.progress import Known
from unhang.kinds import Kind, Trait
from unhang.report import CallSide
from unhang.spans import distinct
from unhang.wording import rank_phrase

P2P_UNMATCHED: Final = Kind(
    "UH302",
    "p2p-unmatched",
    "absent",
    "A send or a receive has no counterpart.",
    traits=Trait.FROM_FAILURE | Trait.ONE_MISTAKE | Trait.AWAITED | Trait.MAY_COME | Trait.OF_NOW,
    alternatives=("The other side may only be slow, and reach its call later.",),
    actions=("Check that each send has one receive on the other side, also on the last step.",),
)

Asked: TypeAlias = Literal["send", "receive", "several"]
_MOST_COUNTED = 4


class UnpairedCall(Struct, frozen=True):
    """A waiting send or receive that nothing meets; `sure`: numbers are counted from the start."""

    rank: int
    call: str
    sure: bool


class Unpaired(Struct, frozen=True):
    """Ranks that never made the send or receive for which others wait.

    Attributes:
        ranks: Those who never made it; one of them, for a receive from any source.
        asked: What they did not make.
        waiting: Who waits for it.
        calls: Those of the first who wait.
        last_lines: Ranks whose last call's line is known, and not where they stand.
        level: Further ranks outside of calls, from which nothing tells the first apart.
        over: The one of those who wait that has made more than all these from lines of both; -1
            where none is.
    """

    ranks: tuple[int, ...]
    asked: Asked
    waiting: tuple[int, ...]
    calls: tuple[UnpairedCall, ...]
    last_lines: tuple[int, ...]
    level: tuple[int, ...] = ()
    over: int = -1


def explain_unpaired(situation: Situation, root: Root) -> Claim:
    """Explain ranks that never made the send or receive that others wait for."""
    blame = situation.graph.blame
    here = np.isin(blame.rank, root.ranks) & np.isin(blame.kind, (Edge.UNPAIRED, Edge.ANY_SOURCE))
    calls = sorted({int(call) for call in blame.waiting_call[here]})
    distance = situation.graph.reaching(np.asarray(root.ranks, np.int64))
    any_source = root.edge == Edge.ANY_SOURCE and len(root.ranks) > 1
    rows = situation.heads.row[situation.heads.owner[calls]]
    about = _unpaired(situation, root, calls)
    inside = np.concatenate([situation.heads.inside(call) for call in calls])
    making = may_make_a_group(situation, root.ranks, inside)
    making = making if making.ranks else may_make_a_pair(situation, root.ranks)
    culprits = () if any_source or about.level or making.others else about.ranks
    culprits = (about.over,) if about.over >= 0 else culprits
    suspected = any_source or culprits == about.ranks
    return Claim(
        kind=P2P_UNMATCHED,
        about=about,
        culprits=culprits,
        victims=tuple(rank for rank in situation.victims(distance) if rank not in culprits),
        group=situation.group_ref(calls[0]),
        op=situation.op(calls[0]),
        calls=(
            *situation.sides_by_row(rows, "victim"),
            *((CallSide(ranks=about.ranks, role="culprit"),) if suspected else ()),
        ),
        waits=situation.chain(distance),
        sites=(
            *(situation.sites_of_absent(root.ranks) if suspected else ()),
            *situation.book.sites_of_rows(rows, "culprit" if about.over in culprits else "victim"),
        ),
        doubts=(
            *(() if root.known >= Known.SURE else (Doubt.COUNT_UNSURE,)),
            *((Doubt.MAKES_A_GROUP,) if making.ranks else ()),
            *((Doubt.MADE_ALONE,) if about.level else ()),
        ),
        mistake=(about.ranks, about.asked, about.waiting),
    )


def _unpaired(situation: Situation, root: Root, calls: list[int]) -> Unpaired:
    owners = situation.heads.owner[calls]
    level = level_of(situation, root.ranks, distinct(owners).tolist())
    over = level.over if level else -1
    return Unpaired(
        ranks=situation.named(root.ranks),
        asked="several" if len(calls) > 1 else _asked(situation, root, calls[0]),
        waiting=situation.named(owners),
        calls=tuple(_counted(situation, call) for call in calls[:_MOST_COUNTED]),
        last_lines=situation.last_lines(root.ranks),
        level=situation.named(level.others) if level else (),
        over=situation.named([over])[0] if over >= 0 else -1,
    )


def _asked(situation: Situation, root: Root, waiting_call: int) -> Asked:
    """What would meet those of a waiting call that these ranks have not met."""
    pairs = situation.pairs
    calls = pairs.of_waiting_call(waiting_call)
    unmet = calls[(pairs.counterpart[calls] < 0) & np.isin(pairs.peer[calls], (*root.ranks, -1))]
    sending = pairs.sending[unmet if len(unmet) else calls]
    if sending.all():
        return "receive"
    return "several" if sending.any() else "send"


def _counted(situation: Situation, waiting_call: int) -> UnpairedCall:
    """What a waiting side has called, and whether it is sure that nothing meets it."""
    owner = int(situation.evidence.ranks.numbers[int(situation.heads.owner[waiting_call])])
    calls = situation.pairs.of_waiting_call(waiting_call)
    lonely = calls[situation.pairs.counterpart[calls] < 0]
    sure = bool(situation.pairs.sure[lonely].all())
    return UnpairedCall(owner, situation.label(waiting_call), sure)


@words_for(Unpaired)
def _verdict_of_unpaired(about: Unpaired, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    several = about.asked == "several"
    asked = "the sends and receives" if several else f"the {about.asked}"
    summary = f"{subject(about.ranks)} never made {asked} for which {waits(about.waiting)}."
    seen = (*map(_unmet, about.calls), *last_lines(about.last_lines))
    if not about.level:
        return Words(summary, seen)
    outside = sorted([*about.ranks, *about.level])
    level = f"{subject(outside)} wait for no other rank, and none of them shows fewer calls."
    if about.over < 0:
        return Words(
            f"{begun(waits(about.waiting))} in an exchange that {rank_phrase(about.ranks)} did not "
            "make: one side made a call too many, or the other has not reached its own.",
            (*seen, level),
        )
    others = "all other ranks may be late"
    return Words(
        f"{subject([about.over])} made an exchange that its peers did not: nothing meets it.",
        (*seen, level, f"It made more calls from the same line than they did; {others}."),
    )


def _unmet(call: UnpairedCall) -> str:
    presumed = " (counted from the first unfinished one: the dumps do not reach the start)"
    how = "" if call.sure else presumed
    return f"Rank {call.rank} is in {call.call}; nothing meets it{how}."
