"""Device evidence: a rank whose host goes on enqueueing while its device finishes nothing.

Such a rank has called everything that its peers wait for, so it is not missing anywhere. What gives
it away is completion: in several groups at once it has not finished calls that its peers have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unhang.analysis.situation import Situation
from unhang.analysis.state.columns import Ints

__all__ = ["Lag", "behind_on_device", "lags_of", "never_started"]

_ENOUGH_GROUPS = 2


@dataclass(frozen=True, slots=True)
class Lag:
    """One channel in which a rank is behind in completion.

    Attributes:
        finished: Last call that it has finished.
        peers: Last call that some peer has finished.
        enqueued: Last call that it has made.
    """

    channel: int
    finished: int
    peers: int
    enqueued: int


def behind_on_device(situation: Situation, inside: Ints) -> Ints:
    """Of the ranks in a call, those whose device has stopped.

    One group is no evidence (a broadcast's source may run ahead, a dump may be a moment older);
    several groups at once are, together with calls enqueued after the one that is stuck.
    """
    return np.asarray(
        [rank for rank in inside.tolist() if len(lags_of(situation, rank)) >= _ENOUGH_GROUPS],
        np.int64,
    )


def never_started(situation: Situation, inside: Ints) -> Ints:
    """Of the ranks in a call, the few whose device has not started what it runs on all others."""
    calls = situation.evidence.case.calls
    rows = situation.heads.row[inside]
    started = calls.started_ns[rows] > 0
    none: Ints = inside[:0]
    if not started.any() or 2 * int(started.sum()) <= len(inside):
        return none
    waiting: Ints = inside[~started]
    return waiting


def lags_of(situation: Situation, rank: int) -> list[Lag]:
    """Channels in which a rank has open calls that a peer has finished, longest lag first."""
    standing = situation.standing
    low, high = np.searchsorted(
        standing.keys, [rank * standing.n_channels, (rank + 1) * standing.n_channels]
    )
    lags = []
    for at in range(int(low), int(high)):
        channel = int(standing.keys[at]) % standing.n_channels
        finished, enqueued = int(situation.finished_up_to[at]), int(standing.reach[at])
        peers = int(situation.furthest_finished[channel])
        if finished < min(peers, enqueued):
            lags.append(Lag(channel, finished, peers, enqueued))
    return sorted(lags, key=lambda lag: (lag.finished - lag.peers, lag.channel))
