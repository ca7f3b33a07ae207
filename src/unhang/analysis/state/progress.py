"""How far each rank has come in each channel, and how well that is known.

A dump is a window: what a rank's buffer still shows. Before the window a call is unknown, never
missing; after its end it has not been made, but only where the dump could have shown it. Counters
(`pg_status`) fill in what dumps of unfinished calls leave out.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Bools, Ints, chunks, first_and_last
from unhang.analysis.state.completion import mixing
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.recorders import flags_of
from unhang.case import JOINED_BY_ENTRIES
from unhang.model import DumpStatus
from unhang.spans import distinct, union

NEVER = np.iinfo(np.int64).max
"""A sequence number that no call has."""


class Known(IntEnum):
    """How it is known that a rank made no call beyond its last one in a channel."""

    UNKNOWN = 0
    PRESUMED = 1
    INFERRED = 2
    SURE = 3


class Stage(IntEnum):
    """How far a member is with one call of its channel."""

    UNKNOWN = 0
    NOT_CALLED = 1
    OPEN = 2
    FINISHED = 3


class Standing(Struct, frozen=True, eq=False):
    """One row per rank and channel about which anything is known, by ascending key.

    Attributes:
        keys: Index of the rank times number of channels, plus channel.
        first_seen, reach: Sequence numbers of the first visible and of the last call made; -1.
        open_from: Smallest sequence number that is visibly unfinished; NEVER if none.
        last_row: Row of the last visible call; -1 if none is visible.
        last_sync: Largest sequence number of a finished synchronising call; -1 if none.
        known: `Known`, of the end of the window.
        counted: Last enqueued call by the counters; -1 where they cannot tell.
        by_rank: Per rank and backend, `Known` for channels that have no row here.
        done: Per channel, the last call that any member is known to have finished, by its entries
            or its counters; -1 if none.
    """

    n_channels: int
    keys: Ints
    first_seen: Ints
    reach: Ints
    open_from: Ints
    last_row: Ints
    last_sync: Ints
    known: Ints
    counted: Ints
    by_rank: Ints
    done: Ints

    def at(self, ranks: Ints, channel: Ints | int) -> Ints:
        """Row of each (rank index, channel); -1 where there is none."""
        wanted = ranks * self.n_channels + channel
        if not len(self.keys):
            return np.full(wanted.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        found = (self.keys[at] == wanted) & (ranks >= 0)
        return np.where(found, at, -1)

    def stages(self, ranks: Ints, channel: Ints | int, seq: Ints | int) -> tuple[Ints, Ints]:
        """Where ranks stand relative to call `seq` of a channel, and how well that is known.

        Returns:
            `Stage` and `Known` of each.
        """
        at = self.at(ranks, channel)
        has = at >= 0
        reach = np.where(has, self.reach[at], -1) if len(self.keys) else at
        opened = np.where(has, self.open_from[at], NEVER) if len(self.keys) else at
        known = (
            np.where(has, self.known[at], self.unseen(ranks, channel))
            if len(self.keys)
            else (self.unseen(ranks, channel))
        )
        called = has & (reach >= seq)
        stage = np.where(called, np.where(opened <= seq, Stage.OPEN, Stage.FINISHED), Stage.UNKNOWN)
        absent = ~called & (known > Known.UNKNOWN)
        stage = np.where(absent, Stage.NOT_CALLED, stage)
        return stage, np.where(called, Known.SURE, known)

    def unseen(self, ranks: Ints, channel: Ints | int) -> Ints:
        """`Known` for ranks in a channel about which nothing is recorded."""
        backend = np.broadcast_to(np.asarray(channel) % self.by_rank.shape[1], ranks.shape)
        return np.where(ranks >= 0, self.by_rank[ranks, backend], Known.UNKNOWN)


def stand(evidence: Evidence) -> Standing:
    """Find how far each rank has come in each channel."""
    keys, first, last, sync = _visible(evidence)
    counted_keys, counted, completed, exact = _counters(evidence)
    every = union(keys, counted_keys)
    at, counted_at = np.searchsorted(every, keys), np.searchsorted(every, counted_keys)
    seq = evidence.case.calls.seq

    def spread(where: Ints, values: Ints, missing: int) -> Ints:
        column = np.full(len(every), missing, np.int64)
        column[where] = values
        return column

    by_rank = _known_by_rank(evidence)
    n_backends = len(evidence.backends)
    known = by_rank[every // evidence.n_channels, every % n_backends]
    entries_show = spread(at, np.ones(len(at), np.int64), 0) > 0
    # An entry that is still open shows that nothing later is hidden, whatever was left out.
    known = np.where(entries_show & (known == Known.PRESUMED), Known.SURE, known)
    how = spread(counted_at, np.where(exact, Known.SURE, Known.INFERRED), Known.UNKNOWN)
    known = np.maximum(known, how)
    visible = spread(at, seq[last], -1)
    counters = spread(counted_at, counted, -1)
    last_sync = spread(at, np.where(sync >= 0, seq[sync], -1), -1)
    opened, ended = _open_from(evidence, every), spread(counted_at, completed, -1)
    ended = np.where(ended < opened, ended, -1)  # else it contradicts the rank's own entries
    return Standing(
        n_channels=evidence.n_channels,
        keys=every,
        first_seen=spread(at, seq[first], -1),
        reach=np.maximum(visible, counters),
        open_from=opened,
        last_row=spread(at, last, -1),
        last_sync=last_sync,
        known=known,
        counted=counters,
        by_rank=by_rank,
        done=_done(evidence.n_channels, every, last_sync, ended),
    )


def _done(n_channels: int, keys: Ints, *finished: Ints) -> Ints:
    """Per channel: the last call that any member has finished."""
    done = np.full(n_channels, -1, np.int64)
    for each in finished:
        np.maximum.at(done, keys % n_channels, each)
    return done


def _visible(evidence: Evidence) -> tuple[Ints, Ints, Ints, Ints]:
    """Key, first row, last row and last finished synchronising row of every rank and channel."""
    starts = np.asarray([dump.start for dump in evidence.dumps], np.int64)
    lengths = np.asarray([dump.stop - dump.start for dump in evidence.dumps], np.int64)
    n_channels, name = evidence.n_channels, evidence.case.calls.name
    parts: list[tuple[Ints, ...]] = []
    for begin, end in chunks(lengths, n_channels):
        rows, position = _rows_of(starts[begin:end], lengths[begin:end])
        wanted = evidence.collective[rows] & (evidence.case.calls.seq[rows] >= 0)
        if not wanted.all():
            rows, position = rows[wanted], position[wanted]
        local = position * n_channels + evidence.channel(rows)
        size = (end - begin) * n_channels
        keys, first, last = first_and_last(local, rows, size)
        synced = evidence.finished[rows] & evidence.names.synchronising[name[rows]]
        sync_keys, _, sync_last = first_and_last(local[synced], rows[synced], size)
        last_sync = np.full(len(keys), -1, np.int64)
        last_sync[np.searchsorted(keys, sync_keys)] = sync_last
        owner = evidence.owner[begin:end][keys // n_channels]
        parts.append((owner * n_channels + keys % n_channels, first, last, last_sync))
    if not parts:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty, empty
    return _merged(parts)


def _rows_of(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """All rows of some dumps, and the position of each row's dump among them."""
    position = np.repeat(np.arange(len(starts)), lengths)
    before = np.cumsum(lengths) - lengths
    rows = np.arange(len(position)) - np.repeat(before - starts, lengths)
    return rows, position


def _merged(parts: list[tuple[Ints, ...]]) -> tuple[Ints, Ints, Ints, Ints]:
    """Join chunks by ascending key; should two dumps of a rank share a channel, one counts."""
    keys, first, last, sync = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    keep = np.r_[keys[1:] != keys[:-1], True] if len(keys) else np.zeros(0, np.bool_)
    return keys[keep], first[order][keep], last[order][keep], sync[order][keep]


def _open_from(evidence: Evidence, keys: Ints) -> Ints:
    rows = evidence.open_rows
    rows = rows[evidence.collective[rows] & (evidence.case.calls.seq[rows] >= 0)]
    opened = np.full(len(keys), NEVER, np.int64)
    if len(rows):
        wanted = evidence.owner_of(rows) * evidence.n_channels + evidence.channel(rows)
        at = np.searchsorted(keys, wanted)
        np.minimum.at(opened, at, evidence.case.calls.seq[rows])
    return opened


def _counters(evidence: Evidence) -> tuple[Ints, Ints, Ints, Bools]:
    """Last enqueued and last completed collective per key, where the counters count collectives.

    Gloo counts every operation, P2P included, and NCCL writes the number of whichever kind came
    last: so only channels of device recorders in which no rank has made P2P calls are used. torch's
    hook counts what the backend was asked for, calls that it did not record included.
    """
    status, n_backends = evidence.case.group_status, len(evidence.backends)
    owner = np.full(len(evidence.case.dumps), -1, np.int64)
    backend = np.zeros(len(evidence.case.dumps), np.int64)
    counts = flags_of(evidence.recorders, lambda recorder: recorder.counts_calls)
    for index, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        owner[dump.index] = index
        backend[dump.index] = evidence.backends.index(dump.backend) if dump.backend else 0
    backend_of = backend[status.dump]
    channel = np.asarray(status.group, np.int64) * n_backends + backend_of
    usable = (status.group >= 0) & (owner[status.dump] >= 0) & counts[backend_of]
    usable &= ~np.isin(channel, _mixed_channels(evidence))
    keys = owner[status.dump][usable] * evidence.n_channels + channel[usable]
    keys, at = np.unique(keys, return_index=True)
    counted = np.asarray(status.last_enqueued, np.int64)[usable][at]
    completed = np.asarray(status.last_completed, np.int64)[usable][at]
    return keys, counted, completed, np.asarray(status.joined_by == JOINED_BY_ENTRIES)[usable][at]


def _mixed_channels(evidence: Evidence) -> Ints:
    """Channels in which some rank has made P2P calls."""
    rows = np.flatnonzero(mixing(evidence.case.calls, ~evidence.collective))
    return distinct(evidence.channel(rows))


def _known_by_rank(evidence: Evidence) -> Ints:
    """What a rank's dump proves about a channel that it shows nothing of."""
    table = np.zeros((max(len(evidence.ranks), 1), len(evidence.backends)), np.int64)
    proofs = np.asarray(_proofs(evidence), np.int64)
    backends = {name: number for number, name in enumerate(evidence.backends)}
    column = np.asarray([backends.get(dump.backend, -1) for dump in evidence.dumps], np.int64)
    for number in range(len(evidence.backends)):
        covers = (column == number) | (column < 0)
        np.maximum.at(table[:, number], evidence.owner[covers], proofs[covers])
    return table


def _proofs(evidence: Evidence) -> list[int]:
    """`Known` for each dump: how well it shows that a call was not made."""
    unknown, presumed, sure = int(Known.UNKNOWN), int(Known.PRESUMED), int(Known.SURE)
    whole = DumpStatus.OK
    status = evidence.case.group_status
    counting = set(status.dump[status.last_enqueued >= 0].tolist())
    others_are = any(dump.active_only for dump in evidence.dumps)
    found = []
    for dump in evidence.dumps:
        # An empty dump does not say that it was to hold unfinished calls only: counters that
        # moved, or the dumps of its peers, do.
        emptied = dump.start == dump.stop and (others_are or dump.index in counting)
        partial = emptied or dump.active_only or dump.first_record_id > 0
        found.append(unknown if dump.status is not whole else presumed if partial else sure)
    return found
