"""Claims about members that disagree: about one call, or about who is in a group.

Of a call the majority is right; without one both sides are told and neither is blamed. Where groups
of one name and description share members but are not the same, each known by other ranks, somebody
called new_group with other ranks than the rest. Replicas use the same names for groups without
common members, which is no disagreement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.matching.collectives import Disagreement, Side
from unhang.analysis.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.index import Evidence
from unhang.kinds import MEMBERSHIP_MISMATCH, OP_MISMATCH
from unhang.model import Group
from unhang.report import CallSide, GroupRef

__all__ = [
    "CallSaid",
    "MembersDiffer",
    "MembersDisagree",
    "Membership",
    "Version",
    "explain_disagreement",
    "explain_membership",
    "memberships",
]

_MOST_SIDES = 8
_MOST_SITES = 6
_MOST_VERSIONS = 6


# ------------------------------------------------------------------ about one call


class CallSaid(Struct, frozen=True):
    """The operation that some ranks called."""

    ranks: tuple[int, ...]
    op: str


class MembersDisagree(Struct, frozen=True):
    """What members of one call disagree about.

    Attributes:
        call: Name of the call, by one of its sides.
        group: Label of the group.
        sides: Largest first.
        majority: The right side; empty where no side has more than half of the members.
        totals: Elements sent and received in all, where these do not agree.
        roots: Ranks that took the call as its root, where these are not just one.
        ended: How many such calls of the group have ended all the same; 0 for one that has not.
    """

    call: str
    group: str
    sides: tuple[CallSaid, ...]
    majority: tuple[int, ...]
    totals: tuple[int, int] | None
    roots: tuple[int, ...] | None = None
    ended: int = 0


def explain_disagreement(situation: Situation, found: Disagreement) -> Claim:
    """Explain a call about which its members disagree."""
    call, culprits = found.waiting_call, set(found.odd_ranks)
    distance = situation.graph.reaching(np.asarray([situation.graph.n_ranks + call], np.int64))
    involved = {rank for side in found.sides for rank in side.ranks}
    majority = found.majority or found.sides[0]
    return Claim(
        kind=found.kind,
        about=_disagree(situation, found),
        culprits=found.odd_ranks,
        victims=tuple(sorted({*situation.victims(distance), *involved} - culprits)),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=_op_of(situation, majority) if found.kind == OP_MISMATCH else situation.op(call),
        calls=tuple(_sides(situation, found)),
        waits=situation.chain(distance),
        sites=tuple(
            site
            for side in found.sides[:_MOST_SITES]
            for site in situation.book.sites_of_rows(
                _rows(situation, call, side),
                "culprit" if set(side.ranks) <= culprits else "victim",
            )
        ),
        doubts=(
            *situation.doubts_of_members(call),
            *(() if found.majority else (Doubt.NO_MAJORITY,)),
            *(() if found.of_all or not found.majority else (Doubt.MAJORITY_OF_SEEN,)),
            *(() if found.roots is None or not found.majority else (Doubt.BY_HABIT,)),
        ),
    )


def _disagree(situation: Situation, found: Disagreement) -> MembersDisagree:
    return MembersDisagree(
        call=situation.label(found.waiting_call),
        group=situation.group(found.waiting_call).label,
        sides=tuple(CallSaid(side.ranks, _op_of(situation, side)) for side in found.sides),
        majority=found.majority.ranks if found.majority else (),
        totals=found.totals,
        roots=found.roots,
    )


def _op_of(situation: Situation, side: Side) -> str:
    case = situation.evidence.case
    return case.names[int(case.calls.name[side.row])].op


def _rows(situation: Situation, call: int, side: Side) -> Ints:
    rows = situation.matched.of(call)
    return rows[np.isin(situation.evidence.case.calls.rank[rows], side.ranks)]


def _sides(situation: Situation, found: Disagreement) -> list[CallSide]:
    culprits = set(found.odd_ranks)
    ordered = sorted(found.sides[:_MOST_SIDES], key=lambda side: not set(side.ranks) <= culprits)
    return [
        situation.side(side.ranks, side.row, "culprit" if set(side.ranks) <= culprits else "peer")
        for side in ordered
    ]


# ------------------------------------------------------------------ about who is in a group


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
        group=GroupRef(group.name, group.description, group.size),
        calls=situation.sides_by_row(rows, "peer"),
        sites=situation.book.sites_of_rows(rows, "victim"),
        doubts=() if culprits else (Doubt.NO_MAJORITY,),
    )


def _waiting_calls(situation: Situation, found: Membership) -> list[int]:
    """The calls in which somebody waits, in any version of the group."""
    group_of = situation.evidence.group_of
    channels = situation.heads.channel.tolist()
    return [call for call, channel in enumerate(channels) if group_of(channel) in found.groups]
