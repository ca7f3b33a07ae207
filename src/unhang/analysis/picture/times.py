"""Calls in time: the last ones of some ranks as bars, clocks set where they could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unhang.analysis.picture.alignment import ROWS_AT_MOST, last_rows, state_of
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.stale import made_ns
from unhang.picture import Bar
from unhang.wording import count_of

_MOST_BAR_RANKS, _MOST_BAR_CALLS = 48, 80


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
    room = ROWS_AT_MOST // max(len(evidence.ranks), 1)
    of_rank = dict(last_rows(situation, room if every else _MOST_BAR_CALLS))
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
            state = state_of(situation, row)
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
    said = f"Times of {count_of(left, 'more rank')} are not drawn."
    return tuple(found), said if found and left else ""


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
