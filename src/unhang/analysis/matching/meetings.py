"""Complete collectives, and who arrived at them when: what lateness is judged by.

Only finished collectives count that all members with dumps have made. Ranks of different roles
(stages of a pipeline, by their sends and receives) are not compared: their order is the program's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from unhang.analysis.state.clocks import Clocks, set_clocks
from unhang.analysis.state.columns import Floats, Ints
from unhang.analysis.state.index import Evidence
from unhang.spans import distinct

LEAST_CALLS = 5
"""Of fewer meetings of a group nothing is said."""

_MOST_CALLS = 1000
_APART = 0.5
"""Calls that follow at once belong to the one before, unless they are late by this part of it."""


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
    if len(whole) < LEAST_CALLS:
        return None
    calls = evidence.case.calls
    table = rows[np.isin(seq, whole)].reshape(len(whole), len(ranks))
    timed = (calls.completed_ns[table] > 0).all(axis=1)
    timed &= evidence.names.synchronising[calls.name[table[:, 0]]]
    origin = int(calls.created_ns[table].min())
    hosts = hosts_of(evidence, ranks)
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


def hosts_of(evidence: Evidence, ranks: Ints) -> list[str]:
    """The host of each of these ranks (indices), by its dump; "" where none tells."""
    known = {dump.rank: dump.host for dump in evidence.dumps}
    return [known.get(int(evidence.ranks.numbers[rank]), "") for rank in ranks.tolist()]
