"""Which of two calls that a rank lacks comes later in its program, by other ranks of its role.

Ranks in the one call may be no members of the other: a tensor-parallel peer of a rank is not in its
data-parallel group. But it has a group of that kind of its own, of the same description and size,
and runs the same program. Both sides must say the same: those who stand in the first call have not
finished their own of the second kind, and those in the second have finished theirs of the first.
So ranks of another pipeline stage, whose numbers differ, decide nothing. Hosts run ahead of their
devices: what has been called by now tells no order, what has finished does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations

import numpy as np

from unhang.analysis.matching.wait_graph import Edge, Edges
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.heads import Heads
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.progress import Stage, Standing

_MOST_LACKED = 8
_MOST_ASKED = 8
"""Ranks of a call: they run one program, and a few show it."""


def later_by_kin(
    evidence: Evidence, standing: Standing, heads: Heads, blame: Edges
) -> Iterator[tuple[int, int]]:
    """Yield (later, earlier) of the collective waiting calls that one rank has not made."""
    lacked: dict[int, set[int]] = defaultdict(set)
    not_made = (blame.kind == Edge.NOT_CALLED) & (blame.waiting_call < heads.n_collective)
    for rank, call in zip(blame.rank[not_made], blame.waiting_call[not_made], strict=True):
        lacked[int(rank)].add(int(call))
    few = [sorted(calls) for calls in lacked.values() if len(calls) <= _MOST_LACKED]
    pairs = {pair for calls in few for pair in permutations(calls, 2)}
    if not pairs:
        return
    groups, numbers = evidence.case.groups, dict[object, int]()
    kinds = np.asarray(
        [numbers.setdefault((g.description or g.name, g.size), len(numbers)) for g in groups]
    )
    for later, earlier in sorted(pairs):
        before = _finished(evidence, standing, heads, kinds, earlier, later)
        after = _finished(evidence, standing, heads, kinds, later, earlier)
        if before == {False} and after == {True}:
            yield later, earlier


def _finished(
    evidence: Evidence, standing: Standing, heads: Heads, kinds: Ints, inside: int, other: int
) -> set[bool]:
    """Whether ranks that stand in one call have finished the other, each in its own such group."""
    wanted, backends = kinds[evidence.group_of(int(heads.channel[other]))], len(evidence.backends)
    found: set[bool] = set()
    for rank in heads.inside(inside)[:_MOST_ASKED].tolist():
        low, high = np.searchsorted(standing.keys, np.array([rank, rank + 1]) * standing.n_channels)
        channels = standing.keys[low:high] % standing.n_channels
        same = kinds[channels // backends] == wanted
        own = channels[same & (channels % backends == heads.channel[other] % backends)]
        if len(own) != 1:  # of several of that kind none is the one that is meant
            continue
        (stage,), _ = standing.stages(np.array([rank]), own, int(heads.seq[other]))
        if stage != Stage.UNKNOWN:
            found.add(bool(stage == Stage.FINISHED))
    return found
