"""Ranks whose device has stopped while their hosts went on.

Such a rank has called everything that its peers wait for, so it is not missing anywhere. What gives
it away is completion: in several groups at once it has not finished calls that its peers have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.roots import Root
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.kinds import Kind, Trait
from unhang.wording import count_of, rank_phrase

DEVICE_BEHIND: Final = Kind(
    "UH105",
    "device-behind",
    "device",
    "The host keeps enqueueing calls, and its device finishes none.",
    traits=Trait.FROM_FAILURE | Trait.FROM_BAD_NODE | Trait.OF_NOW,
    alternatives=(
        ("The watchdog of that process may be stuck, and no longer notice that calls finish."),
    ),
    actions=(
        "Look for Xid errors on its host (dmesg | grep -i xid) and at nvidia-smi -q.",
        "Take the GPU out of service and run unhang doctor on that host.",
    ),
)

_ENOUGH_GROUPS = 2
_MOST_SHOWN = 4


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
    """Ranks whose device no longer finishes calls, while their hosts went on."""

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


def explain_device(situation: Situation, root: Root) -> Claim | None:
    """Explain a call in which all members are by a device that has stopped, or never started it."""
    call, inside = root.waiting_calls[0], np.asarray(root.ranks, np.int64)
    if len(stopped := _behind_on_device(situation, inside)):
        return _device_behind(situation, call, stopped)
    if len(unstarted := _unstarted_few(situation, inside)):
        return _never_started(situation, call, unstarted)
    return None


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


@words_for(DeviceBehind)
def _verdict_of_device_behind(about: DeviceBehind, claim: Claim) -> Words:
    return Words(
        f"The device of {rank_phrase(claim.culprits)} no longer finishes calls: it is stuck at "
        f"{about.call}, which its peers have finished, while its host went on.",
        tuple(map(_told_lags, about.ranks)),
    )


def _told_lags(each: RankLags) -> str:
    shown = "; ".join(
        f"{lag.group}: finished #{lag.finished}, a peer #{lag.peers}, enqueued #{lag.enqueued}"
        for lag in each.lags
    )
    return f"Rank {each.rank} is behind its peers in {count_of(each.n_groups, 'group')}: {shown}."


@words_for(DeviceNeverStarted)
def _verdict_of_device_never_started(about: DeviceNeverStarted, claim: Claim) -> Words:
    size = count_of(about.size, "member")
    return Words(
        f"{subject(claim.culprits)} enqueued {about.call}, but the device never started it; it "
        "runs on all other members.",
        (
            f"Timing was on: {about.started} of {size} started the call on their devices.",
            "All its earlier calls have finished: something else keeps the device busy.",
        ),
        alternatives=("A kernel of the model hangs or runs for very long on that device.",),
    )
