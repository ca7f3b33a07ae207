"""Ranks that may stand in making the communicator of a group, as no dump would show.

A call is recorded once its group's communicator is there, which is made by the first call of all
members together. So a rank without a record of a group may wait there for another member, and who
else stands still nothing tells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.no_trace import is_in_first_step
from unhang.analysis.matching.segments import is_whole
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Bools, Ints
from unhang.spans import distinct, tuples

_MOST_LOOKED_AT = 16


class UnmadeGroup(Struct, frozen=True):
    """Ranks (indices) that may stand in the first call of a group.

    Attributes:
        ranks: Of those that others wait for.
        others: For whom these may wait, and who is no less suspect: without a dump, or ahead of
            that call, as those are who wait for them without having made it.
    """

    ranks: tuple[int, ...]
    others: tuple[int, ...]


def may_make_a_group(situation: Situation, absent: Sequence[int], waiting: Ints) -> UnmadeGroup:
    """Whether ranks may wait for others in making a group.

    Ranks that wait for them have made the first call of a group of some description and size since
    they last met. They themselves have made none in a group like it, nor has another rank, for
    which they may wait. In their first step, any kind of group will do in which further ranks have
    called, and those who wait for them have not.

    Args:
        situation: The case.
        absent: Ranks that have not made a call.
        waiting: Ranks that wait in it.
    """
    new: set[tuple[str, int]] = set()
    for rank in waiting[:_MOST_LOOKED_AT].tolist():
        new |= _begun_since(situation, rank, absent)
    lacking = [_lacking(situation, kind) for kind in sorted(new)]
    first = _in_first_step(situation).intersection(absent)
    lacking += _not_begun(situation, absent, waiting) if first else []
    may = tuple(rank for rank in absent if any(rank in each and len(each) > 1 for each in lacking))
    suspects = {*np.flatnonzero(situation.silent).tolist(), *waiting.tolist()} - {*absent}
    shared = suspects.intersection(*[each for each in lacking if each.intersection(may)])
    return UnmadeGroup(may, tuple(sorted(shared)) if may else ())


def may_make_a_pair(situation: Situation, absent: Sequence[int]) -> UnmadeGroup:
    """Whether ranks may wait in the first call of a pair, or of a group that no rank has yet.

    They may in their first step, for any rank that waits in no call either. Where ranks are, their
    stacks tell.
    """
    may = _in_first_step(situation).intersection(absent)
    if not may or situation.evidence.case.samples:
        return UnmadeGroup((), ())
    idle = np.flatnonzero((situation.heads.waiting_call < 0) & ~situation.silent)
    return UnmadeGroup(tuple(sorted(may)), tuple(sorted({*idle.tolist()} - {*absent})))


def _in_first_step(situation: Situation) -> set[int]:
    evidence = situation.evidence
    owners = zip(evidence.owner.tolist(), evidence.dumps, strict=True)
    return {owner for owner, dump in owners if is_in_first_step(evidence, dump)}


def _not_begun(situation: Situation, absent: Sequence[int], waiting: Ints) -> list[set[int]]:
    """For kinds of groups that all of these ranks lack, in the first step of some: who lacks them.

    They are as many as one such group has members, and no group of that kind is known to hold one.
    """
    evidence = situation.evidence
    numbers = set(evidence.ranks.numbers[list(absent)].tolist())
    groups = [group for group in evidence.case.groups if group.description and group.size > 1]
    kinds = {(g.description, g.size) for g in groups}
    kinds -= {(g.description, g.size) for g in groups if not numbers.isdisjoint(g.members)}
    found = [(kind, _lacking(situation, kind)) for kind in sorted(kinds)[:_MOST_LOOKED_AT]]
    both = {*absent, *waiting.tolist()}
    return [
        each
        for (_, size), each in found
        if both <= each and len(each) == size < len(evidence.ranks)
    ]


def _lacking(situation: Situation, kind: tuple[str, int]) -> set[int]:
    """Ranks (indices) that show no call in any group of a kind."""
    evidence = situation.evidence
    groups = enumerate(evidence.case.groups)
    alike = [number for number, group in groups if (group.description, group.size) == kind]
    status = evidence.case.group_status
    dumps = {*status.dump[np.isin(status.group, alike) & (status.last_enqueued >= 0)].tolist()}
    dumps |= set(distinct(evidence.case.calls.dump[np.isin(evidence.case.calls.group, alike)]))
    owners = zip(evidence.owner.tolist(), evidence.dumps, strict=True)
    have = {owner for owner, dump in owners if dump.index in dumps}
    return set(range(len(evidence.ranks))) - have


def _begun_since(situation: Situation, rank: int, absent: Sequence[int]) -> set[tuple[str, int]]:
    """Kinds of groups whose first call a rank has made since it met one of others."""
    evidence = situation.evidence
    head, rows = int(situation.heads.row[rank]), _rows(situation, rank)
    numbers = set(evidence.ranks.numbers[list(absent)].tolist())
    if is_whole(evidence.case.dumps[int(evidence.case.calls.dump[head])]):
        rows = rows[rows < head]
        every, first = np.unique(_groups(situation, rows), return_index=True)
        apart = [number for number in every.tolist() if _is_apart(situation, number, numbers)]
        met = np.flatnonzero(_meets(situation, rows, numbers))
        last = int(met[-1]) if len(met) else -1
        begun = every[np.isin(every, apart) & (first > last)].tolist()
    else:
        counted = _counted_before(situation, rank, rows[rows >= head]).items()
        begun = [n for n, calls in counted if calls <= 1 and _is_apart(situation, n, numbers)]
    groups = (evidence.case.groups[number] for number in begun)
    return {(group.description, group.size) for group in groups}


def _counted_before(situation: Situation, rank: int, ahead: Ints) -> dict[int, int]:
    """The groups that a rank has counters for, and how many calls it made before these rows."""
    evidence, status = situation.evidence, situation.evidence.case.group_status
    owners = zip(evidence.owner.tolist(), evidence.dumps, strict=True)
    own = np.isin(status.dump, [dump.index for owner, dump in owners if owner == rank])
    own &= status.group >= 0
    groups = np.asarray(status.group[own], np.int64)
    later = np.bincount(_groups(situation, ahead), minlength=len(evidence.case.groups) + 1)
    return dict(
        zip(groups.tolist(), (status.last_enqueued[own] - later[groups]).tolist(), strict=True)
    )


def _is_apart(situation: Situation, number: int, ranks: set[int]) -> bool:
    return number >= 0 and ranks.isdisjoint(situation.evidence.case.groups[number].members)


def _meets(situation: Situation, rows: Ints, ranks: set[int]) -> Bools:
    """Whether calls are those of a group of some ranks (global), or exchanges with one of them."""
    case = situation.evidence.case
    kinds = np.stack((case.calls.group[rows], case.calls.name[rows]))
    kinds = np.concatenate((kinds, situation.evidence.collective[rows][None]))
    each, kind_of = tuples(kinds)
    found = []
    for group, number, collective in each.T.tolist():
        members, name = case.groups[group].members, case.names[number]
        ends = {members[at] for at in (name.src, name.dst) if 0 <= at < len(members)}
        found.append(not ranks.isdisjoint(members if collective or not ends else ends))
    return np.asarray(found, np.bool_)[kind_of]


def _rows(situation: Situation, rank: int) -> Ints:
    """All calls of a rank."""
    evidence = situation.evidence
    dumps = (d for o, d in zip(evidence.owner.tolist(), evidence.dumps, strict=True) if o == rank)
    parts = [np.arange(dump.start, dump.stop) for dump in dumps]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _groups(situation: Situation, rows: Ints) -> Ints:
    found: Ints = situation.evidence.case.calls.group[rows]
    return found
