"""Read parts back into dumps: the same rows, in the numbering of the case that reads them.

What a part points at is checked when it is read; its rows are made once all parts are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

import numpy as np

from unhang.bounds import MAX_RANKS, Budget, members_budget
from unhang.case import ORIGIN_UNHANG
from unhang.ingest.columns.decoded import Column, Declared, Decoded, Status
from unhang.ingest.columns.dictionaries import MAX_FRAMES, Dictionaries, clean_text
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.columns.memberships import NOBODY
from unhang.ingest.discover.naming import read_name
from unhang.ingest.parts.filling import LANE, Filling, Sequel, Waiting
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

_MEMBERS_EACH = 64
_INT64 = (1 << 63) - 1
_LEVELS: dict[str, NoteLevel] = {"info": "info", "warning": "warning", "error": "error"}
_LIMITS = {"state": max(State), "origin": ORIGIN_UNHANG, "retired": 1, "is_p2p": 1}


@dataclass(slots=True)
class PartReader:
    """Reads the parts of one case; `filling` makes the rows once all are read."""

    shared: Dictionaries
    pattern: re.Pattern[str] | None = None
    notes: list[Note] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    filling: Filling = field(init=False)
    _kinds: dict[bytes, Column] = field(default_factory=dict)
    _sequels: dict[tuple[int, bytes], Sequel] = field(default_factory=dict)
    _members: dict[tuple[tuple[int, int, int], ...], int] = field(default_factory=dict)
    _budget: Budget = field(default_factory=lambda: members_budget(0))

    def __post_init__(self) -> None:
        self.filling = Filling(self.shared)

    def read(self, data: bytes) -> list[DumpFile]:
        """The dumps of one part; their rows are made later.

        Raises:
            BadPart: It is none, or was spoilt.
        """
        part: Part = unpack(data)
        kinds = self._kinds_of(part.dictionary)
        programs = _programs(part, kinds)
        groups = [self.shared.groups[clean_text(n), clean_text(d)] for n, d in part.groups]
        self._budget.left += _MEMBERS_EACH * len(part.dumps)
        members = [self._numbered(runs) for runs in part.members]
        times = _times(part, programs)
        files = []
        same = _Same(groups, members)
        for dump, timed in zip(part.dumps, times, strict=True):
            made = _decoded(dump, programs, same)
            files.append(self._file(dump, made))
            if made is not None and made.count:
                sequel = self._sequel(kinds, part, dump.program, programs)
                self.filling.dumps.append(_waiting(dump, made, sequel, same, timed))
        self.notes += [
            Note(_LEVELS.get(level, "info"), clean_text(source), clean_text(text))
            for level, source, text in part.notes
        ]
        self.passed_over += map(clean_text, part.passed_over)
        return files

    def _sequel(self, kinds: Column, part: Part, number: int, programs: Sequence[Column]) -> Sequel:
        key = id(kinds), part.programs[number]
        if key not in self._sequels:
            self._sequels[key] = Sequel.of(kinds, programs[number])
        return self._sequels[key]

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

    def _kinds_of(self, data: bytes) -> Column:
        """Kinds of calls in the numbering of the case, looked at once where parts agree."""
        if data not in self._kinds:
            self._kinds[data] = self._translated(decoded(data, Dictionary))
        return self._kinds[data]

    def _translated(self, told: Dictionary) -> Column:
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
        if len(values) % (LANE + 1):
            raise BadPart("its kinds of calls are not whole")
        kinds: Column = values.reshape(LANE + 1, -1).T.copy()
        for at, key in enumerate(PLAIN):
            if key in maps:
                kinds[:, at] = _mapped(kinds[:, at], maps[key], optional=key in ("thread", "stack"))
            elif key in _LIMITS and len(kinds) and not _within(kinds[:, at], 0, _LIMITS[key]):
                raise BadPart(f"it has a {key} that there is not")
        if len(kinds) and kinds[:, LANE].min() < 0:
            raise BadPart("it has a lane that is not there")
        return kinds

    def _numbered(self, runs: tuple[tuple[int, int, int], ...]) -> int:
        """Number of a list of ranks; a list that cannot be is no rank's."""
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


def _programs(part: Part, kinds: Column) -> list[Column]:
    width = np.dtype("<u4" if part.wide else "<u2")
    if any(len(data) % width.itemsize for data in part.programs):
        raise BadPart("a sequence of it is not whole")
    programs = [np.frombuffer(data, width) for data in part.programs]
    lanes: dict[int, int] = {}
    if any(int(each.max(initial=0)) >= max(len(kinds), 1) for each in programs):
        raise BadPart("a sequence of it has a kind of call that is not there")
    for dump in part.dumps:
        if not -2 <= dump.program < len(programs):  # noqa: PLR2004 - unreadable, or without calls
            raise BadPart("a dump of it has calls that are not there")
        if dump.program >= 0:
            if dump.program not in lanes:
                lanes[dump.program] = int(kinds[programs[dump.program], LANE].max(initial=0))
            lane = lanes[dump.program]
            whole = len(dump.starts) == len(LEAPS) + len(DELTAS) * len(dump.lanes)
            if lane >= len(dump.lanes) or not whole:
                raise BadPart("a dump of it has a lane that is not there")
    return programs


_Times = tuple[Column | None, list[Column]]
"""Calls that have times, None for all, and these times."""


def _times(part: Part, programs: Sequence[Column]) -> list[_Times]:
    """The times of each dump."""
    timed, columns = unpacked(part.timed), [unpacked(column) for column in part.times]
    sizes = {len(column) for column in columns}
    if len(columns) != len(TIMES) or len(sizes) != 1:
        raise BadPart("its times are not whole")
    steps, started, completed, duration = columns
    created = np.cumsum(steps)
    started, completed = (
        np.where(values == -_INT64, 0, values + created) for values in (started, completed)
    )
    times = [created, started, completed, duration.view(np.float64)]
    lengths = [len(program) for program in programs]
    counts = [lengths[dump.program] if dump.program >= 0 else 0 for dump in part.dumps]
    own = [max(dump.timed, 0) for dump in part.dumps]
    if sum(own) > len(timed):
        raise BadPart("it has times of calls that are not there")
    if sum(own) < len(timed):
        raise BadPart("its times are not whole")
    _check_timed(timed, np.asarray(own, np.int64), np.asarray(counts, np.int64))
    found: list[_Times] = []
    at = begin = 0
    for dump, count in zip(part.dumps, counts, strict=True):
        every = dump.timed < 0
        end = begin + (count if every else dump.timed)
        chosen = None if every else timed[at : at + dump.timed]
        found.append((chosen, [column[begin:end] for column in times]))
        at, begin = at + max(dump.timed, 0), end
    if sizes != {begin}:
        raise BadPart("its times are not whole")
    return found


def _check_timed(timed: Column, own: Column, counts: Column) -> None:
    """See whether the numbers of each dump's calls that have times ascend, and are there."""
    dump = np.repeat(np.arange(len(own)), own)
    ascend = (timed[1:] > timed[:-1]) | (dump[1:] != dump[:-1])
    if not (ascend.all() and ((timed >= 0) & (timed < counts[dump])).all()):
        raise BadPart("it has times of calls that are not there")


_Pairs = tuple[tuple[int, int], ...]


class _Same:
    """What ranks of one part in step with each other say alike, checked and made once."""

    def __init__(self, groups: Sequence[int], members: Sequence[int]) -> None:
        """Takes, of the part's numbers of groups and of lists of members, those of the case."""

        @cache
        def lanes(told: _Pairs) -> tuple[tuple[int, ...], tuple[int, ...]]:
            """Groups and local ids of pairs."""
            if any(number >= len(groups) for number, _ in told):
                raise BadPart("a dump of it has a group that is not there")
            return tuple(groups[number] for number, _ in told), tuple(local for _, local in told)

        @cache
        def declared(told: tuple[tuple[str, str, int], ...]) -> tuple[Declared, ...]:
            """Groups with their members."""
            if any(number >= len(members) for *_, number in told):
                raise BadPart("a group of it has members that are not there")
            return tuple(
                Declared(clean_text(name), clean_text(description), members[number])
                for name, description, number in told
            )

        @cache
        def statuses(told: tuple[tuple[int, int, int, int], ...]) -> tuple[Status, ...]:
            """Counters."""
            return tuple(Status(*each) for each in told)

        self.lanes, self.declared, self.statuses = lanes, declared, statuses


def _waiting(dump: PartDump, made: Decoded, sequel: Sequel, same: _Same, times: _Times) -> Waiting:
    """A dump whose rows can be made."""
    starts = np.asarray(dump.starts[len(LEAPS) :], np.int64).reshape(len(DELTAS), -1)
    groups, pg_ids = same.lanes(dump.lanes)
    return Waiting(
        decoded=made,
        sequel=sequel,
        groups=groups,
        pg_ids=pg_ids,
        leaps=tuple(dump.starts[: len(LEAPS)]),
        starts=starts,
        timed=times[0],
        times=times[1],
        turns=dump.turns,
    )


def _decoded(dump: PartDump, programs: Sequence[Column], same: _Same) -> Decoded | None:
    """A dump without its rows; None of one that could not be read."""
    if dump.program < -1:
        return None
    same.lanes(dump.lanes)
    used = None if dump.used is None else tuple(zip(*same.lanes(dump.used), strict=True))
    origin = dump.origin
    if origin is not None and any(
        abs(number) > _INT64
        for number in (origin.rank, origin.local_rank, origin.world_size, origin.pid,
                       origin.time_ns, origin.step, origin.dropped,
                       *chain(*(origin.open_tags or ())))
    ):  # fmt: skip
        raise BadPart("a dump of it tells a number beyond 64 bits")
    return Decoded(
        version=clean_text(dump.version),
        comm_lib_version=clean_text(dump.comm_lib_version),
        reported_by=clean_text(dump.reported_by),
        recorder=clean_text(dump.recorder),
        origin=origin,
        declared=same.declared(dump.declared),
        statuses=same.statuses(dump.statuses),
        stop=len(programs[dump.program]) if dump.program >= 0 else 0,
        used=used,
        truncated=dump.truncated,
        few_times=dump.few_times,
        remarks=[clean_text(remark) for remark in dump.remarks],
    )
