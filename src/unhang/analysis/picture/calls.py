"""Calls side by side: the last ones of each rank, aligned by group and number, equal ranks folded.

Whether a call has finished, or was not made, is what the analysis says. The groups that the causes
are about have columns of their own. All other groups of one description and size share columns, so
that ranks of different tensor-parallel groups can be compared; they are not told to differ.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from unhang.analysis.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.progress import Stage
from unhang.model import Group, State
from unhang.picture import Cell, CellState, Lane, Slot
from unhang.report import Finding, GroupRef, Report
from unhang.stacks.ownership import shown_frame
from unhang.wording import rank_phrase

__all__ = ["ROWS_AT_MOST", "lanes", "last_rows", "state_of"]

_MOST_CALLS = 60
_MOST_LANES = 24
_MOST_COLUMNS = 80
ROWS_AT_MOST = 240_000
_STATUS_ORDER = ("culprit", "silent", "unreadable", "behind", "ahead", "unknown", "waiting")


class _Spot(NamedTuple):
    """Where a call stands in the alignment: the kin of its group, whether P2P, its number."""

    kin: int
    p2p: bool
    number: int


class _Made(NamedTuple):
    """A call as lanes compare it."""

    spot: _Spot
    name: int
    signature: int
    state: CellState


def lanes(
    situation: Situation, report: Report, status: Mapping[int, str]
) -> tuple[tuple[Slot, ...], tuple[Lane, ...], str]:
    """Align the last calls of all ranks.

    Returns:
        Columns in program order, a lane for ranks that made the same calls, and what is left out.
    """
    told = _told_groups(situation, report.findings[:1])
    kin, labels = _kin(situation, told)
    last = max(min(_MOST_CALLS, ROWS_AT_MOST // max(len(situation.evidence.ranks), 1)), 8)
    folded: dict[tuple[str, tuple[_Made, ...]], list[int]] = defaultdict(list)
    rows_of: dict[int, list[int]] = {}
    numbers = situation.evidence.ranks.numbers.tolist()
    for index, rows in last_rows(situation, last):
        rank = numbers[index]
        made = tuple(_made(situation, row, kin) for row in rows)
        own = folded[status.get(rank, ""), made]
        if not own:
            rows_of[rank] = rows
        own.append(rank)
    mark = _marked(situation, report, kin)
    ordered = sorted(folded.items(), key=lambda item: _place(item, report, mark))
    shown = ordered[:_MOST_LANES]
    spots = _in_order([made for (_, made), _ in shown])
    if mark is not None and mark not in spots:
        spots.append(mark)
    kept = _kept(spots, mark)
    frame = _Frame(
        at={spot: place for place, spot in enumerate(kept)},
        kin=kin,
        usual=_usual(situation, shown, rows_of),
        blamed=_told_groups(situation, report.causes),
        lacks=bool(report.causes),
    )
    drawn = tuple(
        Lane(
            tuple(ranks),
            state,
            tuple(_cells(situation, ranks[0], made, rows_of[ranks[0]], frame)),
        )
        for (state, made), ranks in shown
    )
    columns = tuple(Slot(labels[s.kin], s.number, s == mark, s.p2p) for s in kept)
    rest = sum(len(ranks) for _, ranks in ordered[_MOST_LANES:])
    return columns, drawn, f"Lanes of {rest:,} more ranks are not drawn." if rest else ""


_Folded: TypeAlias = tuple[tuple[str, tuple[_Made, ...]], list[int]]


class _Frame(NamedTuple):
    """What cells are compared with.

    Attributes:
        at: The column of each spot that is drawn.
        kin: By group.
        usual: Name and signature that most members of a group have at a number.
        blamed: Groups that causes are about: in these alone a call is told to be unlike others.
        lacks: Whether there is a cause: else a call that was not made is none that is missed.
    """

    at: Mapping[_Spot, int]
    kin: Sequence[int]
    usual: Mapping[tuple[int, int], tuple[int, int]]
    blamed: frozenset[int]
    lacks: bool


def _place(lane: _Folded, report: Report, mark: _Spot | None) -> tuple[object, ...]:
    """Culprits of the verdict first, then those who are in its call, then who waits behind."""
    (state, made), ranks = lane
    first = report.findings[0] if report.findings else None
    culprits, victims = (set(first.culprits), set(first.victims)) if first else (set(), set())
    inside = any(each.spot == mark and each.state != "finished" for each in made)
    return (
        culprits.isdisjoint(ranks), not inside, _order(state), victims.isdisjoint(ranks),
        -len(ranks), ranks,
    )  # fmt: skip


def _told_groups(situation: Situation, findings: Sequence[Finding]) -> frozenset[int]:
    """The groups that findings and their calls name, by index."""
    return frozenset(
        at
        for finding in findings
        for ref, ranks in _refs(finding)
        for at, group in enumerate(situation.evidence.case.groups)
        if _is_meant(group, ref, ranks)
    )


def _refs(finding: Finding) -> Iterator[tuple[GroupRef, set[int]]]:
    """The groups that a finding names, each with ranks that are in it."""
    for side in finding.calls:
        if side.group is not None and side.op:
            yield side.group, set(side.ranks)
    if finding.group is not None and not any(side.group for side in finding.calls):
        yield finding.group, {*finding.culprits, *finding.victims}


def _is_meant(group: Group, ref: GroupRef, ranks: set[int]) -> bool:
    """Whether it is this group: old torch gives groups of one kind one name on all ranks."""
    same = (group.name, group.description, group.size) == (ref.name, ref.description, ref.size)
    return same and not ranks.isdisjoint(group.members)


def _order(status: str) -> int:
    return _STATUS_ORDER.index(status) if status in _STATUS_ORDER else len(_STATUS_ORDER)


def _kin(situation: Situation, told: frozenset[int]) -> tuple[list[int], list[str]]:
    """A number for each group, the same for groups of one description and size; their names.

    Groups of `told` have one of their own: who is not a member has no part in their calls.
    """
    found: dict[tuple[str, int, int], int] = {}
    groups = situation.evidence.case.groups
    keys = [
        (group.description or group.name, group.size, at if at in told else -1)
        for at, group in enumerate(groups)
    ]
    kin = [found.setdefault(key, len(found)) for key in keys]
    alone = Counter(kin)
    shared = Counter(group.label for group in groups)
    label = {
        number: f"{group.label}{f', {rank_phrase(group.members)}' * (shared[group.label] > 1)}"
        for number, group in zip(kin, groups, strict=True)
    }
    apart = {key[:2] for key in keys if key[2] >= 0}
    names = [
        label[number]
        if alone[number] == 1
        else f"{'other ' if (name, size) in apart else ''}{name} ({size} ranks)"
        for (name, size, _), number in found.items()
    ]
    return kin, names


def last_rows(situation: Situation, last: int) -> Iterator[tuple[int, list[int]]]:
    """The last rows of each rank in order of time, batches' closing entries left out.

    Of a rank that went on to queue calls behind the one it waits in: the rows around that one.
    """
    evidence = situation.evidence
    calls = evidence.case.calls
    closing = evidence.names.closing
    parts: dict[int, list[Ints]] = defaultdict(list)
    for owner, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        head = int(situation.heads.row[owner])
        begin = dump.stop - 2 * last
        begin = min(begin, head - 2 * last) if dump.start <= head < dump.stop else begin
        rows = np.arange(max(dump.start, begin), dump.stop)
        parts[owner].append(_around(rows[~closing[calls.name[rows]]], head, last))
    for owner in sorted(parts):
        rows = np.concatenate(parts[owner])
        if len(parts[owner]) > 1:
            rows = rows[np.lexsort((rows, calls.created_ns[rows]))][-last:]
        if len(rows):
            yield owner, rows.tolist()


def _around(rows: Ints, head: int, last: int) -> Ints:
    """The last rows; or, where `head` stands before them, as many with it in their midst."""
    end = len(rows)
    at = int(np.searchsorted(rows, head))
    if at < end and rows[at] == head:
        end = min(end, max(at + last // 2, last))
    return rows[max(end - last, 0) : end]


def _made(situation: Situation, row: int, kin: Sequence[int]) -> _Made:
    evidence = situation.evidence
    calls = evidence.case.calls
    p2p = not evidence.collective[row]
    number = int(calls.p2p_seq[row] if p2p else calls.seq[row])
    name = int(calls.name[row])
    return _Made(
        _Spot(kin[int(calls.group[row])], bool(p2p), number),
        name,
        int(calls.signature[row]),
        state_of(situation, row),
    )


def state_of(situation: Situation, row: int) -> CellState:
    """Whether a call has finished, as the analysis has it."""
    if situation.evidence.finished[row]:
        return "finished"
    failed = int(situation.evidence.case.calls.state[row]) == State.FAILED
    return "failed" if failed else "open"


def _in_order(sequences: Iterable[tuple[_Made, ...]]) -> list[_Spot]:
    """All spots in an order that keeps that of each sequence, as far as they agree.

    Collectives of one kin stand by their numbers, also where no sequence holds two of them. Sends
    and receives do not: each pair of ranks has numbers of its own.
    """
    after: dict[_Spot, set[_Spot]] = defaultdict(set)
    before: Counter[_Spot] = Counter()
    weight: dict[_Spot, int] = {}
    steps: set[tuple[_Spot, _Spot]] = set()
    for sequence in sequences:
        spots = list(dict.fromkeys(made.spot for made in sequence))
        for place, spot in enumerate(spots):
            weight.setdefault(spot, place - len(spots))
        steps.update(pairwise(spots))
    numbered = sorted(spot for spot in weight if not spot.p2p)
    steps.update((one, other) for one, other in pairwise(numbered) if one.kin == other.kin)
    for one, other in steps:
        after[one].add(other)
        before[other] += 1
    ready = [(weight[spot], spot) for spot in weight if not before[spot]]
    heapq.heapify(ready)
    waiting = set(weight)
    found: list[_Spot] = []
    while waiting:
        if not ready:  # they contradict each other: a crossed order
            ready = [min((weight[spot], spot) for spot in _next_of_kin(waiting))]
        _, spot = heapq.heappop(ready)
        if spot not in waiting:
            continue
        waiting.discard(spot)
        found.append(spot)
        for other in after[spot]:
            before[other] -= 1
            if not before[other] and other in waiting:
                heapq.heappush(ready, (weight[other], other))
    return found


def _next_of_kin(waiting: Iterable[_Spot]) -> Iterator[_Spot]:
    """The lowest number of each kin, and all sends and receives."""
    lowest: dict[int, _Spot] = {}
    for spot in waiting:
        if spot.p2p:
            yield spot
        else:
            lowest[spot.kin] = min(spot, lowest.get(spot.kin, spot))
    yield from lowest.values()


def _marked(situation: Situation, report: Report, kin: Sequence[int]) -> _Spot | None:
    """The spot of the first finding's call."""
    first = report.findings[0] if report.findings else None
    if first is None or first.group is None or first.seq is None:
        return None
    ranks = {rank for ref, own in _refs(first) if ref == first.group for rank in own}
    for number, group in zip(kin, situation.evidence.case.groups, strict=True):
        if _is_meant(group, first.group, ranks):
            return _Spot(kin=number, p2p=False, number=first.seq)
    return None


def _kept(spots: list[_Spot], mark: _Spot | None) -> list[_Spot]:
    """The last columns; the marked one and what is around it, if it lies earlier."""
    if len(spots) <= _MOST_COLUMNS:
        return spots
    first = len(spots) - _MOST_COLUMNS
    if mark in spots[:first]:
        first = max(spots.index(mark) - _MOST_COLUMNS // 4, 0)
    return spots[first : first + _MOST_COLUMNS]


def _usual(
    situation: Situation, shown: Sequence[_Folded], rows_of: Mapping[int, Sequence[int]]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Name and signature that most ranks have, by group and number of a collective."""
    group = situation.evidence.case.calls.group
    votes: dict[tuple[int, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    for (_, made), ranks in shown:
        for each, row in zip(made, rows_of[ranks[0]], strict=True):
            if not each.spot.p2p:
                votes[int(group[row]), each.spot.number][each.name, each.signature] += len(ranks)
    return {spot: counted.most_common(1)[0][0] for spot, counted in votes.items()}


def _cells(
    situation: Situation, rank: int, made: Sequence[_Made], rows: Sequence[int], frame: _Frame
) -> Iterator[Cell]:
    """The cells of a lane, by the example of one of its ranks."""
    seen: set[_Spot] = set()
    for each, row in zip(made, rows, strict=True):
        if each.spot not in frame.at or each.spot in seen:
            continue
        seen.add(each.spot)
        call = situation.evidence.case.call(row)
        shapes = call.signature.input_sizes or call.signature.output_sizes
        kinds = call.signature.input_dtypes or call.signature.output_dtypes
        where = shown_frame(call.frames)
        yield Cell(
            column=frame.at[each.spot],
            op=call.name.op or call.name.raw,
            state=each.state,
            words=f"{[list(s) for s in shapes[:2]]} {'/'.join(dict.fromkeys(kinds[:2]))}".strip(),
            place=f"{where.file}:{where.line}" if where else "",
            odd=_is_odd(situation, each, row, frame),
        )
    yield from _absent(situation, rank, set(frame.at) - seen, frame)


def _is_odd(situation: Situation, made: _Made, row: int, frame: _Frame) -> bool:
    """Whether it is another call than most members made, of a group that a cause is about."""
    group = int(situation.evidence.case.calls.group[row])
    if made.spot.p2p or group not in frame.blamed:
        return False
    return frame.usual.get((group, made.spot.number)) != (made.name, made.signature)


def _absent(
    situation: Situation, rank: int, spots: Iterable[_Spot], frame: _Frame
) -> Iterator[Cell]:
    """Cells for calls of its groups that a rank's dump does not show, as the analysis has them.

    A call is missed where another member of the rank's own group has made it: groups of one kind
    share columns, and need not be at one number.
    """
    evidence = situation.evidence
    backends = range(len(evidence.backends))
    channels = {
        frame.kin[index]: index * len(evidence.backends)
        for index, group in enumerate(evidence.case.groups)
        if rank in group.members
    }
    index = evidence.ranks.index_of([rank])
    for spot in sorted(spots):
        if spot.p2p or spot.kin not in channels or spot.number < 0:
            continue
        own = [channels[spot.kin] + backend for backend in backends]
        stages = [int(situation.standing.stages(index, c, spot.number)[0][0]) for c in own]
        if Stage.FINISHED in stages or Stage.OPEN in stages:
            continue  # before its window
        made = max(int(situation.furthest_made[channel]) for channel in own) >= spot.number
        if Stage.NOT_CALLED not in stages:
            yield Cell(frame.at[spot], "", "unknown", "", "")
        elif made and frame.lacks:
            yield Cell(frame.at[spot], "", "missing", "", "")
