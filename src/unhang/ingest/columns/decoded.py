"""What one dump file turned into: the meeting point of the readers and of the assembly.

Rows are columns already; what the file says about itself, its groups and counters are small plain
values. Nothing here depends on how the file was encoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from unhang import spans
from unhang.case import CALL_DTYPES, Window
from unhang.model import Frame
from unhang.spans import distinct

ROW_DTYPES: dict[str, type[np.generic]] = {
    **{key: kind for key, kind in CALL_DTYPES.items() if key not in ("dump", "rank", "group")},
    "pg": np.int32,
    "pg_id": np.int32,
}
"""Columns of a file's rows: `pg` is a (name, description) in `Dictionaries.groups`, and becomes a
group once the members are known; `pg_id` is the local id, -1 where there is none."""

Column = npt.NDArray[Any]


class BadDump(Exception):  # noqa: N818 - it is the file that is bad
    """A file decodes but is no dump; the message says why, for a note."""


class LostDumpError(BadDump):
    """A file may have been a dump, and is no use any more."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A group as a dump's `pg_config` declares it; `members` is a number of `Memberships`."""

    name: str
    description: str
    members: int


@dataclass(frozen=True, slots=True)
class Status:
    """The counters of one local id (`pg_status`); -1 for none."""

    pg_id: int
    enqueued: int
    started: int
    completed: int


@dataclass(frozen=True, slots=True)
class Origin:
    """What our own recorder wrote under the key `unhang`; empty where another wrote the dump.

    Attributes:
        incident: Names the incident: dumps of different incidents never mix.
        open_tags: Record id and tag of its unfinished sends and receives, without those that the
            program has let go of; None where it does not say.
    """

    rank: int = -1
    local_rank: int = -1
    replica: str = ""
    world_size: int = 0
    host: str = ""
    pid: int = -1
    job_id: str = ""
    attempt: str = ""
    incident: str = ""
    backend: str = ""
    reason: str = ""
    time_ns: int = 0
    step: int = -1
    dropped: int = 0
    failed_calls: tuple[str, ...] = ()
    exception: str = ""
    exception_stack: tuple[Frame, ...] = ()
    main_stack: tuple[Frame, ...] = ()
    open_tags: tuple[tuple[int, int], ...] | None = None


@dataclass(slots=True)
class DumpColumns:
    """Columns of `ROW_DTYPES` of one file or of many; columns leave it as the case takes them."""

    columns: dict[str, Column]


@dataclass(slots=True)
class Decoded:
    """One dump file: its rows are `table[start:stop]`.

    Attributes:
        used: Group and local id of its calls, each pair once, in order of first use; None where
            its rows have to be looked at for that.
        recorder: As in `Dump`.
        few_times: The times of some of its calls were left out on the way here.
        window: What is known of rows that were left out as well.
    """

    version: str = ""
    comm_lib_version: str = ""
    reported_by: str = "torch"
    recorder: str = ""
    origin: Origin | None = None
    declared: tuple[Declared, ...] = ()
    statuses: tuple[Status, ...] = ()
    table: DumpColumns | None = None
    start: int = 0
    stop: int = 0
    used: tuple[tuple[int, int], ...] | None = None
    truncated: bool = False
    few_times: bool = False
    window: Window | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @property
    def tells_of_calls(self) -> bool:
        """Whether it holds a call, or a counter of calls."""
        return self.count > 0 or any(status.enqueued >= 0 for status in self.statuses)

    def column(self, key: str) -> Column:
        """One column of the file's rows."""
        if self.table is None:
            return np.zeros(0, ROW_DTYPES[key])
        return self.table.columns[key][self.start : self.stop]

    def take_rows(self, columns: dict[str, Column]) -> None:
        """Make these columns the file's rows."""
        self.table, self.start, self.stop = DumpColumns(columns), 0, len(columns["pg"])
        self.used = None

    def groups_used(self) -> list[int]:
        """Groups of its calls, in order of first use."""
        if self.used is not None:
            return list(dict.fromkeys(group for group, _ in self.used))
        numbers, first = np.unique(self.column("pg"), return_index=True)
        return [int(number) for number in numbers[np.argsort(first)]]

    def groups_by_local_id(self) -> dict[int, int]:
        """Groups of torch's own calls by their local ids."""
        if self.used is not None:
            return {local: group for group, local in sorted(self.used) if local >= 0}
        own = (self.column("origin") == 0) & (self.column("pg_id") >= 0)
        local = self.column("pg_id")[own].astype(np.int64)
        pairs = distinct(local << 32 | self.column("pg")[own])
        return {int(pair) >> 32: int(pair) & 0xFFFFFFFF for pair in pairs}


def highest(dumps: Sequence[Decoded | None], key: str, least: int = 0) -> list[int]:
    """The highest value of a column among each dump's rows; `least` where it has none.

    Dumps that share a table are looked at in one pass over it.
    """
    found = np.full(len(dumps), least, np.int64)
    sharing: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    tables = {}
    for place, dump in enumerate(dumps):
        if dump is not None and dump.table is not None and dump.count:
            tables[id(dump.table)] = dump.table
            sharing[id(dump.table)].append((dump.start, dump.stop, place))
    for table, own in sharing.items():
        starts, stops, places = np.array(own, np.int64).T
        found[places] = spans.highest(tables[table].columns[key], starts, stops)
    values: list[int] = found.tolist()
    return values


_RING_AT_LEAST = 1000
"""Rings are at least this large (2,000 by default): a longer dump is no list of active calls."""


def active_only(first_id: int, count: int, *, finished: bool, gaps: bool) -> bool:
    """Whether only unfinished calls were dumped (`onlyActive`): finished ones must have existed.

    They have where ids are missing between the calls, or where a list far shorter than any ring
    does not start at 0.

    Args:
        first_id: Record id of the first call of torch's own.
        count: How many there are.
        finished: Any of them has finished.
        gaps: Ids are missing between them.
    """
    if finished or not count or first_id < 0:
        return False
    return gaps or (first_id > 0 and count < _RING_AT_LEAST)


PlainDict = dict[str, Any]
