"""Tell apart the groups of torch 2.2, whose dumps have a local id of each and nothing else.

Groups that are made alike have one id on all ranks, though their members differ: the tp groups of
a mesh, say. Where ranks send and receive in them, their names hold the caller's rank in the group;
so two callers with one rank are in two groups, and members stand in the order of their ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from unhang.ingest.columns.decoded import Decoded
from unhang.ingest.columns.dictionaries import Dictionaries, parse_op
from unhang.ingest.columns.dumpfiles import DumpFile


def split_unnamed(files: Sequence[DumpFile], shared: Dictionaries) -> None:
    """Give groups of one local id names of their own, in place, where they are provably several.

    Args:
        files: Of one incident, with ranks.
        shared: Names of calls and groups.
    """
    places: dict[int, list[tuple[int, int, DumpFile]]] = defaultdict(list)
    for item in files:
        if item.decoded is None or item.rank < 0 or not _is_unnamed(item.decoded):
            continue
        for pair, own in _own_ranks(item.decoded, shared).items():
            places[pair].append((item.rank, own, item))
    for pair, callers in places.items():
        _split(pair, sorted(callers, key=lambda caller: caller[0]), shared)


def _is_unnamed(decoded: Decoded) -> bool:
    return not decoded.version and not decoded.declared and decoded.origin is None


def _own_ranks(decoded: Decoded, shared: Dictionaries) -> dict[int, int]:
    """The caller's rank in each group in which it sends or receives, where that is one."""
    names = list(shared.names)
    found: dict[int, set[int]] = defaultdict(set)
    rows = np.stack((decoded.column("pg"), decoded.column("name")))
    for pair, name in np.unique(rows, axis=1).T.tolist():
        op = parse_op(names[name])
        own = {"send": op.src, "recv": op.dst}.get(op.op, -1)
        if own >= 0:
            found[pair].add(own)
    return {pair: next(iter(ranks)) for pair, ranks in found.items() if len(ranks) == 1}


def _split(pair: int, callers: Sequence[tuple[int, int, DumpFile]], shared: Dictionaries) -> None:
    """The n-th caller with a rank is in the n-th group; all groups must be whole."""
    times: dict[int, int] = defaultdict(int)
    groups: dict[int, list[int]] = defaultdict(list)
    for _, own, _ in callers:
        groups[times[own]].append(own)
        times[own] += 1
    if len(groups) < 2 or any(own != list(range(len(own))) for own in groups.values()):  # noqa: PLR2004 - several
        return
    name, description = list(shared.groups)[pair]
    times.clear()
    for _, own, item in callers:
        number = shared.groups[f"{name}.{times[own]}", description]
        times[own] += 1
        column = item.decoded.column("pg") if item.decoded else np.zeros(0, np.int32)
        column[column == pair] = number
