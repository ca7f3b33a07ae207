"""Ranks that disagree about who is in a group (UH205).

Groups of one name and description that share members but are not the same, each known by other
ranks: somebody called new_group with other ranks than the rest. Replicas use the same names for
groups without common members, which is no disagreement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unhang.analysis.situation import Situation
from unhang.analysis.state.index import Evidence
from unhang.analysis.words import ACTIONS, ALTERNATIVES, subject
from unhang.model import Group
from unhang.report import Finding, GroupRef
from unhang.wording import rank_phrase

__all__ = ["Membership", "explain_membership", "memberships"]


@dataclass(frozen=True, slots=True)
class Membership:
    """Versions of one group.

    Attributes:
        groups: Indices in `Case.groups`, the one that most ranks know first.
        knowers: Global ranks whose dumps hold each of them.
    """

    groups: tuple[int, ...]
    knowers: tuple[tuple[int, ...], ...]

    @property
    def odd_ranks(self) -> tuple[int, ...]:
        """Ranks outside the majority; none where there is no majority."""
        total = sum(len(ranks) for ranks in self.knowers)
        if 2 * len(self.knowers[0]) <= total:
            return ()
        return tuple(sorted(rank for ranks in self.knowers[1:] for rank in ranks))


def memberships(evidence: Evidence) -> list[Membership]:
    """Find groups about whose members ranks disagree; only told membership counts, not inferred."""
    groups = evidence.case.groups
    named: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for number, group in enumerate(groups):
        if not group.inferred and group.name:
            named[group.name, group.description, group.backend].append(number)
    rivals = {number for numbers in named.values() if len(numbers) > 1 for number in numbers}
    knowers: dict[int, set[int]] = defaultdict(set)
    for dump in evidence.dumps:
        for number in rivals.intersection(dump.group_ids):
            knowers[number].add(dump.rank)
    found = []
    for numbers in named.values():
        for versions in _overlapping(groups, [n for n in numbers if knowers.get(n)]):
            ordered = sorted(versions, key=lambda n: (-len(knowers[n]), groups[n].members))
            sets = [knowers[number] for number in ordered]
            if sum(map(len, sets)) == len(set().union(*sets)):
                ranks = tuple(tuple(sorted(known)) for known in sets)
                found.append(Membership(tuple(ordered), ranks))
    return found


def _overlapping(groups: Sequence[Group], numbers: Sequence[int]) -> list[list[int]]:
    """Sets of groups connected by common members, of at least two."""
    clusters: list[tuple[set[int], list[int]]] = []
    for number in numbers:
        members, joined = set(groups[number].members), [number]
        apart = []
        for cluster in clusters:
            if cluster[0] & members:
                members |= cluster[0]
                joined += cluster[1]
            else:
                apart.append(cluster)
        clusters = [*apart, (members, joined)]
    return [joined for _, joined in clusters if len(joined) > 1]


def explain_membership(situation: Situation, found: Membership) -> Finding:
    """Explain a group about whose members ranks disagree."""
    groups = situation.evidence.case.groups
    group, culprits = groups[found.groups[0]], found.odd_ranks
    channels = {number * len(situation.evidence.backends) for number in found.groups}
    waiting_calls = [
        waiting_call
        for waiting_call, channel in enumerate(situation.heads.channel.tolist())
        if channel - channel % len(situation.evidence.backends) in channels
    ]
    nodes = situation.graph.n_ranks + np.asarray(waiting_calls, np.int64)
    reached = set(situation.victims(situation.graph.reaching(nodes))) if waiting_calls else set()
    involved = {rank for ranks in found.knowers for rank in ranks}
    inside = [
        rank
        for waiting_call in waiting_calls
        for rank in situation.heads.inside(waiting_call).tolist()
    ]
    rows = situation.heads.row[np.asarray(inside, np.int64)]
    said = [
        f"{subject(ranks)}: {rank_phrase(groups[number].members)} are in it."
        for number, ranks in zip(found.groups, found.knowers, strict=True)
    ]
    return Finding(
        id="",
        code="UH205",
        role="cause",
        confidence="high" if culprits else "medium",
        summary=(
            f"{subject(culprits or found.knowers[-1])} and {rank_phrase(found.knowers[0])} "
            f"disagree about who is in {group.label}."
        ),
        culprits=culprits,
        victims=tuple(sorted((reached | involved) - set(culprits))),
        group=GroupRef(group.name, group.description, group.size),
        calls=situation.sides_by_row(rows, "peer"),
        sites=situation.book.sites_of_rows(rows, "victim"),
        evidence=tuple(said[:6]),
        alternatives=ALTERNATIVES["UH205"],
        actions=ACTIONS["UH205"],
    )
