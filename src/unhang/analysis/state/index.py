"""The columns of a case with the questions of the analysis answered once: who, where, finished.

`Evidence` adds to a `Case` what every later step asks of it: which dumps count, the index of
each rank, the channel of a call (its group and recorder), whether it is collective, and whether it
has finished. It draws no conclusions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.completion import finished_rows, unproven_rows
from unhang.analysis.state.ops import Names, names_of
from unhang.analysis.state.recorders import (
    RecorderKind,
    Recorders,
    flags_of,
    recorder_of,
    recorders_of,
)
from unhang.batches import Batches, find_batches
from unhang.case import Case, Dump
from unhang.model import Note
from unhang.spans import distinct


class Ranks(Struct, frozen=True, eq=False):
    """The expected ranks, ascending; their position is their index."""

    numbers: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def index_of(self, ranks: npt.ArrayLike) -> Ints:
        """Indices of global ranks; -1 for a rank that nothing expects."""
        wanted = np.asarray(ranks, np.int64)
        if not len(self.numbers):
            return np.full(wanted.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(self.numbers, wanted), len(self.numbers) - 1)
        return np.where(self.numbers[at] == wanted, at, -1)

    def named(self, indices: npt.ArrayLike) -> tuple[int, ...]:
        """Global ranks of indexs, ascending."""
        return tuple(np.sort(self.numbers[np.asarray(indices, np.int64)]).tolist())


class Evidence(Struct, frozen=True, eq=False):
    """A case, indexed.

    Attributes:
        ranks: All ranks that should be there, group members included.
        dumps: The dumps that count, by ascending first row: usable, of a known rank, and one per
            rank and backend.
        owner: Index of the rank of each of `dumps`.
        backends: Names of the recorders' backends; a call's channel is group and backend.
        recorders: What kind of recorder each of them has.
        batches: Which calls were launched together.
        collective: Per row: not a send or receive, nor the closing entry of a batch of them.
        finished: Per row, see `unhang.analysis.state.completion`.
        counts: Per dump of the case: whether it is one of `dumps`.
        open_rows: Rows that have not finished, ascending, of `dumps` only.
        unseen_ends: Rows of sends and receives that count as finished though they look open, where
            it may be another one, see `unhang.analysis.matching.unseen_ends`.
        unproven: Rows that count as finished though nothing shows their end, only that they were
            made, ascending; see `unhang.analysis.matching.unproven_ends`.
    """

    case: Case
    ranks: Ranks
    dumps: tuple[Dump, ...]
    owner: Ints
    backends: tuple[str, ...]
    recorders: Recorders
    names: Names
    batches: Batches
    collective: Bools
    finished: Bools
    counts: Bools
    open_rows: Ints
    notes: tuple[Note, ...] = field(default=())
    unseen_ends: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    unproven: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def truthful(self) -> Bools:
        """Per backend: its recorder marks a call as completed once its device has finished it."""
        return flags_of(self.recorders, lambda recorder: recorder.marks_ends)

    @property
    def n_channels(self) -> int:
        """Number of possible channels."""
        return max(len(self.case.groups), 1) * len(self.backends)

    def channel(self, rows: Ints | slice) -> Ints:
        """Channel of rows: their group and the backend that recorded them."""
        calls = self.case.calls
        group = np.asarray(calls.group[rows], np.int64)
        if len(self.backends) == 1:
            return group
        return group * len(self.backends) + self.names.backend[calls.name[rows]]

    def group_of(self, channel: int) -> int:
        """Index in `Case.groups` of a channel."""
        return channel // len(self.backends)

    def recorder_of(self, dump: Dump) -> RecorderKind:
        """The kind of recorder that a dump is of."""
        return recorder_of(self.recorders, dump)

    def members(self, channel: int) -> Ints:
        """Indices of the members of a channel's group, in group order; -1 for strangers."""
        return self.ranks.index_of(self.case.groups[self.group_of(channel)].members)

    def owner_of(self, rows: Ints) -> Ints:
        """Index of the rank of each row."""
        return self.ranks.index_of(self.case.calls.rank[rows])


def gather(case: Case) -> Evidence:
    """Index a case.

    Args:
        case: Any case; nothing in it is trusted to be complete.
    """
    ranks = Ranks(_expected(case))
    dumps, notes = _dumps_that_count(case)
    backends, names = names_of(case)
    calls = case.calls
    batches = find_batches(calls, case.names)
    counts = np.zeros(max(len(case.dumps), 1), np.bool_)
    counts[[dump.index for dump in dumps]] = True
    recorders = recorders_of(case, backends)
    finished, more = finished_rows(case, dumps, names, recorders, batches)
    return Evidence(
        case=case,
        ranks=ranks,
        dumps=dumps,
        owner=ranks.index_of([dump.rank for dump in dumps]),
        backends=backends,
        recorders=recorders,
        names=names,
        batches=batches,
        collective=~batches.p2p,
        finished=finished,
        counts=counts,
        open_rows=_open_rows(case, finished, counts),
        unproven=unproven_rows(case, names, recorders, batches, finished),
        notes=(*notes, *more),
    )


def _expected(case: Case) -> Ints:
    parts = [np.arange(case.world_size, dtype=np.int64)]
    parts.append(np.asarray([dump.rank for dump in case.dumps if dump.rank >= 0], np.int64))
    lists = {id(group.members): group.members for group in case.groups}  # many groups share one
    parts.extend(np.asarray(members, np.int64) for members in lists.values())
    every = distinct(np.concatenate(parts))
    return every[every >= 0]


def _dumps_that_count(case: Case) -> tuple[tuple[Dump, ...], list[Note]]:
    """Usable dumps, one per rank and backend: where two claim the same, the newest."""
    rivals: dict[tuple[int, str], list[Dump]] = defaultdict(list)
    for dump in case.dumps:
        if dump.usable and dump.rank >= 0:
            rivals[dump.rank, dump.backend].append(dump)
    chosen, notes = [], []
    for (rank, _), dumps in rivals.items():
        best = dumps[0]
        if len(dumps) > 1:
            best = max(dumps, key=lambda d: (_newest(case, d), d.stop - d.start, d.source))
            others = ", ".join(sorted(dump.source for dump in dumps if dump is not best))
            text = f"Several dumps claim rank {rank}: {best.source} is used, not {others}."
            notes.append(Note("warning", f"rank {rank}", text))
        chosen.append(best)
    chosen = _with_backends(chosen)
    return tuple(sorted(chosen, key=lambda dump: (dump.start, dump.stop, dump.rank))), notes


def _with_backends(dumps: list[Dump]) -> list[Dump]:
    """Dumps that name no backend, since no call is in them, as of that of most of their peers.

    Of several recorders it is one that wrote no other dump of the rank.
    """
    peers = Counter(dump.backend for dump in dumps if dump.backend)
    named = {(dump.rank, dump.backend) for dump in dumps}
    ordered = [backend for backend, _ in peers.most_common()]
    return [
        dump
        if dump.backend
        else replace(dump, backend=next((b for b in ordered if (dump.rank, b) not in named), ""))
        for dump in dumps
    ]


def _newest(case: Case, dump: Dump) -> int:
    created = case.calls.created_ns[dump.start : dump.stop]
    return max(dump.time_ns, int(created.max()) if len(created) else 0)


def _open_rows(case: Case, finished: Bools, counts: Bools) -> Ints:
    rows = np.flatnonzero(~finished)
    opened: Ints = rows[counts[case.calls.dump[rows]]]
    return opened
