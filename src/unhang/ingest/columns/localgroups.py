"""Names for the groups of torch 2.3, which have a local id and their ranks, and no name.

An id numbers the groups of one process, so that one group has other ids on other ranks (seen on
2.3.1). Its ranks are the same everywhere, and groups of the same ranks are made in one order: both
together are a name that all ranks agree about.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from unhang.ingest.columns.decoded import Declared, Decoded
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.model import DEFAULT_GROUP
from unhang.spans import distinct
from unhang.wording import fold_ranks

_MOST_RANGES = 64


def name_by_members(decoded: Decoded, config: object, shared: Dictionaries) -> None:
    """Rename the groups of a dump whose `pg_config` is a dict of ids and lists of ranks, in place.

    Args:
        decoded: With its rows, whose groups are named by their ids.
        config: `pg_config` as read.
        shared: Names of groups, lists of ranks.
    """
    if not isinstance(config, dict) or not config:
        return
    if not all(key.isdecimal() and isinstance(ranks, list) for key, ranks in config.items()):
        return
    named = _names(decoded.declared, shared)
    decoded.declared = tuple(named.values())
    if not decoded.count:
        return
    column = decoded.column("pg")
    pairs = list(shared.groups)
    for number in distinct(column).tolist():
        group = named.get(pairs[number][0])
        if group is not None and not pairs[number][1]:
            column[column == number] = shared.groups[group.name, group.description]


def _names(declared: tuple[Declared, ...], shared: Dictionaries) -> dict[str, Declared]:
    """Declarations by local id, with names that all ranks would give them."""
    lists = shared.memberships.lists
    times: Counter[int] = Counter()
    found = {}
    everybody = set().union(*(lists[group.members] for group in declared))
    for group in sorted(declared, key=lambda group: int(group.name)):
        times[group.members] += 1
        ranks, number = lists[group.members], times[group.members]
        if group.name == "0" and everybody == set(ranks):
            found[group.name] = replace(group, description=DEFAULT_GROUP)
            continue
        name = f"ranks {fold_ranks(ranks, _MOST_RANGES)}" + (f" #{number}" if number > 1 else "")
        found[group.name] = replace(group, name=name)
    return found
