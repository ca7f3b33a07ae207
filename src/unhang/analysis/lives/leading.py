"""A rank whose peers have always waited for it in this call: it may lead them, and have no work.

In a server, a rollout loop or a work queue one rank waits for the next request in its own code, and
the others for that rank, in a broadcast. Such a loop is idle by design: to the dumps and the stacks
of one moment it looks like a rank that never came. What it did before tells them apart.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from unhang.analysis.claims import Claim, Doubt, Observation, Stance
from unhang.analysis.findings.late import Meetings, is_comparable, meetings_of
from unhang.analysis.lives.life import Lives
from unhang.analysis.situation import Situation
from unhang.analysis.sources.stacks import RankLook
from unhang.analysis.state.columns import Ints
from unhang.kinds import NEVER_JOINED

__all__ = ["Leads", "with_leaders"]

_LEAST_TURNS: Final = 5
_ALWAYS: Final = 0.9
"""Share of the turns in which it came last; the first ones and stragglers may differ."""

_MOST: Final = 0.5
"""Share of the time that the others have waited for it there. A server with a request each 0.3 s
has 0.99; of ranks that are merely slow, one that needs half as long again has 0.33."""

_UNSET_MS: Final = 100.0
"""By so much clocks of hosts may differ that nothing in the dumps sets."""

_FOR_WORK: Final = frozenset({"lock", "network", "sleep", "prompt", "native", "user-code"})
"""Where a rank may wait for work that others hand in: a queue, a socket, a prompt. Storage, a data
loader or a process of its own hand in none: who hangs there hangs, however late it always was."""


class Leads(Observation, frozen=True, kw_only=True):
    """The others have waited for it in this call before, nearly always, and most of the time.

    Attributes:
        last, turns: In how many of the turns that all show it came last.
        share: Part of the time that they waited for it there.
    """

    last: int
    turns: int
    share: float


def with_leaders(claim: Claim, situation: Situation, lives: Lives) -> Claim:
    """An absence of one rank, doubted where its peers have always waited for it so."""
    looks = lives.looks_at(claim.culprits)
    if claim.kind is not NEVER_JOINED or len(looks) != 1 or not _may_wait_for_work(looks[0]):
        return claim
    seen = next(
        filter(None, (_leads(situation, each, claim) for each in _calls(situation, claim))), None
    )
    return claim if seen is None else claim.doubted([Doubt.LEADS]).seen(seen, Stance.BESIDE)


def _may_wait_for_work(look: RankLook) -> bool:
    return look.meaning.kind in _FOR_WORK and not (look.held or look.awaits)


def _calls(situation: Situation, claim: Claim) -> list[int]:
    """The waiting calls that a claim is about: one, where group and number name it."""
    return [
        call
        for call in range(situation.heads.n_collective)
        if situation.seq(call) == claim.seq and situation.group_ref(call) == claim.group
    ]


def _leads(situation: Situation, call: int, claim: Claim) -> Leads | None:
    evidence, row = situation.evidence, int(situation.row(call))
    channel, (rank,) = int(situation.heads.channel[call]), claim.culprits
    meetings = next((each for each in meetings_of(evidence) if each.channel == channel), None)
    index = int(evidence.ranks.index_of([rank])[0])
    if meetings is None or index not in meetings.ranks.tolist():
        return None
    turns = _turns(situation, meetings, row)
    mine = meetings.ranks == index
    late = meetings.arrived[turns][:, mine][:, 0] - meetings.arrived[turns][:, ~mine].max(axis=1)
    late = late - (0.0 if is_comparable(evidence, meetings) else _UNSET_MS)
    span = float(np.ptp(meetings.arrived))
    last, share = int((late > 0).sum()), float(late[late > 0].sum()) / span if span > 0 else 0.0
    if len(turns) < _LEAST_TURNS or last < _ALWAYS * len(turns) or share < _MOST:
        return None
    return Leads(source="dumps", ranks=(rank,), last=last, turns=len(turns), share=share)


def _turns(situation: Situation, meetings: Meetings, row: int) -> Ints:
    """Which of the meetings are earlier turns of a call: of its name, from its line."""
    calls = situation.evidence.case.calls
    waiting = np.flatnonzero(meetings.ranks == situation.evidence.owner_of(np.asarray([row]))[0])
    if not len(waiting):
        return np.empty(0, np.int64)
    rows = meetings.rows[:, waiting[0]]
    alike = (calls.name[rows] == calls.name[row]) & (calls.stack[rows] == calls.stack[row])
    return np.flatnonzero(alike)
