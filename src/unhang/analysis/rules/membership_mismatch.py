"""Groups of one name about whose members ranks disagree.

Where groups of one name and description share members but are not the same, each known by other
ranks, some called new_group with other ranks than the rest. Replicas use the same names for groups
without common members, which is no disagreement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.index import Evidence
from unhang.kinds import Kind, Trait
from unhang.model import Group
from unhang.report import GroupRef
from unhang.wording import rank_phrase

MEMBERSHIP_MISMATCH: Final = Kind(
    "UH205",
    "membership-mismatch",
    "disagreement",
    "Ranks disagree about who is in a group.",
    traits=Trait.OF_NOW,
    alternatives=("Some ranks called new_group with other ranks, or in another order.",),
    actions=("Make every rank call new_group with the same ranks in the same order.",),
)

_MOST_VERSIONS = 6


class Membership(Struct, frozen=True):
    """Versions of one group.

    Attributes:
        groups: Indices in `Case.groups`, the one that most ranks know first.
        knowers: Global ranks whose dumps hold each of them.
        n_members: How many ranks any version has as members, with a dump or without.
    """

    groups: tuple[int, ...]
    knowers: tuple[tuple[int, ...], ...]
    n_members: int

    @property
    def odd_ranks(self) -> tuple[int, ...]:
        """Ranks outside the majority of all members; none where there is no such majority."""
        if 2 * len(self.knowers[0]) <= self.n_members:
            return ()
        return tuple(sorted(rank for ranks in self.knowers[1:] for rank in ranks))


def memberships(evidence: Evidence) -> list[Membership]:
    """Find groups about whose members ranks disagree; recorded membership counts, not inferred."""
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
                members = {rank for number in ordered for rank in groups[number].members}
                found.append(Membership(tuple(ordered), ranks, len(members)))
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


class Version(Struct, frozen=True):
    """Who is in a group, as some ranks know it."""

    knowers: tuple[int, ...]
    members: tuple[int, ...]


class MembersDiffer(Struct, frozen=True):
    """A group about whose members ranks disagree.

    Attributes:
        group: Label of the version that most ranks know.
        versions: The first of them; that one stands first.
        accused: Ranks outside the majority; without one, the last version's knowers.
    """

    group: str
    versions: tuple[Version, ...]
    accused: tuple[int, ...]


def explain_membership(situation: Situation, found: Membership) -> Claim:
    """Explain a group about whose members ranks disagree."""
    groups = situation.evidence.case.groups
    group, culprits = groups[found.groups[0]], found.odd_ranks
    calls = _waiting_calls(situation, found)
    nodes = situation.graph.n_ranks + np.asarray(calls, np.int64)
    reached = set(situation.victims(situation.graph.reaching(nodes))) if calls else set()
    involved = {rank for ranks in found.knowers for rank in ranks}
    inside = [rank for call in calls for rank in situation.heads.inside(call).tolist()]
    rows = situation.heads.row[np.asarray(inside, np.int64)]
    versions = (
        Version(ranks, tuple(groups[number].members))
        for number, ranks in zip(found.groups, found.knowers, strict=True)
    )
    return Claim(
        kind=MEMBERSHIP_MISMATCH,
        about=MembersDiffer(
            group.label, tuple(versions)[:_MOST_VERSIONS], culprits or found.knowers[-1]
        ),
        culprits=culprits,
        victims=tuple(sorted((reached | involved) - set(culprits))),
        group=GroupRef.of(group),
        calls=situation.sides_by_row(rows, "peer"),
        sites=situation.book.sites_of_rows(rows, "victim"),
        doubts=() if culprits else (Doubt.NO_MAJORITY,),
    )


def _waiting_calls(situation: Situation, found: Membership) -> list[int]:
    """The calls in which a rank waits, in any version of the group."""
    group_of = situation.evidence.group_of
    channels = situation.heads.channel.tolist()
    return [call for call, channel in enumerate(channels) if group_of(channel) in found.groups]


@words_for(MembersDiffer)
def _verdict_of_members_differ(about: MembersDiffer, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    first = about.versions[0]
    return Words(
        f"{subject(about.accused)} and {rank_phrase(first.knowers)} disagree about who is in "
        f"{about.group}.",
        tuple(
            f"By {rank_phrase(version.knowers)}, its members are {rank_phrase(version.members)}."
            for version in about.versions
        ),
    )
