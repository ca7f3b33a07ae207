"""A case and its verdict as numpy columns, a dictionary a table: what the database is filled from.

All tables but the largest, which has its own file. Which columns a table has and what makes them
comes from the schema; here stands only what is not the attribute of that name. It knows nothing of
SQL but that lists travel as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unhang.case import Case
from unhang.model import Frame, ProcessSample
from unhang.report import RankStatus, Report
from unhang.stacks.ownership import is_library
from unhang.tables.schema import BY_NAME, SCHEMA

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]

_INT64 = np.iinfo(np.int64)
_JOINED_BY = ("entries", "order", "")


def text_column(values: Iterable[str | None]) -> npt.NDArray[Any]:
    """Make a column of strings that are valid UTF-8 (halves of characters are escaped)."""
    clean = [(each or "").encode("utf-8", "backslashreplace").decode("utf-8") for each in values]
    column = np.empty(len(clean), object)
    column[:] = clean
    return column


def number_column(values: Iterable[int | None]) -> npt.NDArray[np.int64]:
    """Make a column of integers; None becomes -1, and what no file can mean is clipped."""
    return np.fromiter(
        (min(max(-1 if v is None else int(v), _INT64.min), _INT64.max) for v in values), np.int64
    )


def _lists(values: Iterable[Sequence[Any]]) -> npt.NDArray[Any]:
    """Make a column of lists, as the JSON text that the database casts."""
    return text_column(json.dumps(value, ensure_ascii=False) for value in values)


_Maker: TypeAlias = Callable[[Iterable[Any]], npt.NDArray[Any]]
_MAKERS: Mapping[str, _Maker] = {
    "VARCHAR": text_column,
    "INTEGER": number_column,
    "BIGINT": number_column,
    "DOUBLE": lambda values: np.array(list(values), np.float64),
    "BOOLEAN": lambda values: np.array(list(values), object),
}
"""What makes a column of a type of the schema; of any other type they are lists."""


def filled(table: str, rows: Sequence[object], **own: Iterable[Any]) -> Columns:
    """The columns of a table, as the schema has them.

    Args:
        table: Its name.
        rows: Objects that have the columns as attributes, one for each row.
        own: Values of columns that they have not, or have under another name; an array stays as
            it is.
    """
    columns: dict[str, npt.NDArray[Any]] = {}
    for name, kind, *_ in BY_NAME[table].columns:
        values: Iterable[Any] = own[name] if name in own else map(attrgetter(name), rows)
        maker: _Maker = _MAKERS.get(kind, _lists)
        columns[name] = values if isinstance(values, np.ndarray) else maker(values)
    return columns


@dataclass(slots=True)
class StackTable:
    """All stacks of a case, those of samples and of main threads next to those of calls."""

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
            "frames": filled("frames", frames, frame_id=np.arange(len(frames))),
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
        "groups": filled("groups", case.groups, group_id=range(len(case.groups))),
        "members": _members(case),
        "signatures": _signatures(case),
        "processes": _processes(case.samples),
        "threads": _threads(case.samples, stacks),
        "group_status": _group_status(case),
        "log_events": filled(
            "log_events", case.log_events, position=(e.order for e in case.log_events)
        ),
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

    rows = [told.get(rank) or RankStatus(rank, "unknown") for rank in ranks]
    return filled(
        "ranks",
        rows,
        status=(row.status if row.rank in told else "" for row in rows),
        host=(row.host or hosts.get(row.rank, "") for row in rows),
        pid=(pids.get(row.rank) for row in rows),
        dumps=(dumps.get(row.rank, 0) for row in rows),
    )


def _dumps(case: Case, stacks: StackTable) -> Columns:
    dumps = case.dumps
    return filled(
        "dumps",
        dumps,
        dump_id=range(len(dumps)),
        calls=(d.stop - d.start for d in dumps),
        main_stack_id=(stacks.number(d.main_stack) for d in dumps),
    )


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
    return filled(
        "signatures",
        rows,
        signature_id=range(len(rows)),
        input_numel=(_numel(s.input_sizes) for s in rows),
        output_numel=(_numel(s.output_sizes) for s in rows),
    )


def _processes(samples: Sequence[ProcessSample]) -> Columns:
    codes = np.array([s.exit_status for s in samples], object)  # any number is one: None is none
    return filled("processes", samples, process_id=range(len(samples)), exit_status=codes)


def _threads(samples: Sequence[ProcessSample], stacks: StackTable) -> Columns:
    rows = [(index, thread) for index, s in enumerate(samples) for thread in s.threads]
    threads = [thread for _, thread in rows]
    return filled(
        "threads",
        threads,
        process_id=(index for index, _ in rows),
        stack_id=(stacks.number(thread.frames) for thread in threads),
    )


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


def _findings(report: Report | None) -> Columns:
    rows = report.findings if report is not None else ()
    names = (f.group.name if f.group else "" for f in rows)
    return filled("findings", rows, finding_id=(f.id for f in rows), group_name=names)


def _notes(case: Case, report: Report | None) -> Columns:
    told = report.notes if report is not None else ()
    return filled("notes", list(dict.fromkeys((*case.notes, *told))))
