"""Build a `Case`: row by row, with the dictionaries kept for you, or of what logs tell.

The general path: JSON dumps, old pickles, generated cases and tests use it. Large pickles go
straight into columns instead (see ingest). It refuses nothing and repairs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from unhang.case import CALL_DTYPES, STATUS_DTYPES, Calls, Case, Dump, GroupStatus, Stacks
from unhang.model import Frame, Group, LogEvent, Note, OpName, ProcessSample, Signature

if TYPE_CHECKING:
    from unhang.logs.keeping import LogScan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call to be added; defaults mean "the format does not say"."""

    group: Group
    name: OpName
    record_id: int = -1
    seq: int = -1
    p2p_seq: int = -1
    op_id: int = -1
    is_p2p: bool = False
    state: int = 0
    origin: int = 0
    retired: bool = False
    signature: Signature = field(default_factory=Signature)
    created_ns: int = 0
    started_ns: int = 0
    completed_ns: int = 0
    duration_ms: float = float("nan")
    timeout_ms: int = -1
    thread: str = ""
    frames: tuple[Frame, ...] = ()


class _Dictionary(dict[T, int]):
    """Numbers each value in order of first use."""

    def __missing__(self, key: T) -> int:
        self[key] = index = len(self)
        return index


@dataclass(slots=True)
class CaseBuilder:
    """Collects dumps, calls and counters, then `build()` makes the Case."""

    columns: dict[str, list[object]] = field(
        default_factory=lambda: {key: [] for key in CALL_DTYPES}
    )
    status: dict[str, list[object]] = field(
        default_factory=lambda: {key: [] for key in STATUS_DTYPES}
    )
    dumps: list[Dump] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    groups: _Dictionary[Group] = field(default_factory=_Dictionary)
    names: _Dictionary[OpName] = field(default_factory=_Dictionary)
    signatures: _Dictionary[Signature] = field(default_factory=_Dictionary)
    threads: _Dictionary[str] = field(default_factory=_Dictionary)
    stacks: _Dictionary[tuple[Frame, ...]] = field(default_factory=_Dictionary)

    def add_dump(self, dump: Dump, rows: Iterable[CallRow] = ()) -> int:
        """Add one dump with its calls in program order; returns its index.

        `index`, `start` and `stop` of the given dump are set here.
        """
        index, start = len(self.dumps), len(self.columns["rank"])
        for row in rows:
            self._add_row(index, dump.rank, row)
        stop = len(self.columns["rank"])
        self.dumps.append(replace(dump, index=index, start=start, stop=stop))
        return index

    def _add_row(self, dump: int, rank: int, row: CallRow) -> None:
        values = {
            "dump": dump,
            "rank": rank,
            "group": self.groups[row.group],
            "name": self.names[row.name],
            "signature": self.signatures[row.signature],
            "stack": self.stacks[row.frames] if row.frames else -1,
            "thread": self.threads[row.thread] if row.thread else -1,
        }
        for key, column in self.columns.items():
            column.append(values[key] if key in values else getattr(row, key))

    def add_status(  # one row of pg_status, as wide as the table
        self,
        dump: int,
        group: Group | None,
        counters: Sequence[int],
        pg_id: int = -1,
        joined_by: int = 0,
    ) -> None:
        """Add the counters (last enqueued, started, completed) of one group of one dump."""
        enqueued, started, completed = counters
        row = {
            "dump": dump,
            "group": -1 if group is None else self.groups[group],
            "pg_id": pg_id,
            "joined_by": -1 if group is None else joined_by,
            "last_enqueued": enqueued,
            "last_started": started,
            "last_completed": completed,
        }
        for key, value in row.items():
            self.status[key].append(value)

    def build(
        self,
        *,
        world_size: int = 0,
        world_size_inferred: bool = False,
        samples: Iterable[ProcessSample] = (),
        log_events: Iterable[LogEvent] = (),
        incident: str = "",
    ) -> Case:
        """Make the Case from all that was added."""
        return Case(
            calls=Calls.from_columns(self.columns),
            dumps=tuple(self.dumps),
            groups=tuple(self.groups),
            group_status=GroupStatus.from_columns(self.status),
            names=tuple(self.names),
            signatures=tuple(self.signatures),
            threads=tuple(self.threads),
            stacks=_pack(self.stacks),
            world_size=world_size,
            world_size_inferred=world_size_inferred,
            samples=tuple(samples),
            log_events=tuple(log_events),
            incident=incident,
            notes=tuple(self.notes),
        )


def _pack(stacks: Iterable[tuple[Frame, ...]]) -> Stacks:
    frames: _Dictionary[Frame] = _Dictionary()
    ids: list[int] = []
    offsets = [0]
    for stack in stacks:
        ids.extend(frames[frame] for frame in stack)
        offsets.append(len(ids))
    return Stacks(np.asarray(offsets, np.int64), np.asarray(ids, np.int32), tuple(frames))


def case_of_logs(found: LogScan) -> Case:
    """The case that logs alone make."""
    return Case(
        log_events=tuple(found.events),
        log_facts=tuple(found.facts),
        log_ranks=tuple(sorted(found.ranks)),
        logs_recognised=found.recognised,
        logs_got_on=found.got_on,
        logs_left_open=found.left_open or not found.ended_well,
        notes=tuple(found.notes),
    )
