"""Could this rank have led to these dumps? A search for a program in which it alone deviated.

Dumps determine who deviated if no program, of whatever length, ends like this with one deviation of
another rank. So what a rank called is put right again in every way that undoes one deviation, the
calls of all ranks are merged into one program, and that program is run: it must end like this.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from lab.prove.endstates import EndState, bare, other_calls, run_calls
from lab.prove.programs import Members

Call: TypeAlias = tuple[int, str, int, int]
"""Group, op, elements, peer (-1 for a collective call)."""
Meeting: TypeAlias = tuple[int, int, int, int]
"""Group, source, target (-1 for collective calls) and the how-manieth."""

_OPPOSITE: Final = {"send": "recv", "recv": "send"}


def can_explain(groups: Sequence[Members], state: EndState, rank: int) -> bool:
    """Whether some program ends like this because of one deviation of this rank."""
    if any(entries is None for entries in state):
        return state[rank] is None
    made = [[entry[:4] for entry in entries or ()] for entries in state]
    wanted = bare(state)
    for meant, stops in _undone(groups, made, rank):
        sequences = [*made[:rank], meant, *made[rank + 1 :]]
        program = _merged(groups, sequences)
        if program is None:
            continue
        rest = [] if stops or _waits(state, rank) else program[rank][len(meant) :]
        lists = [
            made[other] if _waits(state, other) else calls for other, calls in enumerate(program)
        ]
        lists[rank] = [*made[rank], *rest]
        if any(bare(run_calls(groups, lists, mode)) == wanted for mode in ("ahead", "async")):
            return True
    return False


def _waits(state: EndState, rank: int) -> bool:
    """Whether a rank waits: then its host may stand anywhere behind the call that is open."""
    return any(not entry[7] for entry in state[rank] or ())


def _undone(
    groups: Sequence[Members], made: list[list[Call]], rank: int
) -> Iterator[tuple[list[Call], bool]]:
    """What a rank may have been meant to call so far, and whether it just stopped there."""
    own = made[rank]
    yield own, True
    lacking = sorted({_seen_from(call, other, rank) for other, call in _with(groups, made, rank)})
    for at in range(len(own) + 1):
        for call in lacking:
            yield [*own[:at], call, *own[at:]], False
    for at in range(len(own)):
        rest = own[at + 1 :]
        if at and own[at] == own[at - 1]:
            yield [*own[:at], *rest], False
        if rest and rest[0] != own[at]:
            yield [*own[:at], rest[0], own[at], *rest[1:]], False
        for other in other_calls(own[at]):
            yield [*own[:at], other, *rest], False


def _with(
    groups: Sequence[Members], made: list[list[Call]], rank: int
) -> Iterator[tuple[int, Call]]:
    """Calls of others in which a rank is needed."""
    for other, calls in enumerate(made):
        for call in calls:
            if other != rank and (call[3] == rank or (call[3] < 0 and rank in groups[call[0]])):
                yield other, call


def _seen_from(call: Call, other: int, rank: int) -> Call:
    """The other side of a call of another rank."""
    group, op, size, peer = call
    return (group, _OPPOSITE[op], size, other) if peer == rank else call


def _merged(groups: Sequence[Members], sequences: list[list[Call]]) -> list[list[Call]] | None:
    """What each rank calls in a program that begins with these calls; None if there is none."""
    content: dict[Meeting, tuple[str, int]] = {}
    ways: list[list[Meeting]] = []
    for rank, calls in enumerate(sequences):
        ways.append([])
        count: Counter[tuple[int, int, int]] = Counter()
        for group, op, size, peer in calls:
            ends = (rank, peer) if op == "send" else (peer, rank) if op == "recv" else (-1, -1)
            channel = group, ends[0], ends[1]
            count[channel] += 1
            meeting = group, ends[0], ends[1], count[channel]
            what = ("exchange" if peer >= 0 else op, size)
            if content.setdefault(meeting, what) != what:
                return None
            ways[-1].append(meeting)
    order = _ordered(groups, ways, content)
    if order is None:
        return None
    return [
        [
            _as_called(meeting, content[meeting], rank)
            for meeting in order
            if _in(groups, meeting, rank)
        ]
        for rank in range(len(sequences))
    ]


def _in(groups: Sequence[Members], meeting: Meeting, rank: int) -> bool:
    group, source, target, _ = meeting
    return rank in ((source, target) if source >= 0 else groups[group])


def _as_called(meeting: Meeting, content: tuple[str, int], rank: int) -> Call:
    group, source, target, _ = meeting
    if source < 0:
        return group, content[0], content[1], -1
    return (
        (group, "send", content[1], target)
        if rank == source
        else (group, "recv", content[1], source)
    )


def _ordered(
    groups: Sequence[Members], ways: list[list[Meeting]], content: dict[Meeting, tuple[str, int]]
) -> list[Meeting] | None:
    """All meetings in an order that every rank has followed so far; None if they contradict."""
    after: dict[Meeting, set[Meeting]] = defaultdict(set)
    for rank, way in enumerate(ways):
        made = set(way)
        later = [m for m in content if m not in made and _in(groups, m, rank)]
        for first, second in pairwise(way):
            after[second].add(first)
        for meeting in later:
            after[meeting].update(way[-1:])
    for group, source, target, number in content:
        if number > 1:
            after[group, source, target, number].add((group, source, target, number - 1))
    order: list[Meeting] = []
    placed: set[Meeting] = set()
    waiting = sorted(content)
    while waiting:
        ready = [m for m in waiting if after[m] <= placed]
        if not ready:
            return None
        order += ready
        placed.update(ready)
        waiting = [m for m in waiting if m not in placed]
    return order
