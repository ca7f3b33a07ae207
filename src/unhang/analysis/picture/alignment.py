"""Calls of all ranks in one order: the rows that are compared, and where each stands.

Collectives of a group stand by their numbers. Sends and receives have numbers of their own on each
pair of ranks, so theirs only line up as "the n-th of each".
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.model import State
from unhang.picture import CellState

_MOST_COLUMNS = 80
ROWS_AT_MOST = 240_000


class Turn(NamedTuple):
    """Where a call stands in the alignment: the kin of its group, whether P2P, its number."""

    kin: int
    p2p: bool
    number: int


class Made(NamedTuple):
    """A call as lanes compare it."""

    turn: Turn
    name: int
    signature: int
    state: CellState


def last_rows(situation: Situation, last: int) -> Iterator[tuple[int, list[int]]]:
    """The last rows of each rank in order of time.

    Closing entries of batches are left out, but the one in which the rank waits.
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
        shown = ~closing[calls.name[rows]] | (rows == head)
        parts[owner].append(_around(rows[shown], head, last))
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


def state_of(situation: Situation, row: int) -> CellState:
    """Whether a call has finished, as the analysis has it."""
    if situation.evidence.finished[row]:
        return "finished"
    failed = int(situation.evidence.case.calls.state[row]) == State.FAILED
    return "failed" if failed else "open"


def in_order(sequences: Iterable[tuple[Made, ...]]) -> list[Turn]:
    """All turns in an order that keeps that of each sequence, as far as they agree.

    Collectives of one kin stand by their numbers, also where no sequence holds two of them. Sends
    and receives do not: each pair of ranks has numbers of its own.
    """
    after: dict[Turn, set[Turn]] = defaultdict(set)
    before: Counter[Turn] = Counter()
    weight: dict[Turn, int] = {}
    steps: set[tuple[Turn, Turn]] = set()
    for sequence in sequences:
        turns = list(dict.fromkeys(made.turn for made in sequence))
        for place, turn in enumerate(turns):
            weight.setdefault(turn, place - len(turns))
        steps.update(pairwise(turns))
    numbered = sorted(turn for turn in weight if not turn.p2p)
    steps.update((one, other) for one, other in pairwise(numbered) if one.kin == other.kin)
    for one, other in steps:
        after[one].add(other)
        before[other] += 1
    ready = [(weight[turn], turn) for turn in weight if not before[turn]]
    heapq.heapify(ready)
    waiting = set(weight)
    found: list[Turn] = []
    while waiting:
        if not ready:  # they contradict each other: a crossed order
            ready = [min((weight[turn], turn) for turn in _next_of_kin(waiting))]
        _, turn = heapq.heappop(ready)
        if turn not in waiting:
            continue
        waiting.discard(turn)
        found.append(turn)
        for other in after[turn]:
            before[other] -= 1
            if not before[other] and other in waiting:
                heapq.heappush(ready, (weight[other], other))
    return found


def _next_of_kin(waiting: Iterable[Turn]) -> Iterator[Turn]:
    """The lowest number of each kin, and all sends and receives."""
    lowest: dict[int, Turn] = {}
    for turn in waiting:
        if turn.p2p:
            yield turn
        else:
            lowest[turn.kin] = min(turn, lowest.get(turn.kin, turn))
    yield from lowest.values()


def kept(turns: list[Turn], mark: Turn | None) -> list[Turn]:
    """The last columns; the marked one and what is around it, if it lies earlier."""
    if len(turns) <= _MOST_COLUMNS:
        return turns
    first = len(turns) - _MOST_COLUMNS
    if mark in turns[:first]:
        first = max(turns.index(mark) - _MOST_COLUMNS // 4, 0)
    return turns[first : first + _MOST_COLUMNS]
