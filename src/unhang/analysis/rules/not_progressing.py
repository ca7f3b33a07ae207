"""Calls in which all members are, about which all agree, and that still do not move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import sites_of, subjects_of
from unhang.analysis.matching.no_trace import exchanged_unseen
from unhang.analysis.matching.roots import Root
from unhang.analysis.rules.away_inside import away_inside
from unhang.analysis.rules.device_behind import explain_device
from unhang.analysis.rules.telling import Words, begun, subject, words_for
from unhang.analysis.rules.timeouts_differ import explain_timeouts
from unhang.analysis.shared.claims import Bearing, Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.ops import is_root, rule_of
from unhang.analysis.state.progress import Stage
from unhang.kinds import Kind, Trait
from unhang.spans import distinct
from unhang.wording import all_of, count_of, rank_phrase

JOINED_NOT_PROGRESSING: Final = Kind(
    "UH401",
    "joined-not-progressing",
    "transport",
    "All members are in the call and it makes no progress.",
    traits=Trait.FROM_FAILURE | Trait.OPEN | Trait.MAY_COME | Trait.OF_NOW,
    alternatives=(
        "Network or link down between some hosts; a GPU that hangs in its kernel; NCCL itself.",
        "The call was simply in flight when the dumps were taken.",
    ),
    actions=(
        "Check links and GPUs: unhang doctor, nvidia-smi, ibstat, dmesg | grep -i xid.",
        (
            "Swap the transport to tell them apart: NCCL_P2P_DISABLE=1, then NCCL_IB_DISABLE=1, "
            "then NCCL_NET=Socket."
        ),
        "Set TORCH_NCCL_ENABLE_TIMING=1: dumps then show which ranks started the call.",
    ),
)
PARTLY_FINISHED: Final = Kind(
    "UH402",
    "partly-finished",
    "transport",
    "Only some members finished the call.",
    traits=Trait.FROM_FAILURE | Trait.FROM_BAD_NODE | Trait.OPEN | Trait.OF_NOW,
    alternatives=(
        "The dumps were taken while the call was just finishing.",
        "A link or a GPU of a rank that did not finish the call.",
    ),
    actions=(
        ("Check the GPUs and links of the ranks that did not finish: dmesg | grep -i xid, ibstat."),
        "Set TORCH_NCCL_ENABLE_TIMING=1: dumps then show which ranks started the call.",
    ),
)

_MOST_SHOWN = 4
_ONE_ORDER = (
    "Launch communicators that share a GPU in one order: NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 "
    "and later), CUDA_DEVICE_MAX_CONNECTIONS=1, or wait for one before the next."
)
_OTHER_ROOT = "They may take another rank for its root: dumps show only who takes itself for it."
_OTHER_TAGS = "The two sides may use different tags: the dumps do not tell those of both."
_PRINT_TAGS = "Print the tags just before both lines."


class NotMoving(Struct, frozen=True):
    """Calls in which all members are and that do not move.

    Attributes:
        call: Name of the one with most ranks in it.
        others: Names of the next ones.
        n_calls: How many there are.
        inside, out: Ranks in the first call, and members that have come out of it.
        size: Members of its group.
        exchange: It is a send and a receive.
        unstarted: Ranks whose device has not started it; None where no timing tells.
        at_once: Groups in which one rank of it has calls open at once; empty if only one.
        tags_unknown: Its backend matches by tag, and no dump shows the tags of both sides.
        root: Who is in it as its root, where dumps show that.
    """

    call: str
    others: tuple[str, ...]
    n_calls: int
    inside: tuple[int, ...]
    out: tuple[int, ...]
    size: int
    exchange: bool
    unstarted: tuple[int, ...] | None
    at_once: tuple[str, ...] = ()
    tags_unknown: bool = False
    root: int | None = None


def explain_joined(situation: Situation, roots: Sequence[Root], lives: Lives) -> list[Claim]:
    """Explain calls in which all members are and agree.

    A stopped device is a claim of its own; the rest is reported together, the call with most ranks
    in it first. Where dumps name no rank of it, stacks may.
    """
    of_devices = [explain_device(situation, root) for root in roots]
    stuck = [root for root, claim in zip(roots, of_devices, strict=True) if claim is None]
    found = [claim for claim in of_devices if claim is not None]
    if stuck:
        calls = [c for root in stuck for c in root.waiting_calls][:_MOST_SHOWN]
        found += [_not_moving(situation, stuck, lives), *explain_timeouts(situation, calls)]
    return found


def _not_moving(situation: Situation, roots: Sequence[Root], lives: Lives) -> Claim:
    def weight(root: Root) -> tuple[int, int]:
        return len(root.ranks), -root.waiting_calls[0]

    calls = [c for root in sorted(roots, key=weight, reverse=True) for c in root.waiting_calls]
    call, inside = calls[0], distinct(np.asarray([rank for root in roots for rank in root.ranks]))
    nodes = situation.graph.n_ranks + np.asarray(calls, np.int64)
    about = _standstill(situation, calls)
    culprits = _left_behind(situation, call, about)
    reached = situation.victims(situation.graph.reaching(nodes))
    rows: Ints = situation.heads.row[inside]
    untimed = not (situation.evidence.case.calls.created_ns[rows] > 0).any()
    group = situation.evidence.group_of(int(situation.heads.channel[call]))
    unseen = exchanged_unseen(situation.evidence, inside.tolist(), group)
    away = None if culprits else away_inside(about.inside, lives)
    looks, named = (away.looks, away.ranks) if away is not None else ((), culprits)
    sites = situation.book.sites_of_rows(rows, "culprit" if culprits else "victim")
    claim = Claim(
        kind=PARTLY_FINISHED if about.out else JOINED_NOT_PROGRESSING,
        about=about,
        culprits=named,
        victims=tuple(rank for rank in reached if rank not in named),
        subjects=subjects_of(looks),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=situation.sides_by_row(rows, "culprit" if culprits else "victim"),
        sites=(
            *sites_of(looks, "culprit", situation.book),
            *(site for site in sites if culprits or not set(site.ranks) <= set(named)),
        ),
        doubts=(
            Doubt.NOBODY_ABSENT,
            *((Doubt.AGE_UNKNOWN,) if untimed else ()),
            *((Doubt.LEAVES_NO_TRACE,) if unseen else ()),
        ),
    )
    return claim.seen(away, Bearing.AWAY_INSIDE) if away is not None else claim


def _standstill(situation: Situation, calls: Sequence[int]) -> NotMoving:
    call = calls[0]
    exchange = call >= situation.heads.n_collective
    return NotMoving(
        call=situation.label(call),
        others=tuple(situation.label(other) for other in calls[1 : _MOST_SHOWN + 1]),
        n_calls=len(calls),
        inside=situation.named(situation.heads.inside(call)),
        out=() if exchange else _seen_out(situation, call),
        size=situation.group(call).size,
        exchange=exchange,
        unstarted=_unstarted(situation, call),
        at_once=_at_once(situation, call),
        tags_unknown=exchange and _lacks_tags(situation, call),
        root=None if exchange else _root_inside(situation, call),
    )


def _lacks_tags(situation: Situation, call: int) -> bool:
    """Whether sends and receives of a call may be in flight under another tag on the other side."""
    pairs = situation.pairs
    own = pairs.of_waiting_call(call).tolist()
    met = (pairs.at_row(int(pairs.counterpart[at])) for at in own)
    both = [*own, *(at for at in met if at >= 0)]
    return bool((pairs.taken[both] & (pairs.tag[both] < 0)).any())


def _seen_out(situation: Situation, call: int) -> tuple[int, ...]:
    """Who came out of a call; of dumps that were cut short, only where they still show it."""
    members, stages = situation.stages(call)
    out: Ints = members[stages == Stage.FINISHED]
    last = situation.standing.last_row[
        situation.standing.at(out, int(situation.heads.channel[call]))
    ]
    shown = (last >= 0) & (situation.evidence.case.calls.seq[last] >= situation.heads.seq[call])
    return situation.named(out[shown | ~situation.cut[out]])


def _at_once(situation: Situation, call: int) -> tuple[str, ...]:
    """Groups in which the lowest rank of a call has calls open at once."""
    evidence, rank = situation.evidence, int(situation.heads.inside(call)[0])
    own = evidence.open_rows[evidence.owner_of(evidence.open_rows) == rank]
    groups = distinct(evidence.case.calls.group[own]).tolist()
    labels = tuple(evidence.case.groups[number].label for number in groups[:_MOST_SHOWN])
    return labels if len(groups) > 1 else ()


def _left_behind(situation: Situation, call: int, about: NotMoving) -> tuple[int, ...]:
    """The few who did not come out of what most came out of, where they were needed for that.

    They were if the call needs all members, or if those who are out finished a later one that does.
    A root has to exchange something with each member: it is in the call for those who are.
    """
    if situation.may_be_several(int(situation.heads.channel[call])):
        return ()
    root = about.root
    inside = tuple(rank for rank in about.inside if rank != root)
    size = about.size - (root is not None)
    few = 2 * len(about.out) > size and len(about.out) > len(inside)
    needed = root is not None or _needed(situation, call)
    return inside if about.out and few and needed else ()


def _root_inside(situation: Situation, call: int) -> int | None:
    """The rank that waits in a call as its root, where the dumps show which is."""
    case, calls = situation.evidence.case, situation.evidence.case.calls
    roots = [
        int(calls.rank[row])
        for row in situation.waiting_rows(call).tolist()
        if is_root(case.names[int(calls.name[row])], case.signatures[int(calls.signature[row])])
    ]
    return roots[0] if len(roots) == 1 else None


def _needed(situation: Situation, call: int) -> bool:
    if rule_of(situation.op(call)).synchronising:
        return True
    standing, channel = situation.standing, int(situation.heads.channel[call])
    at = standing.at(situation.members(call), channel)
    return bool((standing.last_sync[at[at >= 0]] > int(situation.heads.seq[call])).any())


def _unstarted(situation: Situation, call: int) -> tuple[int, ...] | None:
    """Whose device has not started a call; None where no timing was on, and without a device."""
    if situation.pairs.taken[situation.pairs.of_waiting_call(call)].any():
        return None
    calls = situation.evidence.case.calls
    rows = situation.waiting_rows(call)
    started = calls.started_ns[rows] > 0
    return tuple(sorted(calls.rank[rows[~started]].tolist())) if started.any() else None


@words_for(NotMoving)
def _verdict_of_not_moving(about: NotMoving, claim: Claim) -> Words:
    others = count_of(about.n_calls - 1, "other call")
    more = f" The same holds for {others}." if about.n_calls > 1 else ""
    return Words(
        _told_standstill(about) + more,
        (
            *_started(about),
            _nobody_missing(about, named=bool(claim.culprits)),
            *(f"Also stuck with all members in it: {call}." for call in about.others),
        ),
        alternatives=(
            *((_OTHER_TAGS,) if about.tags_unknown else ()),
            *((_OTHER_ROOT,) if about.out and about.root is not None else ()),
            *claim.kind.alternatives,
            *_order_of_launches(about),
        ),
        actions=(
            *((_PRINT_TAGS,) if about.tags_unknown else ()),
            *claim.kind.actions,
            *((_ONE_ORDER,) if about.at_once else ()),
        ),
    )


def _order_of_launches(about: NotMoving) -> tuple[str, ...]:
    if not about.at_once:
        return ()
    groups = ", ".join(about.at_once)
    text = (
        f"Another rank may have launched the communicators in flight at once on one device "
        f"({groups}) in another order, so that they block each other."
    )
    return (text,)


def _told_standstill(about: NotMoving) -> str:
    inside = rank_phrase(about.inside)
    if about.out:
        return f"{subject(about.out)} finished {about.call}; {inside} did not."
    if about.exchange:
        return f"Both sides are in {about.call} of {inside}, and it makes no progress."
    return f"{begun(all_of(about.size, 'member'))} in {about.call}, and it makes no progress."


def _nobody_missing(about: NotMoving, *, named: bool) -> str:
    if about.out or named:
        return f"No rank is missing from it: all {about.size} members have called it."
    return "No rank is missing from it, so no rank is named."


def _started(about: NotMoving) -> tuple[str, ...]:
    """Who started, where the recorder had timing on."""
    if about.unstarted is None:
        return ()
    if not about.unstarted:
        return ("All of them have started it on their devices.",)
    return (f"Started on all devices but those of {rank_phrase(about.unstarted)}.",)
