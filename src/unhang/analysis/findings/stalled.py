"""Claims about calls in which everybody is, about which all agree, and that still do not move.

Nobody to blame, only some out of it, or a device that has stopped while its host went on. Such a
rank has called everything that its peers wait for, so it is not missing anywhere. What gives it
away is completion: in several groups at once it has not finished calls that its peers have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.matching.roots import Root
from unhang.analysis.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.ops import rule_of
from unhang.analysis.state.progress import Stage
from unhang.kinds import (
    DEVICE_BEHIND,
    JOINED_NOT_PROGRESSING,
    PARTLY_FINISHED,
    TIMEOUTS_DIFFER,
)

__all__ = [
    "DeviceBehind",
    "DeviceNeverStarted",
    "Lag",
    "NotMoving",
    "RankLags",
    "Timeouts",
    "explain_joined",
    "has_stopped_device",
]

_ENOUGH_GROUPS = 2
_MOST_SHOWN = 4


# ------------------------------------------------------------------ all in it, nothing moves


class NotMoving(Struct, frozen=True):
    """Calls in which everybody is and that do not move.

    Attributes:
        call: Name of the one with most ranks in it.
        others: Names of the next ones.
        n_calls: How many there are.
        inside, out: Ranks in the first call, and members that have come out of it.
        size: Members of its group.
        exchange: It is a send and a receive.
        unstarted: Ranks whose device has not started it; None where no timing tells.
        at_once: Groups of which one rank in it has calls open at once; empty if of one only.
        tags_unknown: Its backend matches by tag, and nobody knows the tags of both sides.
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


class Timeouts(Struct, frozen=True):
    """Time-outs of one call by the ranks that have them, shortest first; in seconds."""

    call: str
    ranks: tuple[tuple[float, tuple[int, ...]], ...]


def explain_joined(situation: Situation, roots: Sequence[Root]) -> list[Claim]:
    """Explain calls in which all members are and agree.

    A stopped device is a claim of its own; the rest is told together, the call with most ranks in
    it first.
    """
    found, stuck = [], []
    for root in roots:
        stopped = _behind_on_device(situation, np.asarray(root.ranks, np.int64))
        unstarted = _unstarted_few(situation, np.asarray(root.ranks, np.int64))
        if len(stopped):
            found.append(_device_behind(situation, root.waiting_calls[0], stopped))
        elif len(unstarted):
            found.append(_never_started(situation, root.waiting_calls[0], unstarted))
        else:
            stuck.append(root)
    if stuck:
        found.append(_not_moving(situation, stuck))
        found += _unlike_timeouts(situation, stuck)
    return found


def _not_moving(situation: Situation, roots: Sequence[Root]) -> Claim:
    def weight(root: Root) -> tuple[int, int]:
        return len(root.ranks), -root.waiting_calls[0]

    calls = [c for root in sorted(roots, key=weight, reverse=True) for c in root.waiting_calls]
    call, inside = calls[0], np.unique([rank for root in roots for rank in root.ranks])
    nodes = situation.graph.n_ranks + np.asarray(calls, np.int64)
    about = _standstill(situation, calls)
    culprits = _left_behind(situation, call, about)
    reached = situation.victims(situation.graph.reaching(nodes))
    rows: Ints = situation.heads.row[inside]
    untimed = not (situation.evidence.case.calls.created_ns[rows] > 0).any()
    return Claim(
        kind=PARTLY_FINISHED if about.out else JOINED_NOT_PROGRESSING,
        about=about,
        culprits=culprits,
        victims=tuple(rank for rank in reached if rank not in culprits),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=situation.sides_by_row(rows, "culprit" if culprits else "victim"),
        sites=situation.book.sites_of_rows(rows, "culprit" if culprits else "victim"),
        doubts=(Doubt.NOBODY_ABSENT, *((Doubt.AGE_UNKNOWN,) if untimed else ())),
    )


def _unlike_timeouts(situation: Situation, roots: Sequence[Root]) -> list[Claim]:
    """Calls whose members give up at different times: the first to do so looks like the culprit."""
    claims = []
    for call in [c for root in roots for c in root.waiting_calls][:_MOST_SHOWN]:
        rows = situation.heads.row[situation.heads.inside(call)]
        calls = situation.evidence.case.calls
        limits, ranks = calls.timeout_ms[rows], calls.rank[rows]
        sides = tuple(
            (limit / 1000, tuple(sorted(ranks[limits == limit].tolist())))
            for limit in np.unique(limits[limits > 0]).tolist()
        )
        if len(sides) > 1:
            about = Timeouts(situation.label(call), sides)
            group, seq, op = situation.group_ref(call), situation.seq(call), situation.op(call)
            claims.append(Claim(kind=TIMEOUTS_DIFFER, about=about, group=group, seq=seq, op=op))
    return claims


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
    groups = np.unique(evidence.case.calls.group[own]).tolist()
    labels = tuple(evidence.case.groups[number].label for number in groups[:_MOST_SHOWN])
    return labels if len(groups) > 1 else ()


def _left_behind(situation: Situation, call: int, about: NotMoving) -> tuple[int, ...]:
    """The few who did not come out of what most came out of, where they were needed for that.

    They were if the call needs everybody, or if those who are out finished a later one that does.
    """
    few = 2 * len(about.out) > about.size and len(about.out) > len(about.inside)
    if situation.may_be_several(int(situation.heads.channel[call])):
        return ()
    return about.inside if about.out and few and _needed(situation, call) else ()


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
    rows = situation.heads.row[situation.heads.inside(call)]
    started = calls.started_ns[rows] > 0
    return tuple(sorted(calls.rank[rows[~started]].tolist())) if started.any() else None


# ------------------------------------------------------------------ devices


class Lag(Struct, frozen=True):
    """One group in which a rank is behind in completion.

    Attributes:
        group: Label.
        finished: Last call that it has finished.
        peers: Last call that some peer has finished.
        enqueued: Last call that it has made.
    """

    group: str
    finished: int
    peers: int
    enqueued: int


class RankLags(Struct, frozen=True):
    """Where one rank is behind: in how many groups, and the longest of these lags."""

    rank: int
    n_groups: int
    lags: tuple[Lag, ...]


class DeviceBehind(Struct, frozen=True):
    """Ranks whose device finishes nothing any more, while their hosts went on."""

    call: str
    ranks: tuple[RankLags, ...]


class DeviceNeverStarted(Struct, frozen=True):
    """Ranks whose device never started what it runs on all others.

    Attributes:
        started: How many members did.
        size: Of how many.
    """

    call: str
    started: int
    size: int


def _device_behind(situation: Situation, call: int, stopped: Ints) -> Claim:
    culprits = situation.named(stopped)
    distance = situation.graph.reaching(stopped)
    node = situation.graph.reaching(np.asarray([situation.graph.n_ranks + call], np.int64))
    victims = {*situation.victims(distance), *situation.victims(node)} - set(culprits)
    rows: Ints = situation.heads.row[stopped]
    return Claim(
        kind=DEVICE_BEHIND,
        about=DeviceBehind(
            situation.label(call),
            tuple(_rank_lags(situation, rank) for rank in stopped.tolist()[:_MOST_SHOWN]),
        ),
        culprits=culprits,
        victims=tuple(sorted(victims)),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=situation.sides_by_row(rows, "culprit"),
        waits=situation.chain(distance),
        sites=situation.book.sites_of_rows(rows, "culprit"),
        doubts=situation.doubts_of_group(call),
    )


def _never_started(situation: Situation, call: int, unstarted: Ints) -> Claim:
    culprits = situation.named(unstarted)
    node = situation.graph.reaching(np.asarray([situation.graph.n_ranks + call], np.int64))
    inside = situation.heads.inside(call)
    rows: Ints = situation.heads.row[unstarted]
    others: Ints = situation.heads.row[inside[~np.isin(inside, unstarted)]]
    return Claim(
        kind=DEVICE_BEHIND,
        about=DeviceNeverStarted(situation.label(call), len(others), situation.group(call).size),
        culprits=culprits,
        victims=tuple(rank for rank in situation.victims(node) if rank not in culprits),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=(
            *situation.sides_by_row(rows, "culprit"),
            *situation.sides_by_row(others, "victim"),
        ),
        sites=(
            *situation.book.sites_of_rows(rows, "culprit"),
            *situation.book.sites_of_rows(others, "victim"),
        ),
        doubts=(Doubt.START_ONLY,),
    )


def _behind_on_device(situation: Situation, inside: Ints) -> Ints:
    """Of the ranks in a call, those whose device has stopped.

    One group is no evidence (a broadcast's source may run ahead, a dump may be a moment older);
    several groups at once are, together with calls enqueued after the one that is stuck.
    """
    behind = [rank for rank in inside.tolist() if len(_lags(situation, rank)) >= _ENOUGH_GROUPS]
    return np.asarray(behind, np.int64)


def has_stopped_device(situation: Situation, ranks: Sequence[int]) -> bool:
    """Whether the device of any of these ranks (indices) has stopped."""
    return bool(len(_behind_on_device(situation, np.asarray(ranks, np.int64))))


def _unstarted_few(situation: Situation, inside: Ints) -> Ints:
    """Of the ranks in a call, the few whose device has not started what it runs on all others."""
    started = situation.evidence.case.calls.started_ns[situation.heads.row[inside]] > 0
    none: Ints = inside[:0]
    if not started.any() or 2 * int(started.sum()) <= len(inside):
        return none
    waiting: Ints = inside[~started]
    return waiting


def _lags(situation: Situation, rank: int) -> list[tuple[int, int, int, int]]:
    """(channel, finished, peers, enqueued) where a rank has open calls that a peer has finished."""
    standing = situation.standing
    low, high = np.searchsorted(
        standing.keys, [rank * standing.n_channels, (rank + 1) * standing.n_channels]
    )
    lags = []
    for at in range(int(low), int(high)):
        channel = int(standing.keys[at]) % standing.n_channels
        finished, enqueued = int(situation.finished_up_to[at]), int(standing.reach[at])
        peers = int(situation.furthest_finished[channel])
        if finished < min(peers, enqueued) and not situation.may_be_several(channel):
            lags.append((channel, finished, peers, enqueued))
    return lags


def _rank_lags(situation: Situation, rank: int) -> RankLags:
    """The lags of a rank, longest first."""
    evidence, lags = situation.evidence, _lags(situation, rank)
    longest = sorted(lags, key=lambda lag: (lag[1] - lag[2], lag[0]))[:_MOST_SHOWN]
    shown = tuple(
        Lag(evidence.case.groups[evidence.group_of(channel)].label, *numbers)
        for channel, *numbers in longest
    )
    return RankLags(int(evidence.ranks.numbers[rank]), len(lags), shown)
