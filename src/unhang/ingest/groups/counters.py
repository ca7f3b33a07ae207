"""Join each dump's counters (`pg_status`) to the groups that they count.

The counters are kept under a local id that only the process knows. A call says both the id and the
group; an id without calls is joined by order (ids and groups are both numbered as groups are made),
or as peers have it, and marked as inferred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from unhang.case import JOINED_BY_ENTRIES, JOINED_BY_ORDER, NOT_JOINED, GroupStatus
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.groups.building import Grouping

_COLUMNS = ("dump", "group", "pg_id", "joined_by",
            "last_enqueued", "last_started", "last_completed")  # fmt: skip


def join_statuses(files: Sequence[DumpFile], grouping: Grouping) -> GroupStatus:
    """Make the table of counters of all files; a file's index is its dump's."""
    by_entries = [_ids_of(item, of) for item, of in zip(files, grouping.of_calls, strict=True)]
    counted = [item.decoded.statuses if item.decoded else () for item in files]
    lacking = {
        index
        for index, (statuses, ids) in enumerate(zip(counted, by_entries, strict=True))
        if any(status.pg_id not in ids for status in statuses)
    }
    by_order = _by_order(files, grouping, by_entries) if lacking else {}
    by_peers = _descriptions(by_entries, grouping) if lacking else {}
    rows: list[tuple[int, ...]] = []
    for index, statuses in enumerate(counted):
        ids, inferred = by_entries[index], {}
        if index in lacking:
            inferred = {**_fitting(grouping, index, by_peers), **by_order.get(index, {})}
            taken = set(ids.values())
            inferred = {pg_id: g for pg_id, g in inferred.items() if g not in taken}
        for each in statuses:
            joined = JOINED_BY_ENTRIES if each.pg_id in ids else JOINED_BY_ORDER
            group = ids.get(each.pg_id, inferred.get(each.pg_id, -1))
            joined = joined if group >= 0 else NOT_JOINED
            numbers = each.enqueued, each.started, each.completed
            rows.append((index, group, each.pg_id, joined, *numbers))
    columns = zip(*rows, strict=True)
    return (
        GroupStatus.from_columns(dict(zip(_COLUMNS, columns, strict=True)))
        if rows
        else (GroupStatus.empty())
    )


def _ids_of(item: DumpFile, of_calls: dict[int, int]) -> dict[int, int]:
    """Local id to group, as torch's own calls of this file have it."""
    local_ids = item.decoded.groups_by_local_id() if item.decoded else {}
    return {local: of_calls[group] for local, group in local_ids.items()}


def _by_order(
    files: Sequence[DumpFile], grouping: Grouping, by_entries: Sequence[dict[int, int]]
) -> dict[int, dict[int, int]]:
    """Ids to groups in order, for each file with as many ids as declared groups.

    Nothing, where any call of any file proves that order wrong.
    """
    joined = {}
    for index, item in enumerate(files):
        ids = sorted(status.pg_id for status in item.decoded.statuses) if item.decoded else []
        groups = [g for g in grouping.of_files[index] if not grouping.groups[g].inferred]
        if not ids or len(ids) != len(groups):
            continue
        groups.sort(key=lambda g: _creation_order(grouping.groups[g].name))
        found = dict(zip(ids, groups, strict=True))
        if any(found.get(pg_id, group) != group for pg_id, group in by_entries[index].items()):
            return {}
        joined[index] = found
    return joined


def _creation_order(name: str) -> tuple[int, int, str]:
    return (0, int(name), "") if name.isascii() and name.isdecimal() else (1, 0, name)


def _descriptions(by_entries: Sequence[dict[int, int]], grouping: Grouping) -> dict[int, str]:
    """Local id to a group's description, where all ranks with calls on it agree."""
    seen: dict[int, set[str]] = defaultdict(set)
    for ids in by_entries:
        for pg_id, group in ids.items():
            seen[pg_id].add(grouping.groups[group].description)
    return {pg_id: next(iter(words)) for pg_id, words in seen.items() if len(words) == 1}


def _fitting(grouping: Grouping, index: int, by_peers: dict[int, str]) -> dict[int, int]:
    """Ids to this file's groups by their description, where that tells exactly one."""
    sole: dict[str, int] = {}
    for group in grouping.of_files[index]:
        word = grouping.groups[group].description
        sole[word] = -1 if word in sole else group
    return {pg_id: sole[word] for pg_id, word in by_peers.items() if sole.get(word, -1) >= 0}
