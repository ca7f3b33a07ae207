"""Not stuck but slow: who arrives last, how often, how late, and since when.

Only finished collectives count that all members with dumps have made. Ranks are late where a few of
them keep the others waiting for a good part of the time, by more than the clocks may be wrong.
Ranks of different roles (stages of a pipeline, by their sends and receives) are not compared: their
order is the program's. Clocks are set by the moments at which synchronising calls finished, which
is one moment for all members, seen by each when its watchdog next looked.

Hosts run ahead of their devices: a rank that has made the next sixty calls already waits for a rank
that comes late to the first of them, once. So no rank counts as there before the call before is
over, and calls that followed at once, when the late rank came, are the same lateness.

Some rank comes last to every call. So ranks are late only where they came last more often than that
would have let any rank: tested for each call that can show it, and held against all groups,
choices of ranks and beginnings among which they were found.
"""

from __future__ import annotations

from collections import defaultdict
from math import comb, exp, log

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.matching.meetings import LEAST_CALLS, Meetings, hosts_of, meetings_of
from unhang.analysis.state.columns import Floats, Ints
from unhang.analysis.state.index import Evidence

_SHARE = {False: 0.14, True: 0.03}
_OFTEN = 0.6
_LEAST_MS = {False: 5.0, True: 1.0}
_ERRORS = 3.0
_APART = 0.5
_BY_CHANCE = 0.05
"""How probable chance may be as the reason: for one diagnosis, over all that it looked at. Healthy
jobs that satisfied all other conditions had 0.09 or more; ranks that were really late at most 0.016
(eight of eight calls of a pair, next to another pair)."""

_LEAST_COST_MS = {False: 250.0, True: 0.0}
"""How long the others must have waited in all. A healthy job's first six calls cost 140 ms by the
order in which its ranks began; a rank that is 40 ms late to a dozen calls, 480."""


class Late(Struct, frozen=True):
    """Ranks that keep one group waiting.

    Attributes:
        ranks: Rank indices.
        others: The members that wait for them, by index.
        last: In how many of the calls one of them came last.
        calls: How many there are since it began.
        ahead: How many more the others had made ahead, each counted with one of these.
        median_ms: How late they come then.
        share: Part of the time that the others spend waiting for them.
        since: Sequence number of the first call to which they were late; -1 if from the beginning.
        rows: Their rows of the call to which they came latest.
        clocks_set: Whether clocks of hosts could be compared.
        chance: How probable it is that some ranks of a group come last so often by chance; at most.
    """

    channel: int
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    last: int
    calls: int
    ahead: int
    median_ms: float
    share: float
    since: int
    rows: tuple[int, ...]
    clocks_set: bool
    chance: float


def late_ranks(evidence: Evidence, *, eager: bool) -> list[Late]:
    """Ranks that arrive late, channel by channel, the worst first.

    A rank that is itself kept waiting by others for about as long is late because of them.
    """
    found = [_late_in(evidence, meetings, eager=eager) for meetings in meetings_of(evidence)]
    late = [each for each in found if each is not None and each.chance * len(found) < _BY_CHANCE]
    kept_waiting: dict[int, float] = defaultdict(float)
    for each in late:
        for rank in each.others:
            kept_waiting[rank] = max(kept_waiting[rank], each.median_ms)
    mutual = {rank for each in late for rank in each.ranks} & set(kept_waiting)
    own = []
    for each in late:
        ranks = tuple(
            rank
            for rank in each.ranks
            if rank not in mutual or kept_waiting[rank] < _APART * each.median_ms
        )
        if ranks:
            rows = tuple(row for r, row in zip(each.ranks, each.rows, strict=True) if r in ranks)
            own.append(replace(each, ranks=ranks, rows=rows))
    return sorted(own or late, key=lambda each: (-each.share, each.ranks))


def _late_in(evidence: Evidence, meetings: Meetings, *, eager: bool) -> Late | None:
    """The few ranks that keep a channel waiting, if there are such."""
    arrived = meetings.arrived
    early = np.sort(arrived, axis=1)[:, (arrived.shape[1] - 1) // 4]
    lateness = arrived - early[:, None]
    few = _apart(np.median(lateness[len(lateness) // 2 :], axis=0))
    if not few.any():
        return None
    start = _change_point(lateness[:, few].mean(axis=1))
    since = lateness[start:]
    median = np.median(since[:, few], axis=0)
    surely = median - _ERRORS * meetings.clocks.error_ms[few]
    often = float(np.mean(since[:, few].mean(axis=1) > _APART * float(median.mean())))
    share = _waited(arrived[start:], few)
    if len(since) < LEAST_CALLS or often < _OFTEN or share < _SHARE[eager]:
        return None
    if share * float(np.ptp(arrived[start:])) < _LEAST_COST_MS[eager]:
        return None
    if surely.min() < _LEAST_MS[eager] or not (start or is_comparable(evidence, meetings)):
        return None
    latest = start + int(np.argmax(since[:, few].mean(axis=1)))
    last = few[np.argmax(arrived[start:], axis=1)]
    return Late(
        channel=meetings.channel,
        ranks=tuple(meetings.ranks[few].tolist()),
        others=tuple(meetings.ranks[~few].tolist()),
        last=int(last.sum()),
        calls=len(since),
        ahead=int(meetings.ahead[start:].sum()),
        median_ms=float(median.mean()),
        share=share,
        since=int(meetings.seqs[start]) if start else -1,
        rows=tuple(meetings.rows[latest, few].tolist()),
        clocks_set=meetings.clocks.set,
        chance=_chance(arrived[start:], few) * (len(arrived) if start else 1),
    )


def _chance(arrived: Floats, few: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    """How probable it is that any so many ranks come last so often, if it is as likely for all.

    Two sign tests: how often one of them came last of all, and how often all of them came after
    all others. Calls to which several came last at once tell nothing.
    """
    others, own = arrived[:, ~few].max(axis=1), arrived[:, few]
    told = own.max(axis=1) != others
    choices = comb(len(few), int(few.sum()))
    one = _tail((own.max(axis=1) > others)[told], few.sum() / len(few))
    every = _tail((own.min(axis=1) > others)[told], 1 / choices)
    least, tests = min(one, every), 2 if few.sum() > 1 else 1
    return exp(min(0.0, log(least) + log(tests * choices))) if least > 0 else 0.0


def _tail(happened: np.ndarray[tuple[int], np.dtype[np.bool_]], share: float) -> float:
    """The probability that what has this share happens at least so often."""
    calls = len(happened)
    times = range(int(happened.sum()), calls + 1)
    return float(sum(comb(calls, n) * share**n * (1 - share) ** (calls - n) for n in times))


def _apart(lateness: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The few ranks, at most half, that stand apart from all others; none if none do."""
    order = np.argsort(lateness, kind="stable")
    gaps = np.diff(lateness[order])
    first = len(gaps) // 2
    widest = first + int(np.argmax(gaps[first:]))
    few = np.zeros(len(lateness), np.bool_)
    if gaps[widest] >= _APART * lateness[order[-1]] > 0:
        few[order[widest + 1 :]] = True
    return few


def _waited(arrived: Floats, few: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    """Share of the time between the arrival of all others and that of the few, overlaps once."""
    begins, ends = arrived[:, ~few].max(axis=1), arrived[:, few].max(axis=1)
    span = float(arrived.max() - arrived.min())
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    covered = np.r_[-np.inf, np.maximum.accumulate(ends)[:-1]]
    waited = np.maximum(ends - np.maximum(begins, covered), 0).sum()
    return float(waited) / span if span > 0 else 0.0


def _change_point(values: Floats) -> int:
    """Where a series rises for good: the lowest point of its cumulated deviation; 0 for nowhere."""
    if len(values) < 2 * LEAST_CALLS:
        return 0
    summed = np.cumsum(values - values.mean())
    at = int(np.argmin(summed)) + 1
    before, after = values[:at], values[at:]
    if len(after) < LEAST_CALLS or np.median(before) > np.median(after) / 2:
        return 0
    return at


def is_comparable(evidence: Evidence, meetings: Meetings) -> bool:
    """Whether a lag from the beginning can be distinguished from a clock that is off."""
    return meetings.clocks.set or _one_clock(evidence, meetings.ranks)


def _one_clock(evidence: Evidence, ranks: Ints) -> bool:
    """Whether all of these ranks are known to be on one host."""
    hosts = set(hosts_of(evidence, ranks))
    return len(hosts) == 1 and "" not in hosts
