"""Not stuck but slow: who arrives last, how often, how late, and since when (UH501).

Only finished collectives count that all members with dumps have made. A rank is late where it alone
keeps the others waiting for a good part of the time. Ranks of different roles (stages of a
pipeline, by their sends and receives) are not compared: their order is the program's. Clocks are
set by the moments at which synchronising calls finished, which is one moment for all members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unhang.analysis.evidence import Evidence, Ints
from unhang.analysis.picture import Picture
from unhang.report import Confidence, Finding, GroupRef
from unhang.wording import count_of, rank_phrase

__all__ = ["Late", "late_findings", "late_ranks"]

Floats = npt.NDArray[np.float64]

_MOST_CALLS = 1000
_LEAST_CALLS = 5
_SHARE = {False: 0.10, True: 0.02}
_OFTEN = 0.5
_LEAST_MS = 5.0
_ALONE = 0.5


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Collectives of one channel: who arrived when, in ms after the first arrival of all.

    Attributes:
        ranks: Dense ranks, the columns.
        seqs: Sequence numbers, the rows.
        rows: Rows of the calls.
        arrived: (calls, ranks), clocks set where they could be.
        clocks_set: Whether moments of completion allowed it.
    """

    channel: int
    ranks: Ints
    seqs: Ints
    rows: Ints
    arrived: Floats
    clocks_set: bool


@dataclass(frozen=True, slots=True)
class Late:
    """One rank that keeps one group waiting.

    Attributes:
        rank: Dense.
        last: In how many of the calls it came last.
        calls: How many there are since it began.
        median_ms: How late it comes then, after the median of the others.
        share: Part of the group's time that is spent waiting for it.
        since: Sequence number of the first call to which it was late; -1 if from the beginning.
        row: Its row of the call to which it came latest.
        clocks_set: Whether clocks of hosts could be compared.
    """

    rank: int
    channel: int
    last: int
    calls: int
    median_ms: float
    share: float
    since: int
    row: int
    clocks_set: bool


def late_findings(picture: Picture, *, eager: bool) -> list[Finding]:
    """One finding for each rank that keeps others waiting, the worst first.

    Args:
        picture: The situation.
        eager: Report small shares too, since somebody asked.
    """
    by_rank: dict[int, list[Late]] = defaultdict(list)
    for late in late_ranks(picture.evidence, eager=eager):
        by_rank[late.rank].append(late)
    found = [max(lates, key=lambda late: late.share) for lates in by_rank.values()]
    found.sort(key=lambda late: (-late.share, late.rank))
    return [_explain(picture, late, len(by_rank[late.rank])) for late in found]


def late_ranks(evidence: Evidence, *, eager: bool) -> list[Late]:
    """Ranks that arrive late, channel by channel."""
    found = (_late_in(evidence, meetings, eager=eager) for meetings in _meetings(evidence))
    return [late for late in found if late is not None]


def _late_in(evidence: Evidence, meetings: _Meetings, *, eager: bool) -> Late | None:
    """The rank that keeps a channel waiting, if there is one."""
    arrived = meetings.arrived
    order = np.sort(arrived, axis=1)
    waited = order[:, -1] - order[:, -2]
    last = np.argmax(arrived, axis=1)
    lost = np.bincount(last, weights=waited, minlength=arrived.shape[1])
    worst = int(np.argmax(lost))
    lateness = arrived[:, worst] - np.median(np.delete(arrived, worst, axis=1), axis=1)
    start = _change_point(lateness)
    since = slice(start, None)
    span = float(arrived[-1].max() - arrived[start].min())
    often = float(np.mean(last[since] == worst))
    median = float(np.median(lateness[since]))
    share = float(np.maximum(lateness[since], 0).sum()) / span if span > 0 else 0.0
    if len(lateness) - start < _LEAST_CALLS or often < _OFTEN or median < _LEAST_MS:
        return None
    if share < _SHARE[eager] or lost[worst] < _ALONE * float(waited.sum()):
        return None
    if not start and not meetings.clocks_set and not _one_clock(evidence, meetings.ranks):
        return None
    latest = start + int(np.argmax(lateness[since]))
    return Late(
        rank=int(meetings.ranks[worst]),
        channel=meetings.channel,
        last=int(np.sum(last[since] == worst)),
        calls=len(lateness) - start,
        median_ms=median,
        share=min(share, 1.0),
        since=int(meetings.seqs[start]) if start else -1,
        row=int(meetings.rows[latest, worst]),
        clocks_set=meetings.clocks_set,
    )


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


def _one_clock(evidence: Evidence, ranks: Ints) -> bool:
    """Whether all of these ranks are known to be on one host."""
    hosts = {dump.rank: dump.host for dump in evidence.dumps}
    names = {hosts.get(int(evidence.ranks.numbers[rank]), "") for rank in ranks.tolist()}
    return len(names) == 1 and "" not in names


def _meetings(evidence: Evidence) -> Iterator[_Meetings]:
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
        ranks = np.unique(owner[begin:end])
        if len(ranks) < 2 or len(np.unique(roles[ranks])) > 1:  # noqa: PLR2004 - it takes two
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
    """A number per dense rank: ranks with the same sends and receives, by name, have the same."""
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
) -> _Meetings | None:
    """The calls of a channel that all of its ranks with dumps made."""
    numbers, counts = np.unique(seq, return_counts=True)
    whole = numbers[counts == len(ranks)]
    if len(whole) < _LEAST_CALLS:
        return None
    calls = evidence.case.calls
    table = rows[np.isin(seq, whole)].reshape(len(whole), len(ranks))
    created, completed = calls.created_ns[table], calls.completed_ns[table]
    origin = int(created.min())
    arrived = (created - origin) / 1e6
    timed = (completed > 0).all(axis=1)
    timed &= evidence.names.synchronising[calls.name[table[:, 0]]]
    clocks_set = int(timed.sum()) >= _LEAST_CALLS
    if clocks_set:
        ended = completed[timed] - origin
        offset = np.median(ended - np.median(ended, axis=1, keepdims=True), axis=0) / 1e6
        arrived = arrived - offset
    return _Meetings(channel, ranks, whole, table, arrived, clocks_set)


def _explain(picture: Picture, late: Late, channels: int) -> Finding:
    case = picture.evidence.case
    group = case.groups[picture.evidence.group_of(late.channel)]
    rank = int(picture.evidence.ranks.numbers[late.rank])
    others = tuple(sorted(member for member in group.members if member != rank))
    began = f" since #{late.since}" if late.since >= 0 else ""
    name = case.names[int(case.calls.name[late.row])].op
    return Finding(
        id="",
        code="UH501",
        role="observation",
        confidence=_confidence(late),
        summary=(
            f"Not stuck but slow: rank {rank} comes last to the calls of {group.label}{began}, by "
            f"{late.median_ms:,.0f} ms, and its peers wait for it {late.share:.0%} of the time."
        ),
        culprits=(rank,),
        victims=others,
        group=GroupRef(group.name, group.description, group.size),
        seq=late.since if late.since >= 0 else None,
        op=name,
        sites=picture.book.sites_of_rows(np.asarray([late.row], np.int64), "culprit"),
        evidence=(
            (
                f"Last in {late.last} of {count_of(late.calls, 'call')} that {rank_phrase(others)} "
                "made too."
            ),
            *((f"The same in {channels - 1} other groups.",) if channels > 1 else ()),
            _clock_sentence(late),
        ),
        alternatives=(
            "It does more work than its peers (logging, evaluation, uneven data).",
            "Its host or GPU is slower: clocks, temperature, neighbours on the same machine.",
        ),
        actions=(
            f"Profile rank {rank} beside a peer: unhang stacks --samples 5, py-spy record.",
            "Compare clocks and throttling: nvidia-smi -q -d CLOCK,PERFORMANCE.",
        ),
    )


def _confidence(late: Late) -> Confidence:
    return "high" if late.clocks_set else "medium"


def _clock_sentence(late: Late) -> str:
    if late.clocks_set:
        return "Clocks were compared by the moments at which calls finished."
    return "Clocks could not be compared; it was not late from the beginning, or shares its host."
