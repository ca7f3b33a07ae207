"""What a rank has always called next, and this time did not.

Programs are loops. Where ranks wait for each other in a circle, or two sides are all there is, the
order of earlier steps tells which rank left it. That rank skipped a call that followed another one
every time. Where one call is followed now by this and now by that, as many of the calls before it
are looked at as make it one: all steps since the last barrier, where each twenty-fifth ends in one.
Where that is too few times, all that the rank has called may still be iterations of one loop, in
which one call is due next. It is a habit and no proof: a program may change its mind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from unhang.analysis.divergence.programs import RankPrograms
from unhang.analysis.state.columns import Ints

_LEAST_TIMES = 2
_LEAST_PERIOD = 2
"""The same call again and again may be the beginning of anything."""
_MOST_ROWS = 4096
_DEEPEST = 1024
_MOST_PERIOD = 256


class Break(Struct, frozen=True):
    """Where a rank left its own order.

    Attributes:
        rank: Index of the rank.
        usual: Row of the call that it used to make, when it last did.
        instead: Row of the call that it made this time.
        after: Row of the call before that.
        times: How often the usual call has followed.
        depth: How many calls it has followed so; `after` is the last of them.
        left_out: The usual call does not come later, or only in a place that it has had before,
            as that of the next iteration does; else it was put off, if only to another line.
        period: Number of calls in an iteration, where all calls before are iterations of one loop;
            0 where that was not looked at.
        is_new: The call that it made instead is one that it has never made before.
        in_step: How many calls of the usual kind the rank made in this step, and in those before,
            and how many its peer made in this one; None where steps were not counted.
    """

    rank: int
    usual: int
    instead: int
    after: int
    times: int
    depth: int
    left_out: bool
    period: int = 0
    is_new: bool = False
    in_step: tuple[int, int, int] | None = None

    @property
    def made_more(self) -> bool:
        """Whether it made more calls in the step than in those before, rather than none of them."""
        return self.in_step is not None and self.in_step[0] > self.in_step[1]


def break_of(programs: RankPrograms, rank: int) -> Break | None:
    """The first place in its last iteration where a rank left its own order; or None."""
    head = int(programs.situation.heads.row[rank])
    rows = own_rows(programs, head)
    if rows is None:
        return None
    keys = keys_of(programs, rows)
    at_head = int(np.searchsorted(rows, head))
    rounds = np.flatnonzero(keys[:at_head] == keys[at_head])
    places = range(int(rounds[-1]) + 1 if len(rounds) else at_head, len(rows))
    return next(_broken(programs, rank, rows, keys, places), None)


def break_without(
    programs: RankPrograms, rank: int, is_asked_for: Callable[[int], bool]
) -> Break | None:
    """Where a rank left its order by passing over a call that others wait for; or None.

    That may be many iterations ago, but no more than one after it last made such a call.

    Args:
        programs: Of the case.
        rank: Index of the rank.
        is_asked_for: Whether a row is such a call.
    """
    head = int(programs.situation.heads.row[rank])
    rows = own_rows(programs, head)
    if rows is None:
        return None
    keys = keys_of(programs, rows)
    newest = {int(key): int(at) for at, key in enumerate(keys)}  # each kind of call once
    made = [at for at in newest.values() if is_asked_for(int(rows[at]))]
    places = range(max(made) + 1, len(rows))[:_MOST_PERIOD] if made else range(0)
    breaks = _broken(programs, rank, rows, keys, places)
    return next((left for left in breaks if is_asked_for(left.usual)), None)


def _broken(
    programs: RankPrograms, rank: int, rows: Ints, keys: Ints, places: Iterable[int]
) -> Iterator[Break]:
    for at in places:
        before, depth = _habit(keys, at)
        if depth and keys[at] != keys[before[-1]]:
            left_out = is_left_out(programs, rows, keys, at, int(before[-1]))
            usual, times = int(rows[before[-1]]), len(before)
            instead, after = int(rows[at]), int(rows[at - 1])
            new = not (keys[:at] == keys[at]).any()
            yield Break(rank, usual, instead, after, times, depth, left_out, is_new=bool(new))


def keeps_its_order(calls: Ints, at: int) -> bool | None:
    """Whether a call is the one that has always followed those before it; None without a habit.

    Args:
        calls: A number for each call of a rank, in order.
        at: Which of them; behind the last one nothing is known.
    """
    if at >= len(calls):
        return None
    before, depth = _habit(calls, at)
    return bool(calls[at] == calls[before[-1]]) if depth else None


def turn_break_of(programs: RankPrograms, ranks: Sequence[int]) -> Break | None:
    """Where the only one of some ranks left its loop, after whole iterations of it.

    All others are seen to go round theirs; else there is none.
    """
    breaks = []
    for rank in ranks:
        head = int(programs.situation.heads.row[rank])
        rows = own_rows(programs, head)
        if rows is None:
            return None
        keys = keys_of(programs, rows)
        period = _period(keys)
        if period < _LEAST_PERIOD:
            return None
        left = period + np.flatnonzero(keys[period:] != keys[: len(keys) - period])
        if period == len(keys) or (len(left) and left[0] + period <= np.searchsorted(rows, head)):
            return None  # its calls are no loop
        if len(left):
            breaks.append(_left_at(programs, rank, rows, keys, period, int(left[0])))
    return breaks[0] if len(breaks) == 1 else None


def _period(keys: Ints) -> int:
    """How many calls there are until one comes for the second time."""
    seen = np.ones(len(keys), np.bool_)
    seen[np.unique(keys, return_index=True)[1]] = False
    return int(seen.argmax()) if seen.any() else len(keys)


def _left_at(
    programs: RankPrograms, rank: int, rows: Ints, keys: Ints, period: int, at: int
) -> Break:
    left_out = is_left_out(programs, rows, keys, at, at - period)
    usual, instead, after = int(rows[at - period]), int(rows[at]), int(rows[at - 1])
    return Break(rank, usual, instead, after, at // period, 1, left_out, period)


def _habit(keys: Ints, at: int) -> tuple[Ints, int]:
    """Where the calls before this one came before, always followed by one; and how many of them."""
    before: Ints = np.arange(at)
    for depth in range(1, min(at, _DEEPEST) + 1):
        before = before[before >= depth]
        before = before[keys[before - depth] == keys[at - depth]]
        if len(before) < _LEAST_TIMES:
            break
        if (keys[before] == keys[before[-1]]).all():
            return before, depth
    return before[:0], 0


def is_left_out(programs: RankPrograms, rows: Ints, keys: Ints, at: int, usual: int) -> bool:
    """Whether the call that was due was left out; else it was put off.

    Args:
        programs: Of the case.
        rows: Calls of a rank, in order.
        keys: A number for each kind of them.
        at: Place of the call that it made instead.
        usual: Place of the call that was due, when it was last made.
    """
    later = at + np.flatnonzero(keys[at:] == keys[usual])
    followed = keys[: at - 1][keys[1:at] == keys[usual]]
    usual_place = not len(later) or bool((followed == keys[later[0] - 1]).any())
    return usual_place and not _is_at_another_line(programs, rows, keys, at, usual)


def _is_at_another_line(
    programs: RankPrograms, rows: Ints, keys: Ints, at: int, usual: int
) -> bool:
    """Whether the usual call comes right behind, from a line that has never made it before.

    Its host made it while the one in front waited: so it did not leave the call out, as one would
    have who makes it from its usual line, in the next iteration.
    """
    if at + 1 >= len(rows) or (keys[:at] == keys[at + 1]).any():
        return False
    calls, pair = programs.situation.evidence.case.calls, rows[[at + 1, usual]]
    columns = calls.group[pair], calls.name[pair], calls.signature[pair]
    return all(bool(column[0] == column[1]) for column in columns)


def own_rows(programs: RankPrograms, head: int) -> Ints | None:
    """The calls of a rank, by its head; None where its dump leaves finished ones out."""
    evidence = programs.situation.evidence
    if head < 0:
        return None
    dump = evidence.case.dumps[int(evidence.case.calls.dump[head])]
    programs.ask(int(programs.situation.evidence.ranks.index_of([dump.rank])[0]))
    if dump.active_only:
        return None
    rows = np.arange(max(dump.start, head - _MOST_ROWS), min(dump.stop, head + _MOST_ROWS))
    closing = evidence.names.closing[evidence.case.calls.name[rows]]
    lone = ~(evidence.batches.ends(rows) | evidence.batches.p2p[rows])
    kept: Ints = rows[~closing | lone | (rows == head)]
    return kept


def keys_of(programs: RankPrograms, rows: Ints, *, lines: bool = True) -> Ints:
    """A number for each call: equal where group, operation, peer, sizes and line are."""
    calls = programs.situation.evidence.case.calls
    columns = [calls.group[rows], calls.name[rows], calls.signature[rows]]
    columns += [calls.stack[rows]] if lines else []
    _, keys = np.unique(np.stack(columns), axis=1, return_inverse=True)
    return np.asarray(keys, np.int64).reshape(-1)
