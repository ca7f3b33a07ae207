"""How late ranks came to the calls of the group in which most of them meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unhang.analysis.matching.meetings import Meetings, meetings_of
from unhang.analysis.state.index import Evidence
from unhang.picture import Heat

_MOST_CALLS, _MOST_RANKS = 100, 64


def largest_meetings(evidence: Evidence) -> Meetings | None:
    """The meetings of the group with most ranks; None where there are none."""
    return max(meetings_of(evidence), key=lambda each: len(each.ranks), default=None)


def clock_offsets(found: Meetings | None) -> dict[int, float]:
    """How far clocks are ahead in ms, by index of the rank, where anything tells."""
    if found is None or not found.clocks.set:
        return {}
    return dict(zip(found.ranks.tolist(), found.clocks.offset_ms.tolist(), strict=True))


def heat(evidence: Evidence, found: Meetings | None, culprits: Sequence[int]) -> Heat | None:
    """Lateness of ranks, the latest and the blamed ones; None where times do not tell."""
    if found is None:
        return None
    late = found.arrived - found.arrived.min(axis=1, keepdims=True)
    late = late[-_MOST_CALLS:]
    numbers = evidence.ranks.numbers[found.ranks]
    blamed = np.isin(numbers, culprits)
    order = np.lexsort((-np.median(late, axis=0), ~blamed))[:_MOST_RANKS]
    shown = np.sort(order)
    group = evidence.case.groups[evidence.group_of(found.channel)]
    return Heat(
        group=group.label,
        ranks=tuple(numbers[shown].tolist()),
        numbers=tuple(found.seqs[-_MOST_CALLS:].tolist()),
        late_ms=tuple(tuple(row) for row in late[:, shown].T.round(1).tolist()),
        clocks=tuple(found.clocks.offset_ms[shown].round(2).tolist()) if found.clocks.set else (),
    )
