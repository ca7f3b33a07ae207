"""Not stuck but slow: who arrives last, how often, how late, and since when.

Only finished collectives count that all members with dumps have made. Ranks are late where a few of
them keep the others waiting for a good part of the time, by more than the clocks may be wrong.
Ranks of different roles (stages of a pipeline, by their sends and receives) are not compared: their
order is the program's. Clocks are set by the moments at which synchronising calls finished, which
is one moment for all members, seen by each when its watchdog next looked.

Hosts run ahead of their devices: whoever has made the next sixty calls already waits for a rank
that comes late to the first of them, once. So nobody counts as there before the call before is
over, and calls that followed at once, when the late rank came, are the same lateness.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import isfinite

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.situation import Situation
from unhang.analysis.state.clocks import Clocks, set_clocks
from unhang.analysis.state.columns import Floats, Ints, distinct
from unhang.analysis.state.index import Evidence
from unhang.kinds import LATE_RANK
from unhang.model import SlowRank
from unhang.report import GroupRef

__all__ = [
    "Late",
    "LateRanks",
    "Meetings",
    "SlowSteps",
    "is_comparable",
    "late_claims",
    "late_ranks",
    "meetings_of",
    "told_slow",
]

_MOST_CALLS = 1000
_LEAST_CALLS = 5
_SHARE = {False: 0.14, True: 0.03}
_OFTEN = 0.6
_LEAST_MS = {False: 5.0, True: 1.0}
_ERRORS = 3.0
_APART = 0.5


class Meetings(Struct, frozen=True):
    """Collectives of one channel: who arrived when.

    Attributes:
        ranks: Indices of ranks, the columns.
        seqs: Sequence numbers, the rows.
        rows: Rows of the calls.
        arrived: (calls, ranks) in ms, clocks set where they could be; not before the last one
            came to the call before.
        ahead: For each, how many calls after it are left out: most had made them already, and
            the rest did at once.
        clocks: How they were set.
    """

    channel: int
    ranks: Ints
    seqs: Ints
    rows: Ints
    arrived: Floats
    ahead: Ints
    clocks: Clocks


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


class LateRanks(Struct, frozen=True):
    """Ranks that keep others waiting; most of it is of the group in which it is worst.

    Attributes:
        group: Its label.
        since: Number of the first call to which they were late; None if from the beginning.
        median_ms: How late they come.
        share: Part of the time that the others spend waiting for them.
        last, calls: In how many of the calls one of them came last.
        ahead: How many more the others had made ahead, each counted with one of these.
        n_others: In how many other groups it is so.
        clocks_set: Whether clocks of hosts could be compared.
    """

    group: str
    since: int | None
    median_ms: float
    share: float
    last: int
    calls: int
    ahead: int
    n_others: int
    clocks_set: bool


class SlowSteps(Struct, frozen=True):
    """A rank that needs longer for its steps than the others, as the watch saw it meanwhile."""

    seen: SlowRank


def told_slow(situation: Situation) -> list[Claim]:
    """The rank that the watch told of, where its calls do not show it; none where it told of none.

    It adds up what each rank needs. Who is late to one call of a step alone, or to one of many
    steps, is seldom last, and costs the others time all the same.
    """
    told, ranks = situation.evidence.case.slow, situation.evidence.ranks.numbers.tolist()
    if told is None or told.rank not in ranks or not isfinite(told.excess + told.late_ms):
        return []
    return [
        Claim(
            kind=LATE_RANK,
            about=SlowSteps(told),
            culprits=(told.rank,),
            victims=tuple(rank for rank in ranks if rank != told.rank),
            doubts=(Doubt.NOT_IN_CALLS,),
        )
    ]


def late_claims(situation: Situation, *, eager: bool) -> list[Claim]:
    """One claim for all ranks that keep others waiting; none where there are none.

    Args:
        situation: All that is known.
        eager: Report small shares too, since somebody asked.
    """
    found = late_ranks(situation.evidence, eager=eager)
    return [_explain(situation, found)] if found else []


def late_ranks(evidence: Evidence, *, eager: bool) -> list[Late]:
    """Ranks that arrive late, channel by channel, the worst first.

    A rank that is itself kept waiting by others for about as long is late because of them.
    """
    found = [_late_in(evidence, meetings, eager=eager) for meetings in meetings_of(evidence)]
    late = [each for each in found if each is not None]
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
    if len(since) < _LEAST_CALLS or often < _OFTEN or share < _SHARE[eager]:
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
    )


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
    if len(values) < 2 * _LEAST_CALLS:
        return 0
    summed = np.cumsum(values - values.mean())
    at = int(np.argmin(summed)) + 1
    before, after = values[:at], values[at:]
    if len(after) < _LEAST_CALLS or np.median(before) > np.median(after) / 2:
        return 0
    return at


def is_comparable(evidence: Evidence, meetings: Meetings) -> bool:
    """Whether a lag that was there from the beginning can be told from a clock that is off."""
    return meetings.clocks.set or _one_clock(evidence, meetings.ranks)


def _one_clock(evidence: Evidence, ranks: Ints) -> bool:
    """Whether all of these ranks are known to be on one host."""
    hosts = set(_hosts(evidence, ranks))
    return len(hosts) == 1 and "" not in hosts


def _hosts(evidence: Evidence, ranks: Ints) -> list[str]:
    known = {dump.rank: dump.host for dump in evidence.dumps}
    return [known.get(int(evidence.ranks.numbers[rank]), "") for rank in ranks.tolist()]


def meetings_of(evidence: Evidence) -> Iterator[Meetings]:
    """Complete collectives of every channel in which ranks of one role meet."""
    rows = _usable_rows(evidence)
    if not len(rows):
        return
    calls = evidence.case.calls
    channel, owner, seq = evidence.channel(rows), evidence.owner_of(rows), calls.seq[rows]
    order = np.lexsort((rows, owner, seq, channel))
    rows, channel, owner, seq = rows[order], channel[order], owner[order], seq[order]
    again = np.zeros(len(rows), np.bool_)
    again[1:] = (channel[1:] == channel[:-1]) & (seq[1:] == seq[:-1]) & (owner[1:] == owner[:-1])
    rows, channel, owner, seq = rows[~again], channel[~again], owner[~again], seq[~again]
    roles = _roles(evidence)
    edges = np.flatnonzero(np.r_[True, channel[1:] != channel[:-1], True])
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        ranks = distinct(owner[begin:end])
        if len(ranks) < 2 or len(distinct(roles[ranks])) > 1:  # noqa: PLR2004 - it takes two
            continue
        found = _complete(evidence, int(channel[begin]), ranks, rows[begin:end], seq[begin:end])
        if found is not None:
            yield found


def _usable_rows(evidence: Evidence) -> Ints:
    """Finished collectives with a time, the last ones of each channel, of dumps that count."""
    calls = evidence.case.calls
    usable = evidence.finished & evidence.collective & (calls.created_ns > 0) & (calls.seq >= 0)
    rows = np.flatnonzero(usable)
    rows = rows[evidence.counts[calls.dump[rows]]]
    newest = np.full(evidence.n_channels, -1, np.int64)
    channel = evidence.channel(rows)
    np.maximum.at(newest, channel, calls.seq[rows])
    recent: Ints = rows[calls.seq[rows] > newest[channel] - _MOST_CALLS]
    return recent


def _roles(evidence: Evidence) -> Ints:
    """A number per rank: ranks with the same sends and receives, by name, have the same."""
    rows = np.flatnonzero(~evidence.collective)
    names: dict[int, set[int]] = defaultdict(set)
    if len(rows):
        pairs = np.stack([evidence.owner_of(rows), evidence.case.calls.name[rows]])
        for owner, name in np.unique(pairs, axis=1).T.tolist():
            names[owner].add(name)
    numbers: dict[frozenset[int], int] = {}
    roles = [
        numbers.setdefault(frozenset(names.get(rank, ())), len(numbers))
        for rank in range(len(evidence.ranks))
    ]
    return np.asarray(roles, np.int64)


def _complete(
    evidence: Evidence, channel: int, ranks: Ints, rows: Ints, seq: Ints
) -> Meetings | None:
    """The calls of a channel that all of its ranks with dumps made."""
    numbers, counts = np.unique(seq, return_counts=True)
    whole = numbers[counts == len(ranks)]
    if len(whole) < _LEAST_CALLS:
        return None
    calls = evidence.case.calls
    table = rows[np.isin(seq, whole)].reshape(len(whole), len(ranks))
    timed = (calls.completed_ns[table] > 0).all(axis=1)
    timed &= evidence.names.synchronising[calls.name[table[:, 0]]]
    origin = int(calls.created_ns[table].min())
    hosts = _hosts(evidence, ranks)
    clocks = set_clocks((calls.completed_ns[table[timed]] - origin) / 1e6, hosts)
    made = (calls.created_ns[table] - origin) / 1e6 - clocks.offset_ms
    arrived, kept, ahead = _each_once(made)
    return Meetings(channel, ranks, whole[kept], table[kept], arrived, ahead, clocks)


def _each_once(made: Floats) -> tuple[Floats, Ints, Ints]:
    """When ranks came to calls that are a meeting of their own; which these are; what follows them.

    Args:
        made: (calls, ranks) in ms.
    """
    over = np.r_[-np.inf, np.maximum.accumulate(made.max(axis=1))[:-1]]
    arrived = np.maximum(made, over[:, None])
    kept, late = [0], np.ptp(arrived, axis=1)
    for call in range(1, len(made)):
        ahead = np.sort(made[call])[(made.shape[1] - 1) // 2] <= over[call]
        if not (ahead and late[call] < _APART * late[kept[-1]]):
            kept.append(call)
    begins = np.asarray(kept, np.int64)
    return arrived[begins], begins, np.diff(np.r_[begins, len(made)]) - 1


def _explain(situation: Situation, found: Sequence[Late]) -> Claim:
    case, worst = situation.evidence.case, found[0]
    group = case.groups[situation.evidence.group_of(worst.channel)]
    culprits = situation.named({rank for late in found for rank in late.ranks})
    others = situation.named({rank for late in found for rank in late.others})
    shown = np.asarray(sorted({row for late in found for row in late.rows}), np.int64)
    since = worst.since if worst.since >= 0 else None
    return Claim(
        kind=LATE_RANK,
        about=LateRanks(
            group=group.label,
            since=since,
            median_ms=worst.median_ms,
            share=worst.share,
            last=worst.last,
            calls=worst.calls,
            ahead=worst.ahead,
            n_others=len(found) - 1,
            clocks_set=worst.clocks_set,
        ),
        culprits=culprits,
        victims=tuple(rank for rank in others if rank not in culprits),
        group=GroupRef(group.name, group.description, group.size),
        seq=since,
        op=case.names[int(case.calls.name[worst.rows[0]])].op,
        sites=situation.book.sites_of_rows(shown, "culprit"),
        doubts=() if worst.clocks_set else (Doubt.CLOCKS_UNSET,),
    )
