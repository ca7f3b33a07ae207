"""Calls side by side: the last ones of each rank, aligned by group and number, equal ranks folded.

Whether a call has finished, or was not made, is what the analysis says. Groups of one description
and size share columns, so that ranks of different tensor-parallel groups can be compared.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from unhang.analysis.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.progress import Stage
from unhang.analysis.state.stale import made_ns
from unhang.model import State
from unhang.picture import Bar, Cell, CellState, Lane, Slot
from unhang.report import Report
from unhang.stacks.ownership import shown_frame

__all__ = ["bars", "lanes"]

_MOST_CALLS = 60
_MOST_LANES = 24
_MOST_COLUMNS = 80
_ROWS_AT_MOST = 240_000
_MOST_BAR_RANKS, _MOST_BAR_CALLS = 48, 80
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
    kin, labels = _kin(situation)
    last = max(min(_MOST_CALLS, _ROWS_AT_MOST // max(len(situation.evidence.ranks), 1)), 8)
    folded: dict[tuple[str, tuple[_Made, ...]], list[int]] = defaultdict(list)
    rows_of: dict[int, list[int]] = {}
    numbers = situation.evidence.ranks.numbers.tolist()
    for index, rows in _last_rows(situation, last):
        rank = numbers[index]
        made = tuple(_made(situation, row, kin) for row in rows)
        own = folded[status.get(rank, ""), made]
        if not own:
            rows_of[rank] = rows
        own.append(rank)
    victims = set(report.findings[0].victims) if report.findings else set()
    ordered = sorted(
        folded.items(),
        key=lambda item: (
            _order(item[0][0]), victims.isdisjoint(item[1]), -len(item[1]), item[1]
        ),
    )  # fmt: skip
    shown = ordered[:_MOST_LANES]
    spots = _in_order([made for (_, made), _ in shown])
    mark = _marked(situation, report, kin)
    if mark is not None and mark not in spots:
        spots.append(mark)
    kept = _kept(spots, mark)
    at = {spot: place for place, spot in enumerate(kept)}
    usual = _usual(shown)
    drawn = tuple(
        Lane(
            tuple(ranks),
            state,
            tuple(_cells(situation, ranks[0], made, rows_of[ranks[0]], (at, kin, usual))),
        )
        for (state, made), ranks in shown
    )
    columns = tuple(Slot(labels[s.kin], s.number, s == mark, s.p2p) for s in kept)
    rest = sum(len(ranks) for _, ranks in ordered[_MOST_LANES:])
    return columns, drawn, f"Lanes of {rest:,} more ranks are not drawn." if rest else ""


def _order(status: str) -> int:
    return _STATUS_ORDER.index(status) if status in _STATUS_ORDER else len(_STATUS_ORDER)


def _kin(situation: Situation) -> tuple[list[int], list[str]]:
    """A number for each group, the same for groups of one description and size; their names."""
    found: dict[tuple[str, int], int] = {}
    groups = situation.evidence.case.groups
    kin = [found.setdefault((g.description or g.name, g.size), len(found)) for g in groups]
    alone = Counter(kin)
    label = {number: group.label for number, group in zip(kin, groups, strict=True)}
    names = [
        label[number] if alone[number] == 1 else f"{name} ({size} ranks)"
        for (name, size), number in found.items()
    ]
    return kin, names


def _last_rows(situation: Situation, last: int) -> Iterator[tuple[int, list[int]]]:
    """The last rows of each rank in order of time, batches' closing entries left out."""
    evidence = situation.evidence
    calls = evidence.case.calls
    closing = evidence.names.closing
    parts: dict[int, list[Ints]] = defaultdict(list)
    for owner, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        rows = np.arange(max(dump.start, dump.stop - 2 * last), dump.stop)
        parts[owner].append(rows[~closing[calls.name[rows]]][-last:])
    for owner in sorted(parts):
        rows = np.concatenate(parts[owner])
        if len(parts[owner]) > 1:
            rows = rows[np.lexsort((rows, calls.created_ns[rows]))][-last:]
        if len(rows):
            yield owner, rows.tolist()


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
        _state(situation, row),
    )


def _state(situation: Situation, row: int) -> CellState:
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
    for number, group in zip(kin, situation.evidence.case.groups, strict=True):
        if (group.name, group.description) == (first.group.name, first.group.description):
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
    shown: Sequence[tuple[tuple[str, tuple[_Made, ...]], list[int]]],
) -> dict[_Spot, tuple[int, int]]:
    """Name and signature that most ranks have at each spot."""
    votes: dict[_Spot, Counter[tuple[int, int]]] = defaultdict(Counter)
    for (_, made), ranks in shown:
        for each in made:
            if not each.spot.p2p:
                votes[each.spot][each.name, each.signature] += len(ranks)
    return {spot: counted.most_common(1)[0][0] for spot, counted in votes.items()}


_Frame = tuple[dict[_Spot, int], Sequence[int], dict[_Spot, tuple[int, int]]]


def _cells(
    situation: Situation, rank: int, made: Sequence[_Made], rows: Sequence[int], frame: _Frame
) -> Iterator[Cell]:
    """The cells of a lane, by the example of one of its ranks."""
    at, kin, usual = frame
    seen: set[_Spot] = set()
    for each, row in zip(made, rows, strict=True):
        if each.spot not in at or each.spot in seen:
            continue
        seen.add(each.spot)
        call = situation.evidence.case.call(row)
        shapes = call.signature.input_sizes or call.signature.output_sizes
        kinds = call.signature.input_dtypes or call.signature.output_dtypes
        where = shown_frame(call.frames)
        yield Cell(
            column=at[each.spot],
            op=call.name.op or call.name.raw,
            state=each.state,
            words=f"{[list(s) for s in shapes[:2]]} {'/'.join(dict.fromkeys(kinds[:2]))}".strip(),
            place=f"{where.file}:{where.line}" if where else "",
            odd=not each.spot.p2p and usual.get(each.spot) != (each.name, each.signature),
        )
    yield from _absent(situation, rank, set(at) - seen, at, kin)


def _absent(
    situation: Situation,
    rank: int,
    spots: Iterable[_Spot],
    at: Mapping[_Spot, int],
    kin: Sequence[int],
) -> Iterator[Cell]:
    """Cells for calls of its groups that a rank's dump does not show, as the analysis has them."""
    evidence = situation.evidence
    channels = {
        kin[index]: index * len(evidence.backends)
        for index, group in enumerate(evidence.case.groups)
        if rank in group.members
    }
    index = evidence.ranks.index_of([rank])
    for spot in sorted(spots):
        if spot.p2p or spot.kin not in channels or spot.number < 0:
            continue
        stages = [
            int(situation.standing.stages(index, channels[spot.kin] + backend, spot.number)[0][0])
            for backend in range(len(evidence.backends))
        ]
        if Stage.FINISHED in stages or Stage.OPEN in stages:
            continue  # before its window
        missing = Stage.NOT_CALLED in stages
        yield Cell(at[spot], "", "missing" if missing else "unknown", "", "")


def bars(
    situation: Situation,
    culprits: Sequence[int],
    ahead_ms: Mapping[int, float],
    *,
    every: bool = False,
) -> tuple[tuple[Bar, ...], str]:
    """The last calls of some ranks in time, and what is left out.

    Args:
        situation: All that is known.
        culprits: Always among the ranks.
        ahead_ms: How far clocks are ahead, by index of the rank.
        every: All ranks, and as many calls of each as there is room for.
    """
    evidence = situation.evidence
    calls = evidence.case.calls
    newest = int(max(calls.created_ns.max(initial=0), calls.completed_ns.max(initial=0)))
    made = made_ns(evidence)
    newest = max(newest, int(made.max(initial=0)))
    room = _ROWS_AT_MOST // max(len(evidence.ranks), 1)
    of_rank = dict(_last_rows(situation, room if every else _MOST_BAR_CALLS))
    meetings: dict[tuple[int, int], int] = {}
    numbers = evidence.ranks.numbers.tolist()
    present = [numbers[index] for index in of_rank]
    chosen = set(present) if every else _spread(present, culprits)
    found = []
    for index, rows in of_rank.items():
        if numbers[index] not in chosen:
            continue
        ahead = ahead_ms.get(index, 0.0)
        for row in rows:
            if calls.created_ns[row] <= 0:
                continue
            state = _state(situation, row)
            done = int(calls.completed_ns[row])
            dumped = int(made[int(calls.dump[row])]) or newest
            end = done if done > 0 else dumped if state == "open" else 0
            found.append(
                Bar(
                    rank=numbers[index],
                    begin_ms=round((int(calls.created_ns[row]) - newest) / 1e6 - ahead, 2),
                    end_ms=round((end - newest) / 1e6 - ahead, 2) if end else None,
                    state=state,
                    label=_bar_label(situation, row),
                    group=evidence.case.groups[int(calls.group[row])].label,
                    meeting=_meeting(situation, row, meetings),
                )
            )
    left = len(of_rank) - len(chosen)
    return tuple(found), f"Times of {left:,} more ranks are not drawn." if found and left else ""


def _meeting(situation: Situation, row: int, known: dict[tuple[int, int], int]) -> int:
    """A number for the collective of a row; -1 for sends, receives and what has no number."""
    evidence = situation.evidence
    seq = int(evidence.case.calls.seq[row])
    if not evidence.collective[row] or seq < 0:
        return -1
    channel = int(evidence.channel(np.asarray([row]))[0])
    return known.setdefault((channel, seq), len(known))


def _bar_label(situation: Situation, row: int) -> str:
    case = situation.evidence.case
    calls = case.calls
    p2p = not situation.evidence.collective[row]
    number = int(calls.p2p_seq[row] if p2p else calls.seq[row])
    group = case.groups[int(calls.group[row])]
    return f"{case.names[int(calls.name[row])].op} #{number} of {group.label}"


def _spread(present: Sequence[int], culprits: Sequence[int]) -> set[int]:
    """Culprits, and every n-th of the others."""
    if len(present) <= _MOST_BAR_RANKS:
        return set(present)
    first = [rank for rank in culprits if rank in set(present)][: _MOST_BAR_RANKS // 2]
    others = [rank for rank in present if rank not in set(first)]
    room = _MOST_BAR_RANKS - len(first)
    return {*first, *(others[int(place * len(others) / room)] for place in range(room))}
