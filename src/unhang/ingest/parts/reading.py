"""Read parts back into dumps: the same rows, in the numbering of the case that reads them.

What a part points at is checked when it is read; its rows are made once all parts are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from unhang.bounds import MAX_RANKS, Budget, members_budget
from unhang.case import ORIGIN_UNHANG
from unhang.ingest.columns.decoded import (
    ROW_DTYPES,
    Column,
    Declared,
    Decoded,
    DumpColumns,
    Status,
)
from unhang.ingest.columns.dictionaries import MAX_FRAMES, Dictionaries, clean_text
from unhang.ingest.columns.memberships import NOBODY
from unhang.ingest.discover.naming import read_name
from unhang.ingest.dumpfiles import DumpFile
from unhang.ingest.parts.layout import (
    DELTAS,
    LEAPS,
    PLAIN,
    TIMES,
    BadPart,
    Dictionary,
    Part,
    PartDump,
    decoded,
    unpack,
    unpacked,
)
from unhang.model import Frame, Note, NoteLevel, Signature, State

__all__ = ["PartReader"]

MOST_ROWS = 1 << 23
"""Calls up to which all rows of parts are made; beyond, each dump is taken as a shorter window."""

_MEMBERS_EACH = 64
_LANE = len(PLAIN) + len(DELTAS) + len(LEAPS)
_INT64 = (1 << 63) - 1
_LEVELS: dict[str, NoteLevel] = {"info": "info", "warning": "warning", "error": "error"}
_LIMITS = {"state": max(State), "origin": ORIGIN_UNHANG, "retired": 1, "is_p2p": 1}


@dataclass(slots=True)
class _Tables:
    """A part's dictionary in the numbering of the case: one row a kind of call."""

    kinds: Column


@dataclass(slots=True)
class _Read:
    """A part whose rows are still to be made."""

    tables: _Tables
    programs: list[Column]
    groups: Column
    dumps: list[tuple[PartDump, Decoded]]
    timed: Column
    times: list[Column]


@dataclass(slots=True)
class PartReader:
    """Reads the parts of one case."""

    shared: Dictionaries
    pattern: re.Pattern[str] | None = None
    notes: list[Note] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    _tables: dict[bytes, _Tables] = field(default_factory=dict)
    _members: dict[tuple[tuple[int, int, int], ...], int] = field(default_factory=dict)
    _budget: Budget = field(default_factory=lambda: members_budget(0))
    _read: list[_Read] = field(default_factory=list)

    def read(self, data: bytes) -> list[DumpFile]:
        """The dumps of one part; their rows come with `fill`.

        Raises:
            BadPart: It is none, or was spoilt.
        """
        part: Part = unpack(data)
        tables = self._tables_of(part.dictionary)
        programs = _programs(part, tables)
        groups = [self.shared.groups[clean_text(n), clean_text(d)] for n, d in part.groups]
        self._budget.left += _MEMBERS_EACH * len(part.dumps)
        members = [self._numbered(tuple(runs)) for runs in part.members]
        times = _times(part, programs)
        files, dumps = [], []
        for dump in part.dumps:
            made = _decoded(dump, programs, groups, members)
            files.append(self._file(dump, made))
            if made is not None:
                dumps.append((dump, made))
        self._read.append(_Read(tables, programs, np.asarray(groups, np.int32), dumps, *times))
        self.notes += [
            Note(_LEVELS.get(level, "info"), clean_text(source), clean_text(text))
            for level, source, text in part.notes
        ]
        self.passed_over += map(clean_text, part.passed_over)
        return files

    def fill(self) -> None:
        """Make the rows of all parts that were read."""
        for part in self._read:
            _fill(part)
        self._read.clear()

    def _file(self, dump: PartDump, made: Decoded | None) -> DumpFile:
        relative = clean_text(dump.relative)
        return DumpFile(
            source=clean_text(dump.source),
            claim=read_name(relative, self.pattern),
            mtime_ns=max(dump.mtime_ns, 0),
            status=dump.status,
            decoded=made,
            problem=clean_text(dump.problem),
            relative=relative,
        )

    def _tables_of(self, data: bytes) -> _Tables:
        """The dictionary in the numbering of the case; looked at once where parts agree."""
        if data not in self._tables:
            self._tables[data] = self._translated(decoded(data, Dictionary))
        return self._tables[data]

    def _translated(self, told: Dictionary) -> _Tables:
        shared = self.shared
        frames = [
            shared.frames[Frame(clean_text(n), clean_text(f), at)] for n, f, at in told.frames
        ]
        if any(number >= len(frames) for ids in told.stacks for number in ids):
            raise BadPart("a stack of it has a frame that is not there")
        maps = {
            "name": [shared.names[clean_text(name)] for name in told.names],
            "thread": [shared.threads[clean_text(name)] for name in told.threads],
            "signature": [shared.signatures[_signature(*each)] for each in told.signatures],
            "stack": [
                shared.numbered_stack(frames[number] for number in ids[:MAX_FRAMES])
                for ids in told.stacks
            ],
        }
        values = unpacked(told.kinds)
        if len(values) % (_LANE + 1):
            raise BadPart("its kinds of calls are not whole")
        kinds = values.reshape(_LANE + 1, -1).T.copy()
        for at, key in enumerate(PLAIN):
            if key in maps:
                kinds[:, at] = _mapped(kinds[:, at], maps[key], optional=key in ("thread", "stack"))
            elif key in _LIMITS and len(kinds) and not _within(kinds[:, at], 0, _LIMITS[key]):
                raise BadPart(f"it has a {key} that there is not")
        if len(kinds) and kinds[:, _LANE].min() < 0:
            raise BadPart("it has a lane that is not there")
        return _Tables(kinds)

    def _numbered(self, runs: tuple[tuple[int, int, int], ...]) -> int:
        """Number of a list of ranks; a list that cannot be is nobody's."""
        if runs not in self._members:
            size = sum(max(count, 0) for _, _, count in runs)
            if not self._budget.take(size):
                raise BadPart("it lists more members of groups than its dumps can vouch for")
            ends = [(first, first + step * (count - 1)) for first, step, count in runs]
            fits = all(0 <= end < MAX_RANKS for pair in ends for end in pair)
            members = tuple(
                first + step * place for first, step, count in runs for place in range(count)
            )
            self._members[runs] = self.shared.memberships.number(members) if fits else NOBODY
        return self._members[runs]


def _within(column: Column, low: int, high: int) -> bool:
    return bool(column.min() >= low and column.max() <= high)


def _mapped(column: Column, numbers: Sequence[int], *, optional: bool) -> Column:
    """Numbers of the part as those of the case; -1 stays where nothing is meant by it."""
    if len(column) and not _within(column, -1 if optional else 0, len(numbers) - 1):
        raise BadPart("a call of it points at what is not there")
    table = np.asarray([*numbers, -1], np.int64)  # the last one is what -1 finds
    return table[column]


def _signature(
    inputs: list[list[int]], outputs: list[list[int]], kinds: list[str], out_kinds: list[str]
) -> Signature:
    return Signature(
        tuple(map(tuple, inputs)),
        tuple(map(tuple, outputs)),
        tuple(map(clean_text, kinds)),
        tuple(map(clean_text, out_kinds)),
    )


def _programs(part: Part, tables: _Tables) -> list[Column]:
    kind = np.dtype("<u4" if part.wide else "<u2")
    if any(len(data) % kind.itemsize for data in part.programs):
        raise BadPart("a sequence of it is not whole")
    programs = [np.frombuffer(data, kind) for data in part.programs]
    if any(int(each.max(initial=0)) >= max(len(tables.kinds), 1) for each in programs):
        raise BadPart("a sequence of it has a kind of call that is not there")
    for dump in part.dumps:
        if not -2 <= dump.program < len(programs):  # noqa: PLR2004 - unreadable, or without calls
            raise BadPart("a dump of it has calls that are not there")
        if dump.program >= 0:
            lane = int(tables.kinds[programs[dump.program], _LANE].max(initial=0))
            whole = len(dump.starts) == len(LEAPS) + len(DELTAS) * len(dump.lanes)
            if lane >= len(dump.lanes) or not whole:
                raise BadPart("a dump of it has a lane that is not there")
    return programs


def _times(part: Part, programs: Sequence[Column]) -> tuple[Column, list[Column]]:
    """Calls of dumps of which some have times, and the times of all that have them."""
    timed, at, total = unpacked(part.timed), 0, 0
    for dump in part.dumps:
        count = len(programs[dump.program]) if dump.program >= 0 else 0
        own = timed[at : at + max(dump.timed, 0)]
        if len(own) < dump.timed or (len(own) and not _within(own, 0, count - 1)):
            raise BadPart("it has times of calls that are not there")
        at += len(own)
        total += count if dump.timed < 0 else dump.timed
    times = [unpacked(column) for column in part.times]
    if at != len(timed) or len(times) != len(TIMES) or any(len(each) != total for each in times):
        raise BadPart("its times are not whole")
    return timed, times


def _decoded(
    dump: PartDump, programs: Sequence[Column], groups: Sequence[int], members: Sequence[int]
) -> Decoded | None:
    """A dump without its rows; None of one that could not be read."""
    if dump.program < -1:
        return None
    pairs = [*dump.lanes, *(dump.used or ())]
    if any(number >= len(groups) for number, _ in pairs):
        raise BadPart("a dump of it has a group that is not there")
    if any(number >= len(members) for *_, number in dump.declared):
        raise BadPart("a group of it has members that are not there")
    origin = dump.origin
    if origin is not None and any(
        abs(number) > _INT64
        for number in (origin.rank, origin.local_rank, origin.world_size, origin.pid,
                       origin.time_ns, origin.step, origin.dropped)
    ):  # fmt: skip
        raise BadPart("a dump of it tells a number beyond 64 bits")
    return Decoded(
        version=clean_text(dump.version),
        comm_lib_version=clean_text(dump.comm_lib_version),
        reported_by=clean_text(dump.reported_by),
        origin=origin,
        declared=tuple(
            Declared(clean_text(name), clean_text(description), members[number])
            for name, description, number in dump.declared
        ),
        statuses=tuple(Status(*each) for each in dump.statuses),
        stop=len(programs[dump.program]) if dump.program >= 0 else 0,
        used=None if dump.used is None else tuple((groups[g], at) for g, at in dump.used),
        truncated=dump.truncated,
        few_times=dump.few_times,
        remarks=[clean_text(remark) for remark in dump.remarks],
    )


def _fill(part: _Read) -> None:
    """Make the rows of one part's dumps."""
    told = [dump for dump, made in part.dumps if made.count]
    counts = np.asarray([made.count for _, made in part.dumps if made.count], np.int64)
    if not told:
        return
    kind = np.concatenate([part.programs[dump.program] for dump in told])
    row = {
        key: part.tables.kinds[:, at] for at, key in enumerate((*PLAIN, *DELTAS, *LEAPS, "lane"))
    }
    columns: dict[str, Column] = {key: row[key].astype(ROW_DTYPES[key])[kind] for key in PLAIN}
    widths = np.asarray([len(dump.lanes) for dump in told], np.int64)
    lane = row["lane"][kind] + np.repeat(np.cumsum(widths) - widths, counts)
    pairs = np.asarray([pair for dump in told for pair in dump.lanes], np.int64).reshape(-1, 2)
    columns["pg"] = part.groups[pairs[:, 0]][lane]
    columns["pg_id"] = pairs[:, 1].astype(np.int32)[lane]
    starts = [np.asarray(dump.starts, np.int64) for dump in told]
    order = np.argsort(lane, kind="stable")
    for at, key in enumerate(DELTAS):
        first = [s[len(LEAPS) :].reshape(len(DELTAS), -1)[at] for s in starts]
        grown = _summed(row[key][kind][order], lane[order], np.concatenate(first))
        columns[key] = np.empty_like(grown)
        columns[key][order] = grown
    dump_of = np.repeat(np.arange(len(told)), counts)
    for at, key in enumerate(LEAPS):
        columns[key] = _summed(row[key][kind], dump_of, np.asarray([s[at] for s in starts]))
    columns |= _spread(part, counts)
    table, ends = DumpColumns(columns), np.cumsum(counts).tolist()
    filled = [made for _, made in part.dumps if made.count]
    for made, count, end in zip(filled, counts.tolist(), ends, strict=True):
        made.table, made.start, made.stop = table, end - count, end


def _summed(steps: Column, segment: Column, first: Column) -> Column:
    """Numbers that grow by `steps` from the first one of their segment on."""
    begins = np.flatnonzero(np.r_[True, segment[1:] != segment[:-1]])
    steps = steps.copy()
    steps[begins] = 0
    summed = np.cumsum(steps)
    lengths = np.diff(np.r_[begins, len(steps)])
    found: Column = summed + np.repeat(first[segment[begins]] - summed[begins], lengths)
    return found


def _spread(part: _Read, counts: Column) -> dict[str, Column]:
    """The times, each at its row; 0 and NaN where none was kept."""
    rows, at, begin = [], 0, 0
    for dump, made in part.dumps:
        if dump.timed < 0:
            rows.append(np.arange(begin, begin + made.count))
        else:
            rows.append(begin + part.timed[at : at + dump.timed])
            at += dump.timed
        begin += made.count
    chosen, size = np.concatenate(rows), int(counts.sum())
    steps, started, completed, duration = part.times
    created = np.cumsum(steps)
    columns = {key: np.zeros(size, np.int64) for key in TIMES[:3]}
    columns["created_ns"][chosen] = created
    for key, values in (("started_ns", started), ("completed_ns", completed)):
        columns[key][chosen] = np.where(values == -_INT64, 0, values + created)
    columns["duration_ms"] = np.full(size, np.nan)
    columns["duration_ms"][chosen] = duration.view(np.float64)
    return columns
