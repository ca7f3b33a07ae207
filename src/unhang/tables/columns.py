"""A case and its verdict as numpy columns, a dictionary a table: what the database is filled from.

Bulk columns are handed over as they are; strings of calls are taken from the case's dictionaries by
number, in the database. It knows nothing of SQL but that lists travel as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from unhang.case import Case
from unhang.model import Frame, ProcessSample
from unhang.report import Report
from unhang.stacks.ownership import is_library
from unhang.tables.schema import SCHEMA

__all__ = ["CHUNK_ROWS", "Coded", "Columns", "StackTable", "call_chunks", "small_tables"]


class Coded(NamedTuple):
    """A column of strings as numbers in a list of them: made strings by the database."""

    numbers: npt.NDArray[Any]
    texts: npt.NDArray[Any]


Columns: TypeAlias = Mapping[str, "npt.NDArray[Any] | Coded"]

CHUNK_ROWS = 1_000_000
"""Calls handed over at once: what bounds the memory that the database takes for them."""

_INT64 = np.iinfo(np.int64)
_STATES = ("scheduled", "started", "completed", "failed")
_ORIGINS = ("torch", "unhang")
_JOINED_BY = ("entries", "order", "")


def _texts(values: Iterable[str]) -> npt.NDArray[Any]:
    """Make a column of strings that are valid UTF-8 (halves of characters are escaped)."""
    clean = [value.encode("utf-8", "backslashreplace").decode("utf-8") for value in values]
    column = np.empty(len(clean), object)
    column[:] = clean
    return column


def _numbers(values: Iterable[int | None]) -> npt.NDArray[np.int64]:
    """Make a column of integers; None becomes -1, and what no file can mean is clipped."""
    return np.fromiter(
        (min(max(-1 if v is None else int(v), _INT64.min), _INT64.max) for v in values), np.int64
    )


def _bools(values: Iterable[bool | None]) -> npt.NDArray[Any]:
    return np.array(list(values), object)


def _lists(values: Iterable[Sequence[Any]]) -> npt.NDArray[Any]:
    """Make a column of lists, as the JSON text that the database casts."""
    return _texts(json.dumps(value, ensure_ascii=False) for value in values)


def _take(dictionary: Sequence[str], index: npt.NDArray[Any]) -> Coded:
    """Take strings by index; -1 takes the empty string."""
    return Coded(np.where(index < 0, len(dictionary), index), _texts([*dictionary, ""]))


def call_chunks(case: Case, collective: npt.NDArray[np.int64]) -> Iterator[Columns]:
    """Yield the columns of `calls`, at most `CHUNK_ROWS` rows at once.

    Args:
        case: For its calls.
        collective: Which collective each is part of.
    """
    names = {
        "name": [name.raw for name in case.names],
        "op": [name.op for name in case.names],
        "backend": [name.backend for name in case.names],
    }
    src = _numbers([name.src for name in case.names])
    dst = _numbers([name.dst for name in case.names])
    c = case.calls
    for start in range(0, len(c), CHUNK_ROWS):
        rows = slice(start, min(start + CHUNK_ROWS, len(c)))
        name = c.name[rows]
        yield {
            "call_id": np.arange(rows.start, rows.stop),
            "dump_id": c.dump[rows],
            "rank": c.rank[rows],
            "group_id": c.group[rows],
            "collective_id": collective[rows],
            **{key: _take(of, name) for key, of in names.items()},
            "src_group_rank": src[name],
            "dst_group_rank": dst[name],
            "state": _take(_STATES, c.state[rows]),
            "origin": _take(_ORIGINS, c.origin[rows]),
            "signature_id": c.signature[rows],
            "stack_id": c.stack[rows],
            "thread": _take(case.threads, c.thread[rows]),
            **{key: getattr(c, key)[rows] for key in _AS_RECORDED},
        }


_AS_RECORDED = (
    "seq",
    "p2p_seq",
    "op_id",
    "record_id",
    "is_p2p",
    "retired",
    "created_ns",
    "started_ns",
    "completed_ns",
    "duration_ms",
    "timeout_ms",
)


@dataclass(slots=True)
class StackTable:
    """All stacks of a case, those of samples and of main threads beside those of calls."""

    case: Case
    frames: dict[Frame, int] = field(default_factory=dict)
    extra: dict[tuple[Frame, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.frames = {frame: index for index, frame in enumerate(self.case.stacks.frames)}

    def number(self, frames: tuple[Frame, ...]) -> int:
        """Return the number of a stack that no call has, adding it; -1 for the empty one."""
        if not frames:
            return -1
        return self.extra.setdefault(frames, len(self.case.stacks) + len(self.extra))

    def columns(self) -> dict[str, Columns]:
        """Return `stacks`, `stack_frames` and `frames`."""
        stacks = self.case.stacks
        ids = [self.frames.setdefault(f, len(self.frames)) for s in self.extra for f in s]
        frame_ids = np.concatenate([stacks.frame_ids, np.array(ids, np.int64)]).astype(np.int64)
        depths = np.concatenate([np.diff(stacks.offsets), [len(s) for s in self.extra]]).astype(int)
        starts = np.cumsum(depths) - depths
        owners = np.repeat(np.arange(len(depths)), depths)
        places = np.arange(len(frame_ids)) - starts[owners]
        frames = list(self.frames)
        return {
            "frames": {
                "frame_id": np.arange(len(frames)),
                "function": _texts(f.function for f in frames),
                "file": _texts(f.file for f in frames),
                "line": _numbers(f.line for f in frames),
            },
            "stack_frames": {"stack_id": owners, "depth": places, "frame_id": frame_ids},
            "stacks": {
                "stack_id": np.arange(len(depths)),
                "depth": depths,
                "site_frame_id": _sites(frames, frame_ids, owners, len(depths)),
            },
        }


def _sites(
    frames: Sequence[Frame],
    frame_ids: npt.NDArray[np.int64],
    owners: npt.NDArray[np.int64],
    count: int,
) -> npt.NDArray[np.int64]:
    """Innermost frame of each stack that is the user's own; else its very innermost."""
    own = np.array([not is_library(frame) for frame in frames], bool)
    sites = np.full(count, -1, np.int64)
    for rows in (np.arange(len(frame_ids)), np.flatnonzero(own[frame_ids])):
        # Of equal indices the last assignment counts: going backwards leaves the innermost.
        sites[owners[rows][::-1]] = frame_ids[rows][::-1]
    return sites


def small_tables(case: Case, report: Report | None, tool_version: str) -> dict[str, Columns]:
    """Return the columns of all tables but `calls` and `collectives`."""
    stacks = StackTable(case)
    tables: dict[str, Columns] = {
        "meta": _meta(case, report, tool_version),
        "ranks": _ranks(case, report),
        "dumps": _dumps(case, stacks),
        "groups": _groups(case),
        "members": _members(case),
        "signatures": _signatures(case),
        "processes": _processes(case.samples),
        "threads": _threads(case.samples, stacks),
        "group_status": _group_status(case),
        "log_events": _log_events(case),
        "findings": _findings(report),
        "notes": _notes(case, report),
    }
    return tables | stacks.columns()


def _meta(case: Case, report: Report | None, tool_version: str) -> Columns:
    facts = {
        "schema": SCHEMA,
        "tool_version": tool_version,
        "world_size": str(case.world_size),
        "world_size_inferred": str(case.world_size_inferred).lower(),
        "incident": case.incident,
    }
    if report is not None:
        facts |= {"status": report.status, "summary": report.summary}
    return {"key": _texts(facts), "value": _texts(facts.values())}


def _ranks(case: Case, report: Report | None) -> Columns:
    dumps: dict[int, int] = {}
    hosts: dict[int, str] = {}
    pids: dict[int, int] = {}
    for dump in case.dumps:
        dumps[dump.rank] = dumps.get(dump.rank, 0) + dump.usable
        hosts[dump.rank] = hosts.get(dump.rank) or dump.host
        pids[dump.rank] = max(pids.get(dump.rank, -1), dump.pid)
    told = {status.rank: status for status in report.ranks} if report is not None else {}
    ranks = sorted(set(case.expected_ranks) | set(told))

    def of(key: str) -> list[str]:
        return [getattr(told[r], key) if r in told else "" for r in ranks]

    return {
        "rank": _numbers(ranks),
        "status": _texts(of("status")),
        "detail": _texts(of("detail")),
        "head": _texts(of("head")),
        "host": _texts(h or hosts.get(r, "") for r, h in zip(ranks, of("host"), strict=True)),
        "pid": _numbers(pids.get(r, -1) for r in ranks),
        "replica": _texts(of("replica")),
        "dumps": _numbers(dumps.get(r, 0) for r in ranks),
    }


def _dumps(case: Case, stacks: StackTable) -> Columns:
    dumps = case.dumps
    texts = ("source", "backend", "version", "comm_lib_version", "reported_by", "host", "job_id",
             "attempt", "reason")  # fmt: skip
    numbers = ("rank", "pid", "time_ns", "step", "dropped")
    return {
        "dump_id": np.arange(len(dumps)),
        **{key: _texts(getattr(d, key) for d in dumps) for key in texts},
        **{key: _numbers(getattr(d, key) for d in dumps) for key in numbers},
        "status": _texts(d.status.value for d in dumps),
        "active_only": _bools(d.active_only for d in dumps),
        "calls": _numbers(d.stop - d.start for d in dumps),
        "main_stack_id": _numbers(stacks.number(d.main_stack) for d in dumps),
    }


def _groups(case: Case) -> Columns:
    groups = case.groups
    return {
        "group_id": np.arange(len(groups)),
        "name": _texts(g.name for g in groups),
        "description": _texts(g.description for g in groups),
        "size": _numbers(g.size for g in groups),
        "backend": _texts(g.backend for g in groups),
        "inferred": _bools(g.inferred for g in groups),
    }


def _members(case: Case) -> Columns:
    sizes = np.array([group.size for group in case.groups], np.int64)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return {
        "group_id": owners,
        "group_rank": np.arange(len(owners)) - starts[owners],
        "rank": np.fromiter((r for g in case.groups for r in g.members), np.int64, len(owners)),
    }


def _numel(shapes: Iterable[tuple[int, ...]]) -> int:
    total = 0
    for shape in shapes:
        product = 1
        for size in shape:
            product *= size
        total += product
    return total


def _signatures(case: Case) -> Columns:
    rows = case.signatures
    return {
        "signature_id": np.arange(len(rows)),
        "input_sizes": _lists(s.input_sizes for s in rows),
        "output_sizes": _lists(s.output_sizes for s in rows),
        "input_dtypes": _lists(s.input_dtypes for s in rows),
        "output_dtypes": _lists(s.output_dtypes for s in rows),
        "input_numel": _numbers(_numel(s.input_sizes) for s in rows),
        "output_numel": _numbers(_numel(s.output_sizes) for s in rows),
    }


def _processes(samples: Sequence[ProcessSample]) -> Columns:
    texts = ("host", "role", "state", "wait_channel", "command", "tool", "error")
    return {
        "process_id": np.arange(len(samples)),
        **{key: _texts(getattr(s, key) for s in samples) for key in texts},
        **{
            k: _numbers(getattr(s, k) for s in samples)
            for k in ("rank", "pid", "sample", "time_ns")
        },
        "cpu_s": np.array([s.cpu_s for s in samples], np.float64),
        "exit_status": np.array([s.exit_status for s in samples], object),
    }


def _threads(samples: Sequence[ProcessSample], stacks: StackTable) -> Columns:
    rows = [(index, thread) for index, s in enumerate(samples) for thread in s.threads]
    flags = ("is_main", "holds_gil", "active", "native")
    return {
        "process_id": _numbers(index for index, _ in rows),
        "tid": _numbers(t.tid for _, t in rows),
        "name": _texts(t.name for _, t in rows),
        **{key: _bools(getattr(t, key) for _, t in rows) for key in flags},
        "stack_id": _numbers(stacks.number(t.frames) for _, t in rows),
    }


def _group_status(case: Case) -> Columns:
    s = case.group_status
    ranks = np.array([dump.rank for dump in case.dumps], np.int64)
    return {
        "dump_id": s.dump,
        "rank": ranks[s.dump] if len(ranks) else np.zeros(0, np.int64),
        "group_id": s.group,
        "pg_id": s.pg_id,
        "joined_by": _texts(_JOINED_BY)[s.joined_by],
        "last_enqueued": s.last_enqueued,
        "last_started": s.last_started,
        "last_completed": s.last_completed,
    }


def _log_events(case: Case) -> Columns:
    events = case.log_events
    texts = ("code", "role", "host", "text", "source")
    return {
        **{key: _texts(getattr(e, key) for e in events) for key in texts},
        **{key: _numbers(getattr(e, key) for e in events) for key in ("rank", "time_ns", "count")},
        "position": _numbers(e.order for e in events),
    }


def _findings(report: Report | None) -> Columns:
    rows = report.findings if report is not None else ()
    texts = ("code", "slug", "family", "role", "confidence", "summary")
    lists = ("culprits", "victims", "caused_by", "evidence", "alternatives", "actions")
    return {
        "finding_id": _texts(f.id for f in rows),
        **{key: _texts(getattr(f, key) for f in rows) for key in texts},
        **{key: _lists(getattr(f, key) for f in rows) for key in lists},
        "group_name": _texts(f.group.name if f.group else "" for f in rows),
        "seq": _numbers(f.seq for f in rows),
        "op": _texts(f.op or "" for f in rows),
    }


def _notes(case: Case, report: Report | None) -> Columns:
    notes = list(dict.fromkeys((*case.notes, *(report.notes if report is not None else ()))))
    return {key: _texts(getattr(n, key) for n in notes) for key in ("level", "source", "text")}
