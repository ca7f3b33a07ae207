"""Make a part of dumps that were read: kinds of calls, their sequences, times that matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from unhang._version import __version__
from unhang.batches import find_batches
from unhang.case import CALL_DTYPES, Calls
from unhang.ingest.columns.decoded import Column, Decoded, Origin
from unhang.ingest.columns.dictionaries import Dictionaries, parse_op
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.parts.layout import (
    ALWAYS_READ,
    DELTAS,
    LEAPS,
    PLAIN,
    TIMES,
    Dictionary,
    Part,
    PartDump,
    encoded,
    pack,
    packed,
)
from unhang.model import Frame, Note, Signature, State
from unhang.turns import begun_ns, turn_ns

ROOM_FOR_TIMES = 512
"""Bytes a dump up to which all times are kept."""

_BYTES_OF_TIMES = 8 * len(TIMES)
_LAST = 16
_OPEN = 32
_LOOKED_AT = 4
_WIDE = 1 << 16
_INT64 = (1 << 63) - 1


@dataclass(slots=True)
class _Rows:
    """The rows of all dumps of a part, and where those of each begin."""

    columns: dict[str, Column]
    starts: list[int]

    def span(self, dump: int) -> slice:
        """Rows of one dump."""
        return slice(self.starts[dump], self.starts[dump + 1])


def make_part(
    files: Sequence[DumpFile],
    shared: Dictionaries,
    notes: Iterable[Note],
    passed_over: Iterable[str],
    *,
    all_times: bool = False,
) -> tuple[bytes, bool]:
    """Make the bytes of a part's file; also says whether it has some of the times only.

    Args:
        files: Dumps that were read.
        shared: Dictionaries of their rows.
        notes: What was said while they were read.
        passed_over: Files that were no dumps.
        all_times: Keep all times, whatever room they take.
    """
    rows = _rows_of(files)
    lanes, lane, first = _lanes(files, rows)
    table, kind = _kinds(rows, lane, _grown(rows, lane))
    wide = len(table) >= _WIDE
    sequences = kind.astype("<u4" if wide else "<u2")
    numbers: dict[bytes, int] = {}
    programs = [
        numbers.setdefault(sequences[rows.span(at)].tobytes(), len(numbers))
        if item.decoded and item.decoded.count
        else -1
        for at, item in enumerate(files)
    ]
    opened = _opened(files, rows, shared)
    timed, times = _times(files, rows, opened, all_times=all_times)
    dumps = [
        _dump(
            item,
            programs[at],
            lanes[at],
            _starts(rows, at, first[at]),
            timed[at],
            _turns(rows, at, opened),
        )
        for at, item in enumerate(files)
    ]
    chosen = [rows_ for rows_ in timed if rows_ is not None]
    part = Part(
        tool=__version__,
        dictionary=encoded(_dictionary(shared, table)),
        groups=list(shared.groups),
        members=[_runs(members) for members in shared.memberships.lists],
        programs=list(numbers),
        wide=wide,
        dumps=dumps,
        timed=packed(np.concatenate(chosen) if chosen else np.zeros(0, np.int64)),
        times=times,
        notes=[(note.level, note.source, note.text) for note in notes],
        passed_over=list(passed_over),
    )
    return pack(part), any(dump.few_times for dump in dumps)


def _rows_of(files: Sequence[DumpFile]) -> _Rows:
    counts = [item.decoded.count if item.decoded else 0 for item in files]
    decoded = [item.decoded for item in files if item.decoded and item.decoded.count]
    keys = (*PLAIN, *DELTAS, *LEAPS, *TIMES, "pg", "pg_id")
    columns = {
        key: np.concatenate([each.column(key) for each in decoded] or [np.zeros(0, np.int64)])
        for key in keys
    }
    return _Rows(columns, [0, *np.cumsum(counts, dtype=np.int64).tolist()])


def _lanes(
    files: Sequence[DumpFile], rows: _Rows
) -> tuple[list[tuple[tuple[int, int], ...]], Column, list[Column]]:
    """Lanes of each dump (group and local id), the lane of each row, first row of each lane."""
    lane = np.zeros(rows.starts[-1], np.int64)
    lanes, firsts = [], []
    for at in range(len(files)):
        span = rows.span(at)
        pairs = rows.columns["pg"][span].astype(np.int64) << 32
        pairs |= rows.columns["pg_id"][span].astype(np.int64) & 0xFFFFFFFF
        _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        lane[span] = place[inverse.reshape(-1)]
        begins = np.sort(first) + span.start
        pg, pg_id = rows.columns["pg"][begins], rows.columns["pg_id"][begins]
        lanes.append(tuple(zip(pg.tolist(), pg_id.tolist(), strict=True)))
        firsts.append(begins)
    return lanes, lane, firsts


def _grown(rows: _Rows, lane: Column) -> dict[str, Column]:
    """By how much numbers grow from row to row; 0 where a lane or a dump begins."""
    dump = np.repeat(np.arange(len(rows.starts) - 1), np.diff(rows.starts))
    place = dump * (int(lane.max(initial=0)) + 1) + lane
    order = np.argsort(place, kind="stable")
    grown = {}
    for key in DELTAS:
        values = rows.columns[key].astype(np.int64)[order]
        steps = np.zeros(len(values), np.int64)
        steps[1:] = np.where(place[order][1:] == place[order][:-1], np.diff(values), 0)
        grown[key] = np.empty_like(steps)
        grown[key][order] = steps
    for key in LEAPS:
        values = rows.columns[key].astype(np.int64)
        grown[key] = np.zeros(len(values), np.int64)
        grown[key][1:] = np.where(dump[1:] == dump[:-1], np.diff(values), 0)
    return grown


def _kinds(rows: _Rows, lane: Column, grown: dict[str, Column]) -> tuple[Column, Column]:
    """Distinct calls by first use, one a row; the number of each row's."""
    columns = [rows.columns[key].astype(np.int64) for key in PLAIN]
    columns += [grown[key] for key in (*DELTAS, *LEAPS)] + [lane]
    number = np.zeros(len(lane), np.int64)
    for column in columns:
        if len(column) and column.min() != column.max():
            _, code = np.unique(column, return_inverse=True)
            code = number * (int(code.max()) + 1) + code.reshape(-1)
            number = np.unique(code, return_inverse=True)[1].reshape(-1)
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    begins = np.sort(first)
    return np.stack([column[begins] for column in columns], axis=1), place[number.reshape(-1)]


def _starts(rows: _Rows, dump: int, first: Column) -> list[int]:
    """First record id, then the first number of each column and lane."""
    begin, end = rows.starts[dump : dump + 2]
    if begin == end:
        return []
    numbers = [rows.columns[key][first] for key in DELTAS]
    leaps = [rows.columns[key][begin : begin + 1] for key in LEAPS]
    found: list[int] = np.concatenate([*leaps, *numbers]).tolist()
    return found


def _times(
    files: Sequence[DumpFile], rows: _Rows, opened: Column, *, all_times: bool
) -> tuple[list[Column | None], list[bytes]]:
    """Rows of each dump whose times are kept (None: all), and these times."""
    # Of more calls than that not even the readers' bound would hold all times: they are not tried.
    if all_times or rows.starts[-1] * _BYTES_OF_TIMES <= ALWAYS_READ // 2:
        every = _packed_times(rows, np.arange(rows.starts[-1]))
        most = ROOM_FOR_TIMES * max(len(files), 1)
        if all_times or len(msgspec.msgpack.encode(every)) <= most or _room(every) <= most:
            return [None] * len(files), every
    wanted = _wanted(files, rows, opened)
    kept: list[Column | None] = []
    for at in range(len(files)):
        span = rows.span(at)
        kept.append(np.flatnonzero(wanted[span]))
    return kept, _packed_times(rows, np.flatnonzero(wanted))


def _room(times: list[bytes]) -> int:
    import zlib

    return sum(len(zlib.compress(column, 9)) for column in times)


def _packed_times(rows: _Rows, chosen: Column) -> list[bytes]:
    """Times as they follow each other; started and completed as counted from created."""
    created = rows.columns["created_ns"][chosen].astype(np.int64)
    steps = np.diff(created, prepend=np.int64(0))
    found = [packed(steps)]
    for key in ("started_ns", "completed_ns"):
        values = rows.columns[key][chosen].astype(np.int64)
        found.append(packed(np.where(values == 0, -_INT64, values - created)))
    duration = rows.columns["duration_ms"][chosen].astype(np.float64)
    return [*found, packed(duration.view(np.int64))]


def _opened(files: Sequence[DumpFile], rows: _Rows, shared: Dictionaries) -> Column:
    """Calls that have not finished, as far as a dump alone tells."""
    columns = rows.columns
    done = (columns["state"] == State.COMPLETED) | (columns["completed_ns"] > 0)
    batches = find_batches(_calls(files, rows), [parse_op(name) for name in shared.names])
    done |= batches.closed & done[batches.last]
    found: Column = ~done & ~columns["retired"]
    return found


def _turns(rows: _Rows, dump: int, opened: Column) -> tuple[tuple[int, int], ...]:
    """The first open calls of a dump, and how far apart their like usually begin."""
    found = []
    for row in _first_open(rows, dump, opened):
        columns, lane = rows.columns, _lane(rows, dump, row)
        times = (columns[key][lane] for key in ("created_ns", "completed_ns", "retired"))
        begun, alike = begun_ns(*times), ~opened[lane]
        for key in ("name", "stack"):
            alike &= columns[key][lane] == columns[key][row]
        found.append((row - int(rows.starts[dump]), turn_ns(begun[alike])))
    return tuple(found)


def _first_open(rows: _Rows, dump: int, opened: Column) -> list[int]:
    begin, end = rows.starts[dump : dump + 2]
    found: list[int] = (begin + np.flatnonzero(opened[begin:end])[:_LOOKED_AT]).tolist()
    return found


def _lane(rows: _Rows, dump: int, row: int) -> Column:
    """The calls of a dump up to this one that are of its group."""
    begin, pg = rows.starts[dump], rows.columns["pg"]
    lane: Column = begin + np.flatnonzero(pg[begin : row + 1] == pg[row])
    return lane


def _last_over(rows: _Rows, dump: int, row: int) -> int:
    """The call of its group that was seen to end last before this one was the next to do so."""
    lane = _lane(rows, dump, row)
    over = np.where(rows.columns["retired"][lane], rows.columns["completed_ns"][lane], 0)
    over[-1] = -1
    return int(lane[np.argmax(over)])


def _wanted(files: Sequence[DumpFile], rows: _Rows, opened: Column) -> Column:
    """Calls whose times a verdict reads: the last ones, open ones, odd ones."""
    columns = rows.columns
    completed, state = columns["completed_ns"] > 0, columns["state"]
    done = ~opened & ~columns["retired"]
    fresh = done | (state == State.STARTED)
    wanted: Column = completed & (state != State.COMPLETED)
    for at in range(len(files)):
        begin, end = rows.starts[at : at + 2]
        if begin == end:
            continue
        created = columns["created_ns"][begin:end]
        wanted[[begin, begin + int(created.argmin()), begin + int(created.argmax())]] = True
        wanted[max(begin, end - _LAST) : end] = True
        for marked in (opened, fresh):
            found = begin + np.flatnonzero(marked[begin:end])
            wanted[found[:_OPEN]] = wanted[found[-_OPEN:]] = True
        wanted[[_last_over(rows, at, row) for row in _first_open(rows, at, opened)]] = True
    return wanted


def _calls(files: Sequence[DumpFile], rows: _Rows) -> Calls:
    """The rows as the table of a case, for what asks for one."""
    columns = {key: rows.columns.get(key) for key in CALL_DTYPES}
    dump = np.repeat(np.arange(len(files)), np.diff(rows.starts))
    columns |= {"dump": dump, "rank": dump, "group": rows.columns["pg"]}
    return Calls.from_columns({k: v for k, v in columns.items() if v is not None})


def _dump(  # one line of the part, as wide as it is
    item: DumpFile,
    program: int,
    lanes: tuple[tuple[int, int], ...],
    starts: list[int],
    timed: Column | None,
    turns: tuple[tuple[int, int], ...],
) -> PartDump:
    decoded = item.decoded or Decoded()
    return PartDump(
        source=item.source,
        relative=item.relative,
        mtime_ns=item.mtime_ns,
        status=item.status,
        problem=item.problem,
        truncated=decoded.truncated,
        version=decoded.version,
        comm_lib_version=decoded.comm_lib_version,
        reported_by=decoded.reported_by,
        recorder=decoded.recorder,
        origin=_origin(decoded.origin),
        declared=tuple((g.name, g.description, g.members) for g in decoded.declared),
        statuses=tuple((s.pg_id, s.enqueued, s.started, s.completed) for s in decoded.statuses),
        remarks=decoded.remarks,
        program=program if item.decoded else -2,
        lanes=lanes,
        starts=starts,
        used=decoded.used,
        timed=-1 if timed is None else len(timed),
        few_times=decoded.few_times or (timed is not None and len(timed) < decoded.count),
        turns=decoded.window.turns if decoded.few_times and decoded.window else turns,
    )


def _origin(origin: Origin | None) -> Origin | None:
    if origin is None:
        return None
    return replace(
        origin,
        exception_stack=tuple(map(_frame, origin.exception_stack)),
        main_stack=tuple(map(_frame, origin.main_stack)),
    )


def _dictionary(shared: Dictionaries, table: Column) -> Dictionary:
    return Dictionary(
        names=list(shared.names),
        threads=list(shared.threads),
        signatures=[_signature(each) for each in shared.signatures],
        frames=[(frame.function, frame.file, _int(frame.line)) for frame in shared.frames],
        stacks=[list(ids) for ids in shared.stacks],
        kinds=packed(table.T.reshape(-1)),
    )


def _signature(
    signature: Signature,
) -> tuple[list[list[int]], list[list[int]], list[str], list[str]]:
    inputs, outputs = (
        [[_int(size) for size in shape] for shape in side]
        for side in (signature.input_sizes, signature.output_sizes)
    )
    return inputs, outputs, list(signature.input_dtypes), list(signature.output_dtypes)


def _frame(frame: Frame) -> Frame:
    return replace(frame, line=_int(frame.line))


def _int(value: int) -> int:
    """A number of a program's own, which may be any, as one of 64 bits."""
    return max(-_INT64, min(value, _INT64))


def _runs(members: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """A list of ranks as runs of (first, step, count)."""
    if not members:
        return ()
    steps = np.diff(np.asarray(members, np.int64))
    found: list[tuple[int, int, int]] = []
    at = 0
    breaks = [*(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for end in breaks:
        if end >= at and at < len(members):
            step = int(steps[at]) if at < len(steps) else 1
            found.append((members[at], step, end - at + 1))
            at = end + 1
    return (*found, *((each, 1, 1) for each in members[at:]))
