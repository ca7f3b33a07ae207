"""Put the files of one incident together into a Case: one set of columns, one row a call.

Columns are joined one after the other and dropped from the files as they go, so that the calls are
never in memory twice; where all files fill one table, it is the case's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from unhang.batches import find_batches
from unhang.case import CALL_DTYPES, Calls, Case, Dump, Window
from unhang.casedir.contents import asked_nodes
from unhang.ingest.beside import Extras
from unhang.ingest.columns.decoded import (
    Column,
    Decoded,
    DumpColumns,
    Origin,
    active_only,
    highest,
)
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.columns.oldnumbers import renumbered
from unhang.ingest.groups.building import Grouping
from unhang.ingest.groups.counters import join_statuses
from unhang.ingest.groups.ranks import World
from unhang.model import OpName, State

_FEW = 16
"""Calls that are looked at sooner than numpy begins to."""

_SECOND_NS = 10**9


def assemble(
    files: Sequence[DumpFile],
    grouping: Grouping,
    shared: Dictionaries,
    world: World,
    extras: Extras,
) -> Case:
    """Make the case.

    Args:
        files: One incident's files; each becomes a dump, in this order.
        grouping: Groups of the calls.
        shared: Dictionaries of the calls.
        world: Number of expected ranks.
        extras: Everything else.
    """
    decoded = [item.decoded for item in files]
    stacks = highest(decoded, "stack", -1)
    starts = np.cumsum([0, *(item.decoded.count if item.decoded else 0 for item in files)]).tolist()
    hosts = _folders_as_hosts(files)
    dumps = tuple(
        _dump(index, item, (starts[index], starts[index + 1]), grouping, host, stack >= 0)
        for index, (item, host, stack) in enumerate(zip(files, hosts, stacks, strict=True))
    )
    status = join_statuses(files, grouping)
    names = shared.op_names()
    return Case(
        calls=_kinds_set(_calls(files, grouping), dumps, names),
        dumps=dumps,
        groups=tuple(grouping.groups),
        group_status=status,
        names=names,
        signatures=tuple(shared.signatures),
        threads=tuple(shared.threads),
        stacks=shared.packed_stacks(),
        world_size=world.size,
        world_size_inferred=world.inferred,
        unvisited=_unvisited(extras, world),
        nodes=asked_nodes(extras.manifests, world.size),
        cluster=next((each.cluster for each in extras.manifests if each.cluster), ""),
        namespace=next((each.namespace for each in extras.manifests if each.namespace), ""),
        samples=extras.samples,
        log_events=extras.log_events,
        log_facts=extras.log_facts,
        logs_got_on=extras.logs_got_on,
        logs_left_open=extras.logs_left_open,
        last_calls=extras.last_calls,
        ras=extras.ras,
        reports=extras.reports,
        slow=extras.slow,
        incident=extras.incident,
        notes=tuple(extras.notes),
    )


def _unvisited(extras: Extras, world: World) -> tuple[int, ...]:
    if extras.looked_at is None:
        return ()
    return tuple(rank for rank in range(world.size) if rank not in extras.looked_at)


def _calls(files: Sequence[DumpFile], grouping: Grouping) -> Calls:
    lengths = [item.decoded.count if item.decoded else 0 for item in files]
    spans = _spans(files)
    _release(spans, "pg_id")
    _number_groups(files, spans, grouping.of_calls)
    columns: dict[str, Column] = {
        "dump": np.repeat(np.arange(len(files), dtype=np.int32), lengths),
        "rank": np.repeat(np.array([item.rank for item in files], np.int32), lengths),
        "group": _joined(_pieces(spans, "pg"), np.int32),
    }
    _release(spans, "pg")
    for key, kind in CALL_DTYPES.items():
        if key not in columns:
            columns[key] = _joined(_pieces(spans, key), kind)
            _release(spans, key)
    return Calls(**columns)


def _kinds_set(calls: Calls, dumps: Sequence[Dump], names: Sequence[OpName]) -> Calls:
    """Count the entry that closes a batch as what its members are: torch says so of none."""
    batches = find_batches(calls, names)
    closed = np.flatnonzero(batches.closed)
    ending = closed[batches.last[closed] == closed]
    calls.is_p2p[ending] = batches.p2p[ending]
    return renumbered(calls, dumps, batches)


def _joined(pieces: list[Column], kind: type[np.generic]) -> Column:
    """One column; what is in one piece already is not copied."""
    if len(pieces) == 1:
        return pieces[0].astype(kind, copy=False)
    return np.concatenate(pieces, dtype=kind) if pieces else np.zeros(0, kind)


_Span = tuple[DumpColumns, int, int]


def _spans(files: Sequence[DumpFile]) -> list[_Span]:
    """The rows of all files, as few pieces: files of one table that follow each other are one."""
    spans: list[_Span] = []
    for item in files:
        decoded = item.decoded
        if decoded is None or decoded.table is None:
            continue
        if spans and spans[-1][0] is decoded.table and spans[-1][2] == decoded.start:
            spans[-1] = (decoded.table, spans[-1][1], decoded.stop)
        else:
            spans.append((decoded.table, decoded.start, decoded.stop))
    return spans


def _pieces(spans: Sequence[_Span], key: str) -> list[Column]:
    return [table.columns[key][start:stop] for table, start, stop in spans]


def _release(spans: Sequence[_Span], key: str) -> None:
    """Drop a column from the files' tables, now that the case has it."""
    for table, _, _ in spans:
        table.columns.pop(key, None)


def _number_groups(
    files: Sequence[DumpFile], spans: Sequence[_Span], of_calls: Sequence[dict[int, int]]
) -> None:
    """Make the pairs of name and description of the calls the case's groups, in place.

    One name may be several groups, of one rank each: then file by file.
    """
    common: dict[int, int] = {}
    agreed = all(
        common.setdefault(pair, group) == group for own in of_calls for pair, group in own.items()
    )
    if agreed:
        for pairs in _pieces(spans, "pg"):
            _renumber(pairs, common)
        return
    for item, own in zip(files, of_calls, strict=True):
        if item.decoded is not None and own:
            _renumber(item.decoded.column("pg"), own)


def _renumber(pairs: Column, groups: dict[int, int]) -> None:
    numbers = np.zeros(max(groups, default=0) + 1, np.int32)
    numbers[list(groups)] = list(groups.values())
    pairs[:] = numbers[pairs]


def _folders_as_hosts(files: Sequence[DumpFile]) -> list[str]:
    """The files' folders, where they can be hosts: several, and no rank is in two of them."""
    ranks: dict[str, set[int]] = {}
    for item in files:
        ranks.setdefault(item.claim.folder, set()).add(item.rank)
    disjoint = sum(map(len, ranks.values())) == len(set().union(*ranks.values()))
    if len(ranks) < 2 or not disjoint:  # noqa: PLR2004 - one folder tells nothing apart
        return [""] * len(files)
    return [item.claim.folder for item in files]


def _dump(
    index: int,
    item: DumpFile,
    rows: tuple[int, int],
    grouping: Grouping,
    folder: str,
    has_stacks: bool,  # noqa: FBT001 - one of its facts
) -> Dump:
    decoded = item.decoded or Decoded()
    origin = decoded.origin or Origin()
    window = decoded.window or Window()
    first_record_id = window.first_record_id if window.left_out else _first_record_id(decoded)
    host = origin.host or item.claim.host or folder
    return Dump(
        index=index,
        rank=item.rank,
        source=item.source,
        status=item.status,
        start=rows[0],
        stop=rows[1],
        backend=item.backend,
        version=decoded.version,
        comm_lib_version=decoded.comm_lib_version,
        active_only=_is_active_only(decoded),
        has_stacks=has_stacks,
        few_times=decoded.few_times or window.left_out > 0,
        window=window,
        first_record_id=first_record_id,
        reported_by=decoded.reported_by,
        recorder=decoded.recorder,
        host=host,
        pid=origin.pid,
        job_id=origin.job_id,
        attempt=origin.attempt,
        incident=origin.incident,
        replica=origin.replica or item.replica,
        reason=origin.reason,
        time_ns=origin.time_ns,
        step=origin.step,
        dropped=origin.dropped,
        world_size=origin.world_size,
        local_rank=origin.local_rank,
        written_ns=_written_ns(item),
        group_ids=grouping.of_files[index],
        failures=origin.failed_calls,
        exception=origin.exception,
        exception_stack=origin.exception_stack,
        main_stack=origin.main_stack,
        open_tags=origin.open_tags,
    )


def _first_record_id(decoded: Decoded) -> int:
    return int(decoded.column("record_id")[0]) if decoded.count else -1


def _is_active_only(decoded: Decoded) -> bool:
    """Whether only unfinished calls were dumped: also where counters moved and there is no call."""
    if decoded.window is not None and decoded.window.left_out:
        return decoded.window.active_only
    if not decoded.count:
        return any(status.enqueued > 0 for status in decoded.statuses)
    if _of_torch(decoded, _FEW)[0]:
        return False
    finished, ids = _of_torch(decoded, decoded.count)
    if finished:
        return False
    gaps = any(after - before > 1 for before, after in itertools.pairwise(ids))
    return active_only(ids[0] if ids else -1, len(ids), finished=False, gaps=gaps)


def _of_torch(decoded: Decoded, count: int) -> tuple[bool, list[int]]:
    """Of the first so many calls: whether any of torch's own has finished, and the ids of those."""
    keys = "origin", "state", "retired", "record_id"
    columns = origin, state, retired, record_id = [decoded.column(key)[:count] for key in keys]
    if count <= _FEW:
        rows = [row for row in zip(*(c.tolist() for c in columns), strict=True) if not row[0]]
        finished = any(state == State.COMPLETED or retired for _, state, retired, _ in rows)
        return finished, [number for *_, number in rows]
    torchs = origin == 0
    finished = bool((((state == State.COMPLETED) | retired) & torchs).any())
    return finished, record_id[torchs].tolist()


def _written_ns(item: DumpFile) -> int:
    """When a file was written, at the latest: archives keep whole seconds."""
    whole = item.mtime_ns > 0 and item.mtime_ns % _SECOND_NS == 0
    return item.mtime_ns + _SECOND_NS if whole else item.mtime_ns
