"""How the job came to a standstill: what each rank did at some moments, from the times of calls.

It begins with the last call of the verdict's group that all its members finished, and ends with
the last event of all. Its moments are those at which ranks came to the calls that never ended.
Nothing is drawn where the calls have no times, or where no call of the group has been finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from unhang.analysis.picture.waits import call_of_verdict
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.heads import Heads
from unhang.picture import Replay
from unhang.report import Report

_MOST_MOMENTS = 24
_MOST_CELLS = 64_000
"""Characters of all moments: 2,048 ranks have all 24; of more than 21,000 there is no replay."""
_LEAST_MOMENTS = 3
_NEVER = np.iinfo(np.int64).max
_IN_CODE, _IN_CALL, _STUCK, _NOT_KNOWN = ".", "c", "w", "?"


def replay(situation: Situation, report: Report, ahead_ms: Mapping[int, float]) -> Replay | None:
    """The moments from the last good step to the standstill; None where nothing tells.

    Args:
        situation: All that is known.
        report: Its first cause names the call.
        ahead_ms: How far clocks are ahead, by index of the rank.
    """
    call = next(call_of_verdict(situation, report), -1) if report.causes else -1
    if call < 0:
        return None
    begins, ends, owner = _times(situation, ahead_ms)
    good = _last_good(situation, situation.heads, call)
    if not len(good):
        return None
    from_ns = int(begins[good].min())
    moments = _moments(ends, begins, owner, from_ns, len(situation.evidence.ranks))
    states = _states(situation, moments, begins, ends, owner)
    new = [at for at, each in enumerate(states) if not at or each != states[at - 1]]
    if len(new) < _LEAST_MOMENTS:
        return None
    since = tuple(((moments[new] - moments[-1]) / 1e6).round(2).tolist())
    seq = int(situation.evidence.case.calls.seq[good[0]])
    label = situation.label(call).replace(f"#{situation.heads.seq[call]} ", f"#{seq} ")
    return Replay(label, since, tuple(states[at] for at in new))


def _times(situation: Situation, ahead_ms: Mapping[int, float]) -> tuple[Ints, Ints, Ints]:
    """Begin, end and rank of each row, in ns; rows without a time, or that do not count, at -1.

    A call that has not finished ends never. One whose end was not recorded is over at once.
    """
    evidence = situation.evidence
    calls = evidence.case.calls
    owner = evidence.owner_of(np.arange(len(calls.dump)))
    ahead = np.zeros(len(evidence.ranks) + 1, np.int64)
    for rank, ms in ahead_ms.items():
        ahead[rank] = int(ms * 1e6)
    counted = evidence.counts[calls.dump] & (owner >= 0) & (calls.created_ns > 0)
    begins = np.where(counted, calls.created_ns - ahead[owner], -1)
    recorded = np.where(calls.completed_ns > 0, calls.completed_ns - ahead[owner], begins)
    ends = np.where(evidence.finished, np.maximum(recorded, begins), _NEVER)
    return begins, ends, owner


def _last_good(situation: Situation, heads: Heads, call: int) -> Ints:
    """Rows of the newest call of the verdict's group that every member here has finished."""
    evidence = situation.evidence
    calls = evidence.case.calls
    here = (evidence.channel(slice(None)) == heads.channel[call]) & evidence.collective
    rows = np.flatnonzero(here & evidence.counts[calls.dump] & (calls.created_ns > 0))
    before = rows[(calls.seq[rows] < heads.seq[call]) & evidence.finished[rows]]
    numbers, counts = np.unique(calls.seq[before], return_counts=True)
    full = numbers[counts == counts.max(initial=0)]
    found: Ints = before[calls.seq[before] == full[-1]] if len(full) else before
    return found


def _moments(ends: Ints, begins: Ints, owner: Ints, from_ns: int, ranks: int) -> Ints:
    """When a rank came to a call that never ends, or left its last one: as many as have room."""
    stuck = np.full(ranks, _NEVER)
    left = np.full(ranks, -1)
    never = (begins >= from_ns) & (ends == _NEVER)
    over = (begins > 0) & (ends >= from_ns) & (ends != _NEVER)
    np.minimum.at(stuck, owner[never], begins[never])
    np.maximum.at(left, owner[over], ends[over])
    times = np.unique(np.r_[from_ns, stuck[stuck != _NEVER], left[left >= 0]])
    most = min(_MOST_MOMENTS, _MOST_CELLS // max(ranks, 1))
    chosen = np.linspace(0, len(times) - 1, min(most, len(times))).astype(np.int64)
    return times[np.unique(chosen)]


def _states(
    situation: Situation, moments: Ints, begins: Ints, ends: Ints, owner: Ints
) -> tuple[str, ...]:
    """A character for each rank at each moment, ranks in ascending order."""
    rows = np.flatnonzero(begins > 0)
    rows = rows[np.lexsort((begins[rows], owner[rows]))]
    cuts = np.searchsorted(owner[rows], np.arange(len(situation.evidence.ranks) + 1))
    columns = [
        _of_rank(begins[rows[a:b]], ends[rows[a:b]], moments) for a, b in pairwise(cuts.tolist())
    ]
    return tuple("".join(states) for states in zip(*columns, strict=True))


def _of_rank(begins: Ints, ends: Ints, moments: Ints) -> str:
    """What one rank did at each moment: calls that were queued behind others wait for these."""
    if not len(begins):
        return _NOT_KNOWN * len(moments)
    begun = np.searchsorted(begins, moments, side="right")
    last = np.maximum(begun - 1, 0)
    is_stuck = np.maximum.accumulate(ends == _NEVER)[last]
    runs = np.maximum.accumulate(np.where(ends == _NEVER, 0, ends))[last] > moments
    states = np.where(runs, _IN_CALL, np.where(is_stuck, _STUCK, _IN_CODE))
    return "".join(np.where(begun == 0, _NOT_KNOWN, states).tolist())
