"""One finding for each root of the waiting, and for each call about which its members disagree.

Roots that say the same are told together: silent ranks in one finding, and calls that do not move
although everybody is in them in one finding, since several communicators stuck at once are one
trouble.
"""

from __future__ import annotations

from collections.abc import Iterable

from unhang.analysis.absent import explain_absent
from unhang.analysis.cycles import explain_cycle
from unhang.analysis.exchanges import explain_pair_mismatch, pair_mismatches
from unhang.analysis.joined import explain_disagreement, explain_joined
from unhang.analysis.picture import Picture
from unhang.analysis.roots import Root, find_roots
from unhang.analysis.waits import Edge
from unhang.report import Finding

__all__ = ["find_causes"]


def find_causes(picture: Picture) -> list[Finding]:
    """Explain everything that keeps somebody waiting, in no particular order."""
    roots = find_roots(picture.graph, picture.heads)
    mismatches = pair_mismatches(picture)
    told = {unit for mismatch in mismatches for unit in mismatch.units}
    told |= set(picture.disagreements)
    calls = [root for root in roots if root.kind == "call" and not told.intersection(root.units)]
    return [
        *(explain_disagreement(picture, each) for each in picture.disagreements.values()),
        *(explain_pair_mismatch(picture, mismatch) for mismatch in mismatches),
        *(explain_absent(picture, root) for root in _absent(picture, roots)),
        *(explain_cycle(picture, root) for root in roots if root.kind == "cycle"),
        *explain_joined(picture, calls),
    ]


def _absent(picture: Picture, roots: Iterable[Root]) -> list[Root]:
    """Roots made of ranks, the silent ones together: the call that most of them keep waiting."""
    absent = [root for root in roots if root.kind == "ranks"]
    silent = [root for root in absent if root.edge == Edge.UNKNOWN]
    outdated = [root for root in silent if set(root.ranks) <= set(picture.outdated.tolist())]
    gone = [root for root in silent if root not in outdated]
    rest = [root for root in absent if root.edge != Edge.UNKNOWN]
    return rest + [_together(roots) for roots in (gone, outdated) if roots]


def _together(roots: list[Root]) -> Root:
    first = max(roots, key=lambda root: (len(root.ranks), -root.units[0]))
    ranks = sorted({rank for root in roots for rank in root.ranks})
    return Root("ranks", tuple(ranks), first.units, first.edge, first.known)
