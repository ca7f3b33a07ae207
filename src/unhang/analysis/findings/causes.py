"""One finding for each root of the waiting, and for each call about which its members disagree.

What is seen at the end may be the late effect of a call left out long before: then that call is the
finding. Roots that say the same are told together: silent ranks in one finding, and calls that do
not move although everybody is in them in one finding, since several communicators stuck at once are
one trouble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from unhang.analysis.divergence.across_groups import divergence_from_role
from unhang.analysis.divergence.in_group import Divergence, divergence_of
from unhang.analysis.divergence.programs import Programs
from unhang.analysis.findings.deadlock import explain_cycle
from unhang.analysis.findings.exchanges import (
    explain_pair_mismatch,
    explain_wrong_peer,
    pair_mismatches,
    wrong_peers,
)
from unhang.analysis.findings.membership import Membership, explain_membership, memberships
from unhang.analysis.findings.missing import explain_absent
from unhang.analysis.findings.skipped import explain_divergence
from unhang.analysis.findings.stalled import explain_disagreement, explain_joined
from unhang.analysis.matching.collectives import Disagreement
from unhang.analysis.matching.roots import Root, find_roots
from unhang.analysis.matching.wait_graph import Edge
from unhang.analysis.situation import Picture
from unhang.report import Finding

__all__ = ["find_causes"]

_JUST_BEGUN_NS = 10**9
"""A call younger than this when its dump was made is in flight rather than stuck."""

_MAX_IN_CIRCLE = 64
_MAX_COMPARED = 16
"""Ranks of one root whose calls are aligned with their peers'."""


def find_causes(picture: Picture) -> list[Finding]:
    """Explain everything that keeps somebody waiting, in no particular order."""
    programs = Programs(picture)
    versions = _stuck_versions(picture)
    mixed = _units_of(picture, versions)
    wrong, unlike = wrong_peers(picture), pair_mismatches(picture)
    told = {unit for mismatch in unlike for unit in mismatch.units} | mixed
    told |= {int(picture.pairs.unit[at]) for each in wrong for at in (each.call, each.expecting)}
    splits = [d for d in picture.disagreements.values() if d.unit not in mixed]
    roots = [
        root
        for root in find_roots(picture.graph, picture.heads)
        if not told.intersection(root.units) and not _in_flight(picture, root)
    ]
    told |= set(picture.disagreements)
    calls = [root for root in roots if root.kind == "call" and not told.intersection(root.units)]
    found = [
        *(explain_membership(picture, version) for version in versions),
        *(_of_disagreement(picture, programs, disagreement) for disagreement in splits),
        *(explain_wrong_peer(picture, each) for each in wrong),
        *(explain_pair_mismatch(picture, mismatch) for mismatch in unlike),
        *(_of_cycle(picture, programs, root) for root in roots if root.kind == "cycle"),
        *(f for root in _absent(picture, roots) for f in _of_absent(picture, programs, root)),
        *explain_joined(picture, calls),
    ]
    return _once(_doubted(found))


def _stuck_versions(picture: Picture) -> list[Membership]:
    """Disagreements about members of groups in which somebody waits."""
    backends = len(picture.evidence.backends)
    waiting = {channel // backends for channel in picture.heads.channel.tolist()}
    return [each for each in memberships(picture.evidence) if waiting.intersection(each.groups)]


def _units_of(picture: Picture, versions: Sequence[Membership]) -> set[int]:
    """Units of groups about whose members ranks disagree."""
    backends = len(picture.evidence.backends)
    groups = {number for version in versions for number in version.groups}
    channels = picture.heads.channel.tolist()
    return {unit for unit, channel in enumerate(channels) if channel // backends in groups}


def _in_flight(picture: Picture, root: Root) -> bool:
    """Whether all who wait at a root had only just begun to when their dumps were made.

    Those whose dumps do not tell may have waited as briefly: they accuse nobody.
    """
    waiting = [rank for unit in root.units for rank in picture.heads.inside(unit).tolist()]
    ages = [age for rank in waiting if (age := int(picture.waited_ns[rank])) >= 0]
    return bool(ages) and max(ages) < _JUST_BEGUN_NS


def _doubted(findings: Sequence[Finding]) -> list[Finding]:
    """Take silent ranks back to an observation where something is known to be wrong.

    A rank without a dump may be waiting like the others; it is suspected only where nothing else
    explains the hang.
    """
    known = any(f.role == "cause" and f.code != "UH103" for f in findings)
    if not known:
        return list(findings)
    return [
        replace(f, role="observation", confidence="low") if f.code == "UH103" else f
        for f in findings
    ]


def _of_disagreement(picture: Picture, programs: Programs, found: Disagreement) -> Finding:
    """A call that does not fit, or the earlier one that made it so."""
    odd = found.odd_ranks or [rank for side in found.sides[1:] for rank in side.ranks]
    symptom = explain_disagreement(picture, found)
    suspects = picture.evidence.ranks.dense(odd).tolist()
    divergence = _parting(picture, programs, found.unit, suspects)
    if divergence is None or not divergence.shift:
        divergence = divergence_from_role(programs, suspects[:_MAX_COMPARED])
    if divergence is None or not divergence.shift:
        return symptom
    node = picture.graph.n_ranks + found.unit
    return explain_divergence(picture, divergence, found.unit, symptom.summary, [node])


def _of_absent(picture: Picture, programs: Programs, root: Root) -> Iterator[Finding]:
    """Ranks that others wait for: those that left out a call before, and the rest."""
    left = root
    if root.edge == Edge.NOT_CALLED:
        divergence = _parting(picture, programs, root.units[0], root.ranks)
        waiting = picture.heads.inside(root.units[0]).tolist()
        if divergence is None and len(waiting) < len(root.ranks):
            # Few wait for many: perhaps the few made a call too many.
            divergence = divergence_from_role(programs, waiting[:_MAX_COMPARED])
        if divergence is not None and divergence.shift:
            symptom = explain_absent(picture, root).summary
            yield explain_divergence(picture, divergence, root.units[0], symptom, root.ranks)
            waiting_parted = not set(root.ranks) & set(divergence.suspects)
            parted = root.ranks if waiting_parted else divergence.suspects
            left = replace(root, ranks=tuple(r for r in root.ranks if r not in parted))
    if left.ranks:
        yield explain_absent(picture, left)


def _of_cycle(picture: Picture, programs: Programs, root: Root) -> Finding:
    """A circle, or the call left out by one of its ranks that closed it."""
    symptom = explain_cycle(picture, root)
    blame = picture.graph.blame
    inside = np.isin(blame.unit, root.units) & np.isin(blame.rank, root.ranks)
    inside &= blame.kind == Edge.NOT_CALLED
    for at in np.flatnonzero(inside)[:_MAX_COMPARED].tolist():
        unit, rank = int(blame.unit[at]), int(blame.rank[at])
        divergence = _parting(picture, programs, unit, [rank])
        if divergence is not None and divergence.shift:
            return explain_divergence(picture, divergence, unit, symptom.summary, root.ranks)
    parted = divergence_from_role(programs, root.ranks[:_MAX_IN_CIRCLE])
    if parted is not None:
        return explain_divergence(picture, parted, root.units[0], symptom.summary, root.ranks)
    return symptom


def _parting(
    picture: Picture, programs: Programs, unit: int, suspects: Sequence[int]
) -> Divergence | None:
    if unit >= picture.heads.n_collective:
        return None
    channel = int(picture.heads.channel[unit])
    return divergence_of(programs, channel, suspects[:_MAX_COMPARED])


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


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Tell a call that was left out once, though it shows in several places; victims together."""
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        apart = finding.code not in ("UH102", "UH302")
        key = (finding.code, len(kept)) if apart else (finding.code, finding.summary)
        if key in kept:
            victims = {*kept[key].victims, *finding.victims} - set(finding.culprits)
            kept[key] = replace(kept[key], victims=tuple(sorted(victims)))
        else:
            kept[key] = finding
    return list(kept.values())
