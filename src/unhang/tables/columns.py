"""A case and its verdict as numpy columns, a dictionary a table: what the database is filled from.

All tables but the largest, which has its own file. It knows nothing of SQL but that lists travel as
JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unhang.case import Case
from unhang.model import Frame, ProcessSample
from unhang.report import Report
from unhang.stacks.ownership import is_library
from unhang.tables.schema import SCHEMA

__all__ = ["Columns", "StackTable", "number_column", "small_tables", "text_column"]

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]

_INT64 = np.iinfo(np.int64)
_JOINED_BY = ("entries", "order", "")


def text_column(values: Iterable[str]) -> npt.NDArray[Any]:
    """Make a column of strings that are valid UTF-8 (halves of characters are escaped)."""
    clean = [value.encode("utf-8", "backslashreplace").decode("utf-8") for value in values]
    column = np.empty(len(clean), object)
    column[:] = clean
    return column


def number_column(values: Iterable[int | None]) -> npt.NDArray[np.int64]:
    """Make a column of integers; None becomes -1, and what no file can mean is clipped."""
    return np.fromiter(
        (min(max(-1 if v is None else int(v), _INT64.min), _INT64.max) for v in values), np.int64
    )


def _bools(values: Iterable[bool | None]) -> npt.NDArray[Any]:
    return np.array(list(values), object)


def _lists(values: Iterable[Sequence[Any]]) -> npt.NDArray[Any]:
    """Make a column of lists, as the JSON text that the database casts."""
    return text_column(json.dumps(value, ensure_ascii=False) for value in values)


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
                "function": text_column(f.function for f in frames),
                "file": text_column(f.file for f in frames),
                "line": number_column(f.line for f in frames),
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
    return {"key": text_column(facts), "value": text_column(facts.values())}


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
        "rank": number_column(ranks),
        "status": text_column(of("status")),
        "detail": text_column(of("detail")),
        "head": text_column(of("head")),
        "host": text_column(h or hosts.get(r, "") for r, h in zip(ranks, of("host"), strict=True)),
        "pid": number_column(pids.get(r, -1) for r in ranks),
        "replica": text_column(of("replica")),
        "dumps": number_column(dumps.get(r, 0) for r in ranks),
    }


def _dumps(case: Case, stacks: StackTable) -> Columns:
    dumps = case.dumps
    texts = ("source", "backend", "version", "comm_lib_version", "reported_by", "host", "job_id",
             "attempt", "reason")  # fmt: skip
    numbers = ("rank", "pid", "time_ns", "step", "dropped")
    return {
        "dump_id": np.arange(len(dumps)),
        **{key: text_column(getattr(d, key) for d in dumps) for key in texts},
        **{key: number_column(getattr(d, key) for d in dumps) for key in numbers},
        "status": text_column(d.status.value for d in dumps),
        "active_only": _bools(d.active_only for d in dumps),
        "calls": number_column(d.stop - d.start for d in dumps),
        "main_stack_id": number_column(stacks.number(d.main_stack) for d in dumps),
    }


def _groups(case: Case) -> Columns:
    groups = case.groups
    return {
        "group_id": np.arange(len(groups)),
        "name": text_column(g.name for g in groups),
        "description": text_column(g.description for g in groups),
        "size": number_column(g.size for g in groups),
        "backend": text_column(g.backend for g in groups),
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
        "input_numel": number_column(_numel(s.input_sizes) for s in rows),
        "output_numel": number_column(_numel(s.output_sizes) for s in rows),
    }


def _processes(samples: Sequence[ProcessSample]) -> Columns:
    texts = ("host", "role", "state", "wait_channel", "command", "tool", "error")
    return {
        "process_id": np.arange(len(samples)),
        **{key: text_column(getattr(s, key) for s in samples) for key in texts},
        **{
            k: number_column(getattr(s, k) for s in samples)
            for k in ("rank", "pid", "sample", "time_ns")
        },
        "cpu_s": np.array([s.cpu_s for s in samples], np.float64),
        "exit_status": np.array([s.exit_status for s in samples], object),
    }


def _threads(samples: Sequence[ProcessSample], stacks: StackTable) -> Columns:
    rows = [(index, thread) for index, s in enumerate(samples) for thread in s.threads]
    flags = ("is_main", "holds_gil", "active", "native")
    return {
        "process_id": number_column(index for index, _ in rows),
        "tid": number_column(t.tid for _, t in rows),
        "name": text_column(t.name for _, t in rows),
        **{key: _bools(getattr(t, key) for _, t in rows) for key in flags},
        "stack_id": number_column(stacks.number(t.frames) for _, t in rows),
    }


def _group_status(case: Case) -> Columns:
    s = case.group_status
    ranks = np.array([dump.rank for dump in case.dumps], np.int64)
    return {
        "dump_id": s.dump,
        "rank": ranks[s.dump] if len(ranks) else np.zeros(0, np.int64),
        "group_id": s.group,
        "pg_id": s.pg_id,
        "joined_by": text_column(_JOINED_BY)[s.joined_by],
        "last_enqueued": s.last_enqueued,
        "last_started": s.last_started,
        "last_completed": s.last_completed,
    }


def _log_events(case: Case) -> Columns:
    events = case.log_events
    texts = ("code", "role", "host", "text", "source")
    return {
        **{key: text_column(getattr(e, key) for e in events) for key in texts},
        **{
            key: number_column(getattr(e, key) for e in events)
            for key in ("rank", "time_ns", "count")
        },
        "position": number_column(e.order for e in events),
    }


def _findings(report: Report | None) -> Columns:
    rows = report.findings if report is not None else ()
    texts = ("code", "slug", "family", "role", "confidence", "summary")
    lists = ("culprits", "victims", "caused_by", "evidence", "alternatives", "actions")
    return {
        "finding_id": text_column(f.id for f in rows),
        **{key: text_column(getattr(f, key) for f in rows) for key in texts},
        **{key: _lists(getattr(f, key) for f in rows) for key in lists},
        "group_name": text_column(f.group.name if f.group else "" for f in rows),
        "seq": number_column(f.seq for f in rows),
        "op": text_column(f.op or "" for f in rows),
    }


def _notes(case: Case, report: Report | None) -> Columns:
    notes = list(dict.fromkeys((*case.notes, *(report.notes if report is not None else ()))))
    return {key: text_column(getattr(n, key) for n in notes) for key in ("level", "source", "text")}
