"""Where two sequences of calls part for the first time: alignment with few edits.

Calls are compared twice: strictly (op, sizes, dtypes, call site) and loosely (without the site),
because two ranks may legally make the same call from different lines. Equal sequences cost one
comparison. Unequal ones are aligned from their first difference on, over at most `BOUND` calls of
each, by dynamic programming one row at a time (Needleman and Wunsch 1970, without a charge for what
one side lacks at its end, which is merely where it stands).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Ints

BOUND = 2048
"""Calls of each sequence that are aligned after the first difference."""

_FEW = 2
_CONTEXT = 2
_SAME, _ALIKE, _OTHER, _GAP = 8, 2, -1, -2


class CallSequence(Struct, frozen=True, eq=False):
    """Calls of one rank, in order, as two columns of equal length.

    Attributes:
        strict: Equal numbers are equal calls from equal lines.
        loose: Equal numbers are calls that can meet.
    """

    strict: Ints
    loose: Ints

    def __len__(self) -> int:
        return len(self.strict)


class Edit(Struct, frozen=True):
    """One difference.

    Attributes:
        kind: "missing" (theirs has it, mine does not), "extra" or "changed".
        mine, theirs: Positions; where a call is missing, that of the next call of that side.
    """

    kind: Literal["missing", "extra", "changed"]
    mine: int
    theirs: int


def continued(calls: CallSequence, most: int = 64) -> CallSequence:
    """A sequence with what comes next, where its end has occurred before: programs are loops.

    The calls after the latest earlier occurrence of its longest repeated end are taken.
    """
    strict, last = calls.strict, len(calls) - 1
    best, found = 0, -1
    for at in np.flatnonzero(strict[:last] == strict[last])[::-1].tolist() if last > 0 else ():
        length = 1
        while length <= at and length < most and strict[at - length] == strict[last - length]:
            length += 1
        if length > best:
            best, found = length, at
    if best < _CONTEXT:
        return calls
    span = slice(found + 1, found + 1 + most)
    return CallSequence(np.r_[strict, strict[span]], np.r_[calls.loose, calls.loose[span]])


def edits(mine: CallSequence, theirs: CallSequence) -> list[Edit]:
    """Differences between two sequences, in order; trailing calls of the longer one are none."""
    shared = min(len(mine), len(theirs))
    differs = np.flatnonzero(mine.strict[:shared] != theirs.strict[:shared])
    if not len(differs):
        return []
    start = int(differs[0])
    block = _one_block(mine.strict[start:], theirs.strict[start:])
    if block:
        return [Edit(edit.kind, edit.mine + start, edit.theirs + start) for edit in block]
    span = slice(start, start + BOUND)
    left = CallSequence(mine.strict[span], mine.loose[span])
    right = CallSequence(theirs.strict[span], theirs.loose[span])
    return [
        Edit(edit.kind, edit.mine + start, edit.theirs + start)
        for edit in _trace(left, right, _scores(left, right))
    ]


def _one_block(left: Ints, right: Ints) -> list[Edit]:
    """The edits, where one side merely has some calls more at its beginning; else none."""
    short, long = sorted((left, right), key=len)
    more = len(long) - len(short)
    if not 0 < more <= _FEW or not np.array_equal(short, long[more:]):
        return []
    if long is right:
        return [Edit("missing", 0, at) for at in range(more)]
    return [Edit("extra", at, 0) for at in range(more)]


def _likeness(left: CallSequence, right: CallSequence, row: int) -> Ints:
    """Score of meeting call `row` of left with each call of right."""
    score = np.where(right.loose == left.loose[row], _ALIKE, _OTHER)
    score[right.strict == left.strict[row]] = _SAME
    return score


def _scores(left: CallSequence, right: CallSequence) -> Ints:
    """Best score of every pair of prefixes: (len(left) + 1, len(right) + 1), int32."""
    steps = np.arange(len(right) + 1, dtype=np.int32) * -_GAP
    table = np.empty((len(left) + 1, len(right) + 1), np.int32)
    table[0] = -steps
    for row in range(len(left)):
        best = table[row] + _GAP
        np.maximum(best[1:], table[row, :-1] + _likeness(left, right, row), out=best[1:])
        # A gap in left may follow anything to its left in this row: a running maximum, since each
        # step costs the same.
        table[row + 1] = np.maximum.accumulate(best + steps) - steps
    return table


def _trace(left: CallSequence, right: CallSequence, table: Ints) -> list[Edit]:
    """Walk back from the best end of the table; gaps are taken as late as possible."""
    row, column = _best_end(table)
    found: list[Edit] = []
    while row and column:
        meeting = int(_likeness_of(left, right, row - 1, column - 1))
        here = int(table[row, column])
        if here == int(table[row, column - 1]) + _GAP:
            column -= 1
            found.append(Edit("missing", row, column))
        elif here == int(table[row - 1, column]) + _GAP:
            row -= 1
            found.append(Edit("extra", row, column))
        else:
            row, column = row - 1, column - 1
            if meeting == _OTHER:
                found.append(Edit("changed", row, column))
    found += [Edit("missing", 0, at) for at in range(column - 1, -1, -1)]
    found += [Edit("extra", at, 0) for at in range(row - 1, -1, -1)]
    return found[::-1]


def _best_end(table: Ints) -> tuple[int, int]:
    """End of the best alignment that uses up one of the sequences."""
    rows, columns = table.shape[0] - 1, table.shape[1] - 1
    row, column = int(np.argmax(table[:, columns])), int(np.argmax(table[rows]))
    if table[row, columns] > table[rows, column]:
        return row, columns
    return rows, column


def _likeness_of(left: CallSequence, right: CallSequence, row: int, column: int) -> int:
    if left.strict[row] == right.strict[column]:
        return _SAME
    return _ALIKE if left.loose[row] == right.loose[column] else _OTHER
