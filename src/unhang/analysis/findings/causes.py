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
from unhang.analysis.divergence.programs import RankPrograms
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
from unhang.analysis.situation import Situation
from unhang.report import Finding

__all__ = ["find_causes"]

_JUST_BEGUN_NS = 10**9
"""A call younger than this when its dump was made is in flight rather than stuck."""

_MAX_IN_CIRCLE = 64
_MAX_COMPARED = 16
"""Ranks of one root whose calls are aligned with their peers'."""


def find_causes(situation: Situation) -> list[Finding]:
    """Explain everything that keeps somebody waiting, in no particular order."""
    programs = RankPrograms(situation)
    versions = _stuck_versions(situation)
    mixed = _waiting_calls_of(situation, versions)
    wrong, unlike = wrong_peers(situation), pair_mismatches(situation)
    told = {waiting_call for mismatch in unlike for waiting_call in mismatch.waiting_calls} | mixed
    told |= {
        int(situation.pairs.waiting_call[at])
        for each in wrong
        for at in (each.call, each.expecting)
    }
    splits = [d for d in situation.disagreements.values() if d.waiting_call not in mixed]
    roots = [
        root
        for root in find_roots(situation.graph, situation.heads)
        if not told.intersection(root.waiting_calls) and not _in_flight(situation, root)
    ]
    told |= set(situation.disagreements)
    calls = [
        root for root in roots if root.kind == "call" and not told.intersection(root.waiting_calls)
    ]
    found = [
        *(explain_membership(situation, version) for version in versions),
        *(_of_disagreement(situation, programs, disagreement) for disagreement in splits),
        *(explain_wrong_peer(situation, each) for each in wrong),
        *(explain_pair_mismatch(situation, mismatch) for mismatch in unlike),
        *(_of_cycle(situation, programs, root) for root in roots if root.kind == "cycle"),
        *(f for root in _absent(situation, roots) for f in _of_absent(situation, programs, root)),
        *explain_joined(situation, calls),
    ]
    return _once(_doubted(found))


def _stuck_versions(situation: Situation) -> list[Membership]:
    """Disagreements about members of groups in which somebody waits."""
    backends = len(situation.evidence.backends)
    waiting = {channel // backends for channel in situation.heads.channel.tolist()}
    return [each for each in memberships(situation.evidence) if waiting.intersection(each.groups)]


def _waiting_calls_of(situation: Situation, versions: Sequence[Membership]) -> set[int]:
    """Waiting calls of groups about whose members ranks disagree."""
    backends = len(situation.evidence.backends)
    groups = {number for version in versions for number in version.groups}
    channels = situation.heads.channel.tolist()
    return {
        waiting_call
        for waiting_call, channel in enumerate(channels)
        if channel // backends in groups
    }


def _in_flight(situation: Situation, root: Root) -> bool:
    """Whether all who wait at a root had only just begun to when their dumps were made.

    Those whose dumps do not tell may have waited as briefly: they accuse nobody.
    """
    waiting = [
        rank
        for waiting_call in root.waiting_calls
        for rank in situation.heads.inside(waiting_call).tolist()
    ]
    ages = [age for rank in waiting if (age := int(situation.waited_ns[rank])) >= 0]
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


def _of_disagreement(situation: Situation, programs: RankPrograms, found: Disagreement) -> Finding:
    """A call that does not fit, or the earlier one that made it so."""
    odd = found.odd_ranks or [rank for side in found.sides[1:] for rank in side.ranks]
    symptom = explain_disagreement(situation, found)
    suspects = situation.evidence.ranks.index_of(odd).tolist()
    divergence = _parting(situation, programs, found.waiting_call, suspects)
    if divergence is None or not divergence.shift:
        divergence = divergence_from_role(programs, suspects[:_MAX_COMPARED])
    if divergence is None or not divergence.shift:
        return symptom
    node = situation.graph.n_ranks + found.waiting_call
    return explain_divergence(situation, divergence, found.waiting_call, symptom.summary, [node])


def _of_absent(situation: Situation, programs: RankPrograms, root: Root) -> Iterator[Finding]:
    """Ranks that others wait for: those that left out a call before, and the rest."""
    left = root
    if root.edge == Edge.NOT_CALLED:
        divergence = _parting(situation, programs, root.waiting_calls[0], root.ranks)
        waiting = situation.heads.inside(root.waiting_calls[0]).tolist()
        if divergence is None and len(waiting) < len(root.ranks):
            # Few wait for many: perhaps the few made a call too many.
            divergence = divergence_from_role(programs, waiting[:_MAX_COMPARED])
        if divergence is not None and divergence.shift:
            symptom = explain_absent(situation, root).summary
            yield explain_divergence(
                situation, divergence, root.waiting_calls[0], symptom, root.ranks
            )
            waiting_parted = not set(root.ranks) & set(divergence.suspects)
            parted = root.ranks if waiting_parted else divergence.suspects
            left = replace(root, ranks=tuple(r for r in root.ranks if r not in parted))
    if left.ranks:
        yield explain_absent(situation, left)


def _of_cycle(situation: Situation, programs: RankPrograms, root: Root) -> Finding:
    """A circle, or the call left out by one of its ranks that closed it."""
    symptom = explain_cycle(situation, root)
    blame = situation.graph.blame
    inside = np.isin(blame.waiting_call, root.waiting_calls) & np.isin(blame.rank, root.ranks)
    inside &= blame.kind == Edge.NOT_CALLED
    for at in np.flatnonzero(inside)[:_MAX_COMPARED].tolist():
        waiting_call, rank = int(blame.waiting_call[at]), int(blame.rank[at])
        divergence = _parting(situation, programs, waiting_call, [rank])
        if divergence is not None and divergence.shift:
            return explain_divergence(
                situation, divergence, waiting_call, symptom.summary, root.ranks
            )
    parted = divergence_from_role(programs, root.ranks[:_MAX_IN_CIRCLE])
    if parted is not None:
        return explain_divergence(
            situation, parted, root.waiting_calls[0], symptom.summary, root.ranks
        )
    return symptom


def _parting(
    situation: Situation, programs: RankPrograms, waiting_call: int, suspects: Sequence[int]
) -> Divergence | None:
    if waiting_call >= situation.heads.n_collective:
        return None
    channel = int(situation.heads.channel[waiting_call])
    return divergence_of(programs, channel, suspects[:_MAX_COMPARED])


def _absent(situation: Situation, roots: Iterable[Root]) -> list[Root]:
    """Roots made of ranks, the silent ones together: the call that most of them keep waiting."""
    absent = [root for root in roots if root.kind == "ranks"]
    silent = [root for root in absent if root.edge == Edge.UNKNOWN]
    outdated = [root for root in silent if set(root.ranks) <= set(situation.outdated.tolist())]
    gone = [root for root in silent if root not in outdated]
    rest = [root for root in absent if root.edge != Edge.UNKNOWN]
    return rest + [_together(roots) for roots in (gone, outdated) if roots]


def _together(roots: list[Root]) -> Root:
    first = max(roots, key=lambda root: (len(root.ranks), -root.waiting_calls[0]))
    ranks = sorted({rank for root in roots for rank in root.ranks})
    return Root("ranks", tuple(ranks), first.waiting_calls, first.edge, first.known)


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Tell a call that was left out once, though it shows in several stages; victims together."""
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
