"""Do dumps of different ranks continue each other in numbers? Then one job made them at one time.

Clocks of hosts may be hours apart. Ranks that stand at the same calls of their groups, each call as
long after the one before as on their peers, are of one incident whatever their clocks say. What is
left over of an earlier attempt stands elsewhere, or belongs to groups of other members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.columns.memberships import NOBODY

Group: TypeAlias = tuple[int, int]
"""Number of a name and description, and of a list of members."""

_MOST_AHEAD = 256
_LEAST_COMMON = 3


def continue_each_other(
    some: Sequence[DumpFile], others: Sequence[DumpFile], shared: Dictionaries
) -> bool:
    """Whether two sets of files, apart in time, hold the same calls of different ranks."""
    if {item.recorder for item in some} & {item.recorder for item in others}:
        return False
    if not _agree([*some, *others], shared):
        return False
    here, there = _calls(some, shared), _calls(others, shared)
    groups = {group for group, _ in here} & {group for group, _ in there}
    ends = [_ends(calls, groups) for calls in (here, there)]
    if any(abs(ends[0][group] - ends[1][group]) > _MOST_AHEAD for group in groups):
        return False
    apart = [there[call] - here[call] for call in here.keys() & there.keys()]
    enough = len(apart) >= _LEAST_COMMON or (apart and here.keys() == there.keys())
    return bool(enough) and _is_steady(apart, sorted(here.values()))


def _groups(item: DumpFile, shared: Dictionaries) -> dict[int, Group]:
    """The groups of a file's calls by their number, each with the number of its list of members."""
    if item.decoded is None:
        return {}
    told = {shared.groups[d.name, d.description]: d.members for d in item.decoded.declared}
    return {number: (number, told.get(number, NOBODY)) for number in item.decoded.groups_used()}


def _agree(files: Sequence[DumpFile], shared: Dictionaries) -> bool:
    """Whether every rank is a member of its groups, and these are the same for all members."""
    sets = shared.memberships.sets
    found: dict[tuple[int, int], int] = {}
    for item in files:
        for number, members in _groups(item, shared).values():
            if members == NOBODY:
                continue
            if item.rank not in sets[members]:
                return False
            if any(found.setdefault((number, rank), members) != members for rank in sets[members]):
                return False
    return True


def _calls(files: Sequence[DumpFile], shared: Dictionaries) -> dict[tuple[Group, int], int]:
    """When each collective call was first made, by group and number."""
    found: dict[tuple[Group, int], int] = {}
    for item in files:
        groups = _groups(item, shared)
        if item.decoded is None or not groups:
            continue
        own = ~item.decoded.column("is_p2p").astype(bool) & (item.decoded.column("seq") >= 0)
        columns = (item.decoded.column(key)[own].tolist() for key in ("pg", "seq", "created_ns"))
        for pg, seq, created in zip(*columns, strict=True):
            if created > 0:
                key = groups[pg], seq
                found[key] = min(created, found.get(key, created))
    return found


def _ends(calls: Iterable[tuple[Group, int]], groups: Iterable[Group]) -> dict[Group, int]:
    """The highest number of each group."""
    found = dict.fromkeys(groups, -1)
    for group, seq in calls:
        if group in found:
            found[group] = max(found[group], seq)
    return found


def _is_steady(apart: Sequence[int], created: Sequence[int]) -> bool:
    """Whether clocks differ by the same all the time, within the longest pause of the job."""
    differences: npt.NDArray[np.int64] = np.asarray(apart, np.int64)
    return int(np.ptp(differences)) <= max(int(np.diff(created).max(initial=0)), 10**9)
