"""Inferred groups that are several groups of one name: told apart by what some have finished.

Where dumps do not say who is in a group, its members are inferred from who called something under
its name, and groups without common members may share a name. One of them cannot finish a call that
needs all members before all of its members have made it: so ranks that finished such a call, and
ranks that never made it, are not in one group. At rest the members of one group have all finished
the same of these calls, so those who did are taken together.

Dumps of different moments contradict each other in the same way. They do so in the default group
and in declared groups too, and leave parts of any size; here parts must share a common size.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import gcd

import numpy as np

from unhang.analysis.state.columns import Ints
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Standing
from unhang.analysis.state.stale import behind_peers, failed_ranks
from unhang.case import Case
from unhang.model import DEFAULT_GROUP, Note
from unhang.spans import distinct
from unhang.wording import count_of


def split_groups(evidence: Evidence, standing: Standing) -> tuple[Case, Note] | None:
    """The case with such groups split, and a note; None where there are none."""
    contradicted = distinct(standing.keys[behind_peers(evidence, standing)] % standing.n_channels)
    if not len(contradicted) or failed_ranks(evidence).any():
        return None
    parts = {}
    for channel in contradicted.tolist():
        group = evidence.case.groups[evidence.group_of(channel)]
        found = _parts(evidence, standing, channel)
        if not group.inferred or group.description == DEFAULT_GROUP or not found:
            return None
        parts[evidence.group_of(channel)] = found
    text = (
        f"{count_of(len(parts), 'inferred group')} cannot be one: some ranks finished calls that "
        "need all members and that other ranks never made. Taken as several groups of one name, "
        "each of the ranks that have finished the same calls."
    )
    return _split(evidence.case, parts), Note("warning", "groups", text)


def _parts(evidence: Evidence, standing: Standing, channel: int) -> list[tuple[int, ...]]:
    """Members (global) by the last call that they finished together; none if of no common size."""
    rows = np.flatnonzero(standing.keys % standing.n_channels == channel)
    by_last: dict[int, list[int]] = defaultdict(list)
    ranks = evidence.ranks.numbers[standing.keys[rows] // standing.n_channels]
    for rank, last in zip(ranks.tolist(), standing.last_sync[rows].tolist(), strict=True):
        by_last[last].append(rank)
    found = [tuple(sorted(by_last[last])) for last in sorted(by_last)]
    return found if gcd(*map(len, found)) > 1 else []


def _split(case: Case, parts: dict[int, list[tuple[int, ...]]]) -> Case:
    groups, of_call = list(case.groups), np.array(case.calls.group)
    of_status = np.array(case.group_status.group)
    rank_of_dump = np.asarray([dump.rank for dump in case.dumps], np.int64)
    new: dict[tuple[int, int], int] = {}
    for number, (first, *rest) in parts.items():
        whole = groups[number]
        groups[number] = replace(whole, members=first)
        for members in rest:
            inside = (case.calls.group == number) & np.isin(case.calls.rank, members)
            of_call[inside] = len(groups)
            of_status[_of_ranks(case, rank_of_dump, number, members)] = len(groups)
            new.update({(rank, number): len(groups) for rank in members})
            groups.append(replace(whole, members=members))
    dumps = tuple(
        replace(dump, group_ids=tuple(new.get((dump.rank, n), n) for n in dump.group_ids))
        for dump in case.dumps
    )
    return replace(
        case,
        calls=replace(case.calls, group=of_call),
        groups=tuple(groups),
        dumps=dumps,
        group_status=replace(case.group_status, group=of_status),
    )


def _of_ranks(case: Case, rank_of_dump: Ints, number: int, members: tuple[int, ...]) -> Ints:
    """Rows of counters of one group in the dumps of these ranks."""
    status = case.group_status
    return np.flatnonzero((status.group == number) & np.isin(rank_of_dump[status.dump], members))
