"""Ranks that never made a call in which others wait, by dumps that cover the moment.

Whether such a rank skipped a call long before is for `unhang.analysis.divergence.in_group`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.findings.unmade_groups import may_make_a_group
from unhang.analysis.matching.no_trace import least_far, may_be_in_a_batch
from unhang.analysis.matching.roots import Root
from unhang.analysis.rules.telling import Words, last_lines, subject, waits, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.progress import Known, Stage
from unhang.kinds import ABSENT, Kind, Trait

NEVER_JOINED: Final = Kind(
    "UH101",
    "never-joined",
    "absent",
    "Ranks never called a collective in which the others wait.",
    traits=ABSENT | Trait.FROM_BAD_NODE,
    alternatives=(
        (
            "They may have skipped a call much earlier that looks like all others (same op, sizes"
            " and line), so that their count is short by one."
        ),
    ),
    actions=(
        "Look at the stacks of the culprits: unhang stacks (live), or the logs: unhang logs.",
    ),
)

_MOST_SHOWN = 8
_MAKING = "one of them may wait for another rank to create a group with it"
_HIDING = "some may be in sends and receives that their dumps leave out"


class NeverJoined(Struct, frozen=True):
    """Ranks that never made a call in which others wait.

    Attributes:
        call: Name of the call.
        waiting: Global ranks that are in it.
        last: Rank and the number of its last call in the group (-1: it shows none), of the first.
        last_lines: Ranks whose last call's line is known, and not where they stand.
        known: How it is known.
        making: They, where one may wait for another to make a group, which no dump would show.
        hiding: Those of them that may be in sends and receives, which their dumps leave out.
    """

    call: str
    waiting: tuple[int, ...]
    last: tuple[tuple[int, int], ...]
    last_lines: tuple[int, ...]
    known: Known
    making: tuple[int, ...] = ()
    hiding: tuple[int, ...] = ()


def explain_never_joined(situation: Situation, root: Root) -> Claim:
    """Explain ranks that never made a call, and wait for no other rank themselves."""
    call = root.waiting_calls[0]
    absent = situation.named(root.ranks)
    distance = situation.graph.reaching(np.asarray(root.ranks, np.int64))
    may_make = may_make_a_group(situation, root.ranks, situation.heads.inside(call))
    several = len(absent) > 1 or may_make.others
    making = absent if may_make.ranks and several else ()  # one may wait for another
    least = () if making or _may_hide(situation, root.ranks, call) else _least_far(situation, root)
    behind = situation.named(least)
    hiding = tuple(rank for rank in absent if rank not in behind)
    roles = (behind, "culprit"), (hiding, "peer")
    never = (situation.never_called(r, situation.row(call), role) for r, role in roles if r)
    return Claim(
        kind=NEVER_JOINED,
        about=NeverJoined(
            call=situation.label(call),
            waiting=situation.named(situation.heads.inside(call)),
            last=_last_calls(situation, root.ranks, call),
            last_lines=situation.last_lines(root.ranks),
            known=Known(root.known),
            making=making,
            hiding=() if making else hiding,
        ),
        culprits=() if _is_alone(situation, root) else behind,
        victims=situation.victims(distance),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=(*never, *situation.waiting_sides(call)),
        waits=situation.chain(distance),
        sites=situation.sites_of_wait(least or root.ranks, call),
        doubts=(
            *doubts_of_absence(situation, root),
            *((Doubt.MAKES_A_GROUP,) if may_make.ranks else ()),
            *((Doubt.LEAVES_NO_TRACE,) if hiding and not making else ()),
        ),
    )


def _least_far(situation: Situation, root: Root) -> Sequence[int]:
    """Those of its ranks that wait for no other in a batch that their dumps leave out."""
    call = root.waiting_calls[0]
    group = situation.evidence.group_of(int(situation.heads.channel[call]))
    return least_far(situation.evidence, root.ranks, situation.heads.inside(call).tolist(), group)


def _may_hide(situation: Situation, ranks: tuple[int, ...], call: int) -> bool:
    """Whether some of these ranks may be in a batch that their dumps do not show."""
    group = situation.evidence.group_of(int(situation.heads.channel[call]))
    inside = situation.heads.inside(call)[:_MOST_SHOWN].tolist()
    few = ranks[:_MOST_SHOWN]
    return any(may_be_in_a_batch(situation.evidence, rank, inside, group) for rank in few)


def _last_calls(
    situation: Situation, ranks: tuple[int, ...], call: int
) -> tuple[tuple[int, int], ...]:
    """The last call of each culprit in the group, by number; -1 where it shows none."""
    shown = np.asarray(ranks[:_MOST_SHOWN], np.int64)
    at = situation.standing.at(shown, int(situation.heads.channel[call]))
    numbers = situation.evidence.ranks.numbers[shown]
    last = [int(situation.standing.reach[row]) if row >= 0 else -1 for row in at.tolist()]
    return tuple(zip(numbers.tolist(), last, strict=True))


def doubts_of_absence(situation: Situation, root: Root) -> tuple[Doubt, ...]:
    """Sure only where all dumps are there and cover the moment."""
    call = root.waiting_calls[0]
    unsure = () if root.known >= Known.SURE else (Doubt.COUNT_UNSURE,)
    few = (Doubt.FEW_CALLED,) if _few_called(situation, call) else ()
    return (*unsure, *few, *situation.doubts_of_members(call))


def _is_alone(situation: Situation, root: Root) -> bool:
    """Whether one of several members alone made a call, and nothing tells of the others.

    Either it made one too many, or they stand still before it: no rank is named.
    """
    call = root.waiting_calls[0]
    if call >= situation.heads.n_collective or situation.evidence.case.samples:
        return False
    if situation.placed_now(root.ranks)[0]:
        return False
    members, stages = situation.stages(call)
    absent = members[stages == Stage.NOT_CALLED]
    return len(absent) == len(members) - 1 > 1 and set(absent.tolist()) <= set(root.ranks)


def _few_called(situation: Situation, call: int) -> bool:
    """Whether fewer members are known to have made a call than not to have made it."""
    if call >= situation.heads.n_collective:
        return False
    stages = situation.stages(call)[1]
    return int((stages >= Stage.OPEN).sum()) < int((stages == Stage.NOT_CALLED).sum())


@words_for(NeverJoined)
def _verdict_of_never_joined(about: NeverJoined, claim: Claim) -> Words:
    what = f"{about.call}, in which {waits(about.waiting)}"
    sentence = f"{subject(claim.culprits)} never called {what}."
    if about.making:
        sentence = f"{subject(about.making)} never called {what}: {_MAKING}."
    elif about.hiding and not claim.culprits:
        sentence = f"{subject(about.hiding)} never called {what}: {_HIDING}."
    elif not claim.culprits:
        sentence = f"No other rank called {what}: it may be a call too many."
    return Words(
        sentence,
        (
            *(_last_call(rank, seq) for rank, seq in about.last),
            *last_lines(about.last_lines),
            _how_known(about.known),
        ),
    )


def _last_call(rank: int, seq: int) -> str:
    if seq < 0:
        return f"The dump of rank {rank} shows no call in this group."
    return f"Rank {rank} finished #{seq}, its last call in this group."


def _how_known(known: Known) -> str:
    if known >= Known.SURE:
        return "Their dumps cover that moment and do not show the call."
    if known == Known.INFERRED:
        return (
            "Their counters show only calls before it; that these counters belong to the group is "
            "inferred from the order of groups."
        )
    return "Their dumps do not show the call; a finished call could be left out of them."
