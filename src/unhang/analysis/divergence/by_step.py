"""Sends and receives counted by step: which rank made fewer in one than ever, or more than ever.

A step ends with a collective that both ranks make, by whose number their steps are laid side by
side. In each step before, the n sends of a step have met n receives. Where they now do not, one
rank has left the count that it has always kept: it left a call out, or made one too many.
It need not be the last call of the step, nor the first that has come for the second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from unhang.analysis.divergence.programs import RankPrograms
from unhang.analysis.divergence.rhythm import Break, is_left_out, keys_of, own_rows
from unhang.analysis.matching.segments import ends_of, whole_ranks
from unhang.analysis.state.columns import Bools, Ints

_MOST_CHANNELS = 16


class _Side(Struct, frozen=True):
    """What one rank made, cut into steps of one channel.

    Attributes:
        rows: Its calls, in order.
        keys, loose: A number for each kind of them, with and without their lines.
        wanted: Those that are counted.
        seqs, ends: Number of each collective that ends a step, and its place among the rows.
        whole: The first call of the rank is there.
    """

    rows: Ints
    keys: Ints
    loose: Ints
    wanted: Bools
    seqs: Ints
    ends: Ints
    whole: bool

    def counts(self) -> dict[int, int]:
        """How many each step has whose beginning is there, the one that has not ended included."""
        made = np.cumsum(np.r_[0, self.wanted])
        from_start = np.zeros(int(self.whole), np.int64)
        edges = made[np.r_[from_start, self.ends, len(self.rows)]]
        numbers = np.r_[self.seqs, self.seqs[-1] + 1][int(not self.whole) :]
        return dict(zip(numbers.tolist(), np.diff(edges).tolist(), strict=True))


def step_break_of(programs: RankPrograms, rank: int, waiting_call: int) -> Break | None:
    """The first step in which a rank made fewer calls than ever of those that its peer waits for.

    Or in which the peer made more than ever, and the rank as many: then it is the peer's. None
    where both did otherwise, where their steps never were alike, or where no collective tells
    steps.

    Args:
        programs: Of the case.
        rank: Index of the rank.
        waiting_call: The sends and receives of its peer that wait for it.
    """
    situation = programs.situation
    pairs, heads = situation.pairs, situation.heads
    at = pairs.of_waiting_call(waiting_call)
    wanted, *_ = ends_of(situation.evidence, pairs.row[at[pairs.peer[at] == rank]])
    peer = int(heads.owner[waiting_call])
    rows = [own_rows(programs, int(heads.row[each])) for each in (rank, peer)]
    mine, theirs = rows
    if mine is None or theirs is None:
        return None
    for channel in _common(programs, mine, theirs):
        sides = _side(programs, mine, channel, wanted), _side(programs, theirs, channel, wanted)
        if (left := _break_in(programs, (rank, peer), *sides)) is not None:
            return left
    return None


def _common(programs: RankPrograms, mine: Ints, theirs: Ints) -> list[int]:
    """Channels in which both have made collectives, those with most of them first."""
    evidence = programs.situation.evidence
    own, other = (evidence.channel(rows[evidence.collective[rows]]) for rows in (mine, theirs))
    channels, times = np.unique(own[np.isin(own, other)], return_counts=True)
    found: list[int] = channels[np.argsort(-times, kind="stable")].tolist()
    return found[:_MOST_CHANNELS]


def _side(programs: RankPrograms, rows: Ints, channel: int, wanted: Ints) -> _Side:
    evidence = programs.situation.evidence
    key, owner, *_ = ends_of(evidence, rows)
    collective = evidence.collective[rows]
    ends = np.flatnonzero(collective & (evidence.channel(rows) == channel))
    dump = evidence.case.dumps[int(evidence.case.calls.dump[rows[0]])]
    return _Side(
        rows=rows,
        keys=keys_of(programs, rows),
        loose=keys_of(programs, rows, lines=False),
        wanted=~collective & np.isin(key, wanted),
        seqs=evidence.case.calls.seq[rows[ends]],
        ends=ends,
        whole=bool(whole_ranks(evidence)[owner[0]]) and int(rows[0]) == dump.start,
    )


def _break_in(
    programs: RankPrograms, ranks: tuple[int, int], mine: _Side, theirs: _Side
) -> Break | None:
    made, asked = mine.counts(), theirs.counts()
    closing = dict(zip(mine.seqs.tolist(), mine.keys[mine.ends].tolist(), strict=True))
    for step in sorted(made.keys() & asked.keys() & closing.keys()):
        if made[step] == asked[step]:
            continue
        alike = [s for s in closing if s < step and s in made and closing[s] == closing[step]]
        alike = [s for s in alike if asked.get(s) == made[s] > 0]
        if not alike:
            return None
        fewer = made[step] < min(made[s] for s in alike)
        more = asked[step] > max(made[s] for s in alike)
        if fewer == more or made[step] > asked[step]:
            return None
        if fewer:
            return _left_at(programs, ranks[0], mine, (step, asked[step]), alike)
        return _left_at(programs, ranks[1], theirs, (step, made[step]), alike)
    return None


def _left_at(
    programs: RankPrograms, rank: int, side: _Side, met: tuple[int, int], alike: Sequence[int]
) -> Break | None:
    """Where a step, in which its peer made so many calls, parts from one before.

    By calls and lines; where lines have changed too, by the calls alone. The call in question is
    the usual one where it made fewer, and what it made instead where it made more.
    """
    now, made = _span(side, met[0]), side.counts()
    more = made[met[0]] > met[1]
    for keys in (side.loose,) if more else (side.keys, side.loose):
        shared, best = max((_in_common(keys, _span(side, each), now), each) for each in alike)
        usual, at = _span(side, best).start + shared, now.start + shared
        if 0 < at < len(side.rows) and side.wanted[at if more else usual]:
            return Break(
                rank=rank,
                usual=int(side.rows[usual]),
                instead=int(side.rows[at]),
                after=int(side.rows[at - 1]),
                times=len(alike),
                depth=1,
                left_out=is_left_out(programs, side.rows, keys, at, usual),
                in_step=(made[met[0]], made[best], met[1]),
            )
    return None


def _span(side: _Side, step: int) -> range:
    """Places of the calls of a step, its collective included."""
    at = int(np.searchsorted(side.seqs, step))
    stop = int(side.ends[at]) + 1 if at < len(side.ends) else len(side.rows)
    return range(int(side.ends[at - 1]) + 1 if at else 0, stop)


def _in_common(keys: Ints, left: range, right: range) -> int:
    """How many calls two steps begin with alike."""
    pairs: Iterator[tuple[int, int]] = zip(left, right, strict=False)
    shared = 0
    for one, other in pairs:
        if keys[one] != keys[other]:
            break
        shared += 1
    return shared
