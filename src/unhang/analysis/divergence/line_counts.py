"""How often ranks send and receive at each line: who is short of a call, and who made one more.

A send that nothing meets looks the same whether its peer has left a receive out, stands before it,
or has no more to make because the sender made one too many. Where other ranks wait for no rank
either, they tell: a peer that stands before its call has made fewer than they from a line that it
shares with them; one that has made as many is where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.segments import is_whole
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.ops import rule_of
from unhang.case import Dump
from unhang.stacks.ownership import shown_frame

_MOST_RANKS = 64

_Calls: TypeAlias = Counter[tuple[object, ...]]


class Level(Struct, frozen=True):
    """Ranks that are not shown to be missing a call; all as indices.

    Attributes:
        others: Ranks that wait for no rank either.
        over: Who waits for them and has made more calls than `others` from lines of both; -1 where
            that is not exactly one rank.
    """

    others: tuple[int, ...]
    over: int


def level_of(situation: Situation, absent: Sequence[int], waiting: Sequence[int]) -> Level | None:
    """Compare ranks that others wait for with further ranks that wait for no rank.

    Args:
        situation: The case.
        absent: Ranks (indices) that have not made a send or receive.
        waiting: Ranks that wait in it.

    Returns:
        None where the absent ranks are the only ones outside of calls, where they are short of a
        call, or where stacks tell where ranks stand.
    """
    if situation.evidence.case.samples or situation.placed_now(absent)[0]:
        return None
    outside = (situation.heads.row < 0) & ~situation.silent
    outside[[*absent, *situation.outdated.tolist()]] = False
    made = cache(lambda rank: _made(situation, rank))
    others = [
        other
        for other in np.flatnonzero(outside)[:_MOST_RANKS].tolist()
        if any(_share(made(other), made(each)) for each in (*absent, *waiting))
    ]
    if not any(_share(made(other), made(each)) for other in others for each in absent):
        return None
    if any(_is_short(made(rank), made(other)) for rank in absent for other in others):
        return None
    whole = [rank for rank in waiting if not _leaves_calls_out(situation.evidence, rank)]
    over = [rank for rank in whole if _is_over(made(rank), [made(other) for other in others])]
    return Level(tuple(others), over[0] if len(over) == 1 else -1)


def _made(situation: Situation, rank: int) -> _Calls:
    """Exchanges by kind, group and line; by counters where calls are left out."""
    evidence, dumps = situation.evidence, _dumps_of(situation.evidence, rank)
    if _leaves_calls_out(evidence, rank):
        return _by_counters(evidence, [dump.index for dump in dumps])
    if not all(map(is_whole, dumps)):
        return Counter()
    return _by_lines(evidence, dumps)


def _dumps_of(evidence: Evidence, rank: int) -> list[Dump]:
    owners = zip(evidence.owner.tolist(), evidence.dumps, strict=True)
    return [dump for owner, dump in owners if owner == rank]


def _leaves_calls_out(evidence: Evidence, rank: int) -> bool:
    return any(dump.active_only for dump in _dumps_of(evidence, rank))


def _by_counters(evidence: Evidence, dumps: Sequence[int]) -> _Calls:
    groups, status = evidence.case.groups, evidence.case.group_status
    known = np.isin(status.dump, dumps) & (status.group >= 0) & (status.last_enqueued >= 0)
    found: _Calls = Counter()
    for at in np.flatnonzero(known).tolist():
        group = groups[int(status.group[at])]
        if group.description:  # else groups of one size have nothing in common
            found[group.description, group.size] += int(status.last_enqueued[at])
    return found


def _by_lines(evidence: Evidence, dumps: Sequence[Dump]) -> _Calls:
    calls, case, found = evidence.case.calls, evidence.case, Counter[tuple[object, ...]]()
    for dump in dumps:
        rows = dump.start + np.flatnonzero(~evidence.collective[dump.start : dump.stop])
        kinds = np.stack([calls.name[rows], calls.group[rows], calls.stack[rows]])
        for (name, group, stack), times in zip(*_counted(kinds), strict=True):
            frame = shown_frame(case.stacks[stack]) if stack >= 0 else None
            if frame is not None:
                kind = rule_of(case.names[name].op).family
                found[kind, case.groups[group].description, frame.file, frame.line] += times
    return found


def _counted(kinds: Ints) -> tuple[list[list[int]], list[int]]:
    each, times = np.unique(kinds, axis=1, return_counts=True)
    return each.T.tolist(), times.tolist()


def _share(mine: _Calls, theirs: _Calls) -> bool:
    return not mine.keys().isdisjoint(theirs.keys())


def _is_short(mine: _Calls, theirs: _Calls) -> bool:
    """Whether one has called less often than the other from a line of both."""
    return any(mine[line] < theirs[line] for line in mine.keys() & theirs.keys())


def _is_over(mine: _Calls, others: Sequence[_Calls]) -> bool:
    """Whether one has called more often than another from some line, and less often from none."""
    more = any(_is_short(each, mine) for each in others)
    return more and not any(_is_short(mine, each) for each in others)
