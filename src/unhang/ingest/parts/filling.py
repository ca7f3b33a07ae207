"""Make the rows of parts: all of them, or of a large job each dump's as a shorter window.

A job of 100,000 ranks has 200 million calls, and a verdict reads a few of each rank: those of every
group from the first that any rank has open, and the last ones before. So where there are more than
`MOST_ROWS`, a dump is taken as if its ring had held only these, group by group; the case can make
the rest for the ranks that the reasoning asks about. What is read of a sequence is worked out once
for all ranks that share it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from unhang.batches import find_batches
from unhang.case import CALL_DTYPES, Calls, Window
from unhang.ingest.columns.decoded import (
    ROW_DTYPES,
    Column,
    Decoded,
    DumpColumns,
    active_only,
)
from unhang.ingest.columns.dictionaries import Dictionaries, parse_op
from unhang.ingest.parts.layout import DELTAS, LEAPS, PLAIN, TIMES
from unhang.model import State

MOST_ROWS = 1 << 23
"""Calls up to which all rows are made."""

LANE = len(PLAIN) + len(DELTAS) + len(LEAPS)
_NEVER = 1 << 62
KEPT = 12
"""Calls of each group that are kept before the first that matters."""

FIRST = 256
"""Dumps whose calls are all looked at in any case, and as many that differ from the rest."""

_MEETING = re.compile(r"all_?(?:reduce|gather)|barrier|reduce_?scatter", re.IGNORECASE)
"""Names of calls that need all members; the last one shows that all have come so far."""


@dataclass(slots=True, eq=False)
class Sequel:
    """A sequence of calls that ranks share, and what is read of it.

    Attributes:
        plain: `PLAIN` of each call.
        lane: Of each call.
        grown: `DELTAS` as they have grown since the lane's first call, `LEAPS` since the dump's.
        profile: Where windows of it may begin, once a caller asked.
    """

    plain: Column
    lane: Column
    grown: dict[str, Column]
    profile: _Profile | None = None

    @classmethod
    def of(cls, kinds: Column, program: Column) -> Sequel:
        """The sequence that a program of kinds stands for."""
        rows = kinds[program]
        lane = rows[:, LANE]
        order = np.argsort(lane, kind="stable")
        grown = {}
        for at, key in enumerate(DELTAS):
            summed = np.empty(len(rows), np.int64)
            summed[order] = _summed(rows[order, len(PLAIN) + at], lane[order])
            grown[key] = summed
        for at, key in enumerate(LEAPS):
            steps = rows[:, len(PLAIN) + len(DELTAS) + at]
            grown[key] = _summed(steps, np.zeros(len(rows), np.int64))
        return cls(rows[:, : len(PLAIN)], lane, grown)

    def __len__(self) -> int:
        return len(self.lane)


@dataclass(slots=True, eq=False)
class _Profile:
    """Where the windows of a sequence may begin.

    Attributes:
        rows: Of each lane, its rows.
        opened: Of each lane, by how much the number of its first open call has grown; None if all
            are finished.
        exchanges: Lanes in which a send or receive is open.
        latest: Of each lane, the place among its rows from which calls are always kept.
        begins: Of each lane, for each of its rows the place where its launch begins.
        torchs, first_id: How many of its calls torch recorded, and by how much the id of the first
            of these has grown.
        finished, gaps: Whether any of these has finished, and whether ids are missing among them.
    """

    rows: list[Column]
    opened: list[int | None]
    exchanges: frozenset[int]
    latest: list[int]
    begins: list[Column]
    torchs: int
    first_id: int
    finished: bool
    gaps: bool


@dataclass(slots=True)
class Waiting:
    """A dump whose rows are to be made.

    Attributes:
        groups, pg_ids: Of each lane.
        starts: Of `LEAPS`, and of `DELTAS` for each lane, one row a column.
        timed: Its calls that have times; None for all.
        times: `TIMES` of these.
        turns: Calls of it and how far apart their like are.
    """

    decoded: Decoded
    sequel: Sequel
    groups: tuple[int, ...]
    pg_ids: tuple[int, ...]
    leaps: tuple[int, ...]
    starts: Column
    timed: Column | None
    times: Sequence[Column]
    turns: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Filling:
    """The dumps of all parts of a case.

    Attributes:
        shortened: Some have windows shorter than what was recorded.
    """

    shared: Dictionaries
    dumps: list[Waiting] = field(default_factory=list)
    shortened: bool = False

    def fill(self, whole: Collection[int] = (), *, may_shorten: bool = True) -> bool:
        """Make rows.

        Args:
            whole: Dumps (`id` of their `Decoded`) whose rows are all wanted in any case.
            may_shorten: False where there are dumps next to the parts.

        Returns:
            False, and nothing is made, where that would be too many.
        """
        total = sum(len(each.sequel) for each in self.dumps)
        self.shortened = may_shorten and total > MOST_ROWS
        if not self.shortened:
            self._make([np.arange(len(each.sequel)) for each in self.dumps])
            return True
        wanted = sum(len(each.sequel) for each in self.dumps if id(each.decoded) in whole)
        if wanted > max(MOST_ROWS, 1 << 20):
            return False
        self._make(_Windows(self.dumps, self.shared).chosen(whole))
        return True

    def _make(self, chosen: Sequence[Column]) -> None:
        """Write the chosen rows of all dumps into one table, dump by dump."""
        counts = np.asarray([len(rows) for rows in chosen], np.int64)
        ends = np.cumsum(counts)
        begins = ends - counts
        size = int(ends[-1]) if len(ends) else 0
        columns = {key: np.empty(size, kind) for key, kind in ROW_DTYPES.items()}
        for key in TIMES:
            columns[key][:] = np.nan if key == "duration_ms" else 0
        alike: dict[tuple[int, int], list[int]] = {}
        for at, (each, rows) in enumerate(zip(self.dumps, chosen, strict=True)):
            alike.setdefault((id(each.sequel), id(rows)), []).append(at)
        for places in alike.values():
            self._write(columns, places, chosen[places[0]], begins)
        self._write_times(columns, chosen, begins)
        table = DumpColumns(columns)
        for each, rows, end in zip(self.dumps, chosen, ends.tolist(), strict=True):
            decoded = each.decoded
            decoded.table, decoded.start, decoded.stop = table, end - len(rows), end
            decoded.window = _window(each, rows)

    def _write(
        self, columns: dict[str, Column], places: list[int], rows: Column, begins: Column
    ) -> None:
        """Write the rows of dumps that share a sequence and a window, all at once."""
        if not len(rows):
            return
        dumps = [self.dumps[at] for at in places]
        sequel = dumps[0].sequel
        where = (begins[places][:, None] + np.arange(len(rows))).reshape(-1)
        lane = sequel.lane[rows]
        for at, key in enumerate(PLAIN):
            values = sequel.plain[rows, at].astype(ROW_DTYPES[key])
            columns[key][where] = np.tile(values, len(dumps))
        groups = np.asarray([each.groups for each in dumps], np.int32)
        pg_ids = np.asarray([each.pg_ids for each in dumps], np.int32)
        columns["pg"][where] = groups[:, lane].reshape(-1)
        columns["pg_id"][where] = pg_ids[:, lane].reshape(-1)
        starts = np.stack([each.starts for each in dumps])
        for at, key in enumerate(DELTAS):
            columns[key][where] = (starts[:, at, lane] + sequel.grown[key][rows]).reshape(-1)
        for at, key in enumerate(LEAPS):
            first = np.asarray([each.leaps[at] for each in dumps], np.int64)
            columns[key][where] = (first[:, None] + sequel.grown[key][rows]).reshape(-1)

    def _write_times(
        self, columns: dict[str, Column], chosen: Sequence[Column], begins: Column
    ) -> None:
        """Write times at their rows, where these were chosen."""
        alike: dict[tuple[int, int, bytes], list[int]] = {}
        for at, (each, rows) in enumerate(zip(self.dumps, chosen, strict=True)):
            timed = b"" if each.timed is None else each.timed.tobytes()
            alike.setdefault((id(rows), len(each.times[0]), timed), []).append(at)
        for dumps in alike.values():
            self._write_times_of(dumps, columns, chosen[dumps[0]], begins)

    def _write_times_of(
        self, places: list[int], columns: dict[str, Column], rows: Column, begins: Column
    ) -> None:
        """Write the times of dumps that have them of the same calls."""
        first = self.dumps[places[0]]
        timed = np.arange(len(first.sequel)) if first.timed is None else first.timed
        if not len(rows) or not len(timed):
            return
        place = np.minimum(np.searchsorted(rows, timed), len(rows) - 1)
        there = rows[place] == timed
        where = (begins[places][:, None] + place[there]).reshape(-1)
        for at, key in enumerate(TIMES):
            values = np.concatenate([self.dumps[dump].times[at] for dump in places])
            columns[key][where] = values.reshape(len(places), -1)[:, there].reshape(-1)


class _Windows:
    """Chooses rows of dumps: of each group from the first call that any rank has open."""

    def __init__(self, dumps: Sequence[Waiting], shared: Dictionaries) -> None:
        self.dumps = dumps
        self.names = [*shared.names]
        self.open_from: dict[int, int] = {}
        self.exchanging: set[int] = set()
        self.known: dict[tuple[int, tuple[int, ...]], Column] = {}
        for each in dumps:
            profile = self._profile(each.sequel)
            for lane, grown in enumerate(profile.opened):
                if grown is not None:
                    number, group = int(each.starts[0, lane]) + grown, each.groups[lane]
                    self.open_from[group] = min(self.open_from.get(group, number), number)
            self.exchanging |= {each.groups[lane] for lane in profile.exchanges}

    def chosen(self, whole: Collection[int]) -> list[Column]:
        """Rows of each dump; sends and receives that may be counted from the first on, whole.

        So are the first ranks, and those with a sequence that few have: a rule asks about them.
        """
        shared_by = Counter(id(each.sequel) for each in self.dumps)
        few = max(len(self.dumps) // 100, 1)
        odd = [id(each.decoded) for each in self.dumps if shared_by[id(each.sequel)] <= few]
        whole = {*whole, *(id(each.decoded) for each in self.dumps[:FIRST]), *odd[:FIRST]}
        every = {id(each.sequel): np.arange(len(each.sequel)) for each in self.dumps}
        found = self._rows(every, whole, self.exchanging)
        if sum(map(len, found)) > max(2 * MOST_ROWS, 1 << 20):
            found = self._rows(every, whole, ())
        return found

    def _rows(
        self, every: dict[int, Column], whole: Collection[int], entire: Collection[int]
    ) -> list[Column]:
        self.known.clear()
        return [
            every[id(each.sequel)] if id(each.decoded) in whole else self._window(each, entire)
            for each in self.dumps
        ]

    def _window(self, dump: Waiting, entire: Collection[int]) -> Column:
        """Rows of one dump, the same for dumps that share a sequence and need as much of it."""
        grown = [
            0 if group in entire else self.open_from.get(group, _NEVER) - start
            for group, start in zip(dump.groups, dump.starts[0].tolist(), strict=True)
        ]
        key = id(dump.sequel), tuple(grown)
        if key not in self.known:
            self.known[key] = self._rows_from(dump.sequel, grown)
        return self.known[key]

    def _rows_from(self, sequel: Sequel, grown: Sequence[int]) -> Column:
        """Rows of each lane from a call on, a few before it, and the last ones."""
        profile = self._profile(sequel)
        parts = [np.zeros(0, np.int64)]
        for lane, rows in enumerate(profile.rows):
            reached = np.flatnonzero(sequel.grown["seq"][rows] >= grown[lane])
            first = int(reached[0]) if len(reached) else len(rows)
            at = min(profile.latest[lane], max(first - KEPT, 0)) if grown[lane] else 0
            parts.append(rows[int(profile.begins[lane][at]) if at < len(rows) else at :])
        return np.sort(np.concatenate(parts))

    def _profile(self, sequel: Sequel) -> _Profile:
        if sequel.profile is None:
            sequel.profile = _profile_of(sequel, self.names)
        return sequel.profile


def _profile_of(sequel: Sequel, names: Sequence[str]) -> _Profile:
    plain = {key: sequel.plain[:, at] for at, key in enumerate(PLAIN)}
    columns = {key: np.zeros(len(sequel), kind) for key, kind in CALL_DTYPES.items()}
    columns |= {**plain, **sequel.grown, "group": sequel.lane}
    batches = find_batches(Calls.from_columns(columns), [parse_op(name) for name in names])
    by_retirement = np.asarray([name.startswith("gloo:") for name in names] + [False])
    done = (plain["state"] == State.COMPLETED) | (
        (plain["retired"] > 0) & (by_retirement[plain["name"]] | (plain["origin"] > 0))
    )
    done |= batches.closed & done[batches.last]
    meeting = np.asarray([bool(_MEETING.search(name)) for name in names] + [False])[plain["name"]]
    rows = [np.flatnonzero(sequel.lane == at) for at in range(int(sequel.lane.max(initial=-1)) + 1)]
    opened: list[int | None] = []
    latest, begins, exchanges = [], [], set()
    for lane, own in enumerate(rows):
        still = own[~done[own]]
        opened.append(int(sequel.grown["seq"][still].min()) if len(still) else None)
        if batches.p2p[still].any():
            exchanges.add(lane)
        met = np.flatnonzero(done[own] & meeting[own])
        first = np.flatnonzero(~done[own])
        at = min([len(own), *met[-1:].tolist(), *first[:1].tolist()])
        latest.append(max(at - KEPT, 0))
        same = np.ones(len(own), np.bool_)
        same[1:] = (np.diff(sequel.grown["seq"][own]) != 0) | (
            np.diff(sequel.grown["p2p_seq"][own]) != 0
        )
        begins.append(np.maximum.accumulate(np.where(same, np.arange(len(own)), 0)))
    torchs = plain["origin"] == 0
    ids = sequel.grown["record_id"][torchs]
    ended = (plain["state"] == State.COMPLETED) | (plain["retired"] > 0)
    return _Profile(
        rows=rows,
        opened=opened,
        exchanges=frozenset(exchanges),
        latest=latest,
        begins=begins,
        torchs=len(ids),
        first_id=int(ids[0]) if len(ids) else 0,
        finished=bool(ended[torchs].any()),
        gaps=bool((np.diff(ids) > 1).any()),
    )


def _window(dump: Waiting, rows: Column) -> Window | None:
    """What is known of a dump whose rows are not all there."""
    left_out = len(dump.sequel) - len(rows)
    if not left_out and not dump.decoded.few_times:
        return None
    turns = tuple(
        (place, turn)
        for row, turn in dump.turns
        if (place := int(np.searchsorted(rows, row))) < len(rows) and rows[place] == row
    )
    if not left_out or dump.sequel.profile is None:
        return Window(turns=turns)
    profile, created = dump.sequel.profile, dump.times[0]
    return Window(
        left_out=left_out,
        first_record_id=dump.leaps[0],
        first_ns=max(int(created.min()), 0) if len(created) else 0,
        turns=turns,
        active_only=active_only(
            dump.leaps[0] + profile.first_id,
            profile.torchs,
            finished=profile.finished,
            gaps=profile.gaps,
        ),
    )


def _summed(steps: Column, segment: Column) -> Column:
    """Numbers that grow by `steps` from 0 at the first one of their segment."""
    begins = np.flatnonzero(np.r_[True, segment[1:] != segment[:-1]])[: len(steps)]
    summed = np.cumsum(steps)
    lengths = np.diff(np.r_[begins, len(steps)])
    found: Column = summed - np.repeat(summed[begins], lengths)
    return found
