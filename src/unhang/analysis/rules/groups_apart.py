"""Ranks that wait in making groups that are not the same, by their heartbeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import sites_of, subjects_of
from unhang.analysis.rules.membership_mismatch import MEMBERSHIP_MISMATCH
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Because, Claim, Doubt, Reason
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.case import Case
from unhang.errors import UsageError
from unhang.record.contact.latest import members_text
from unhang.wording import printable, ranges_of, rank_phrase


class GroupsApart(Struct, frozen=True):
    """Who is in a group that ranks make under one name, as text, by whom; most ranks first."""

    name: str
    sides: tuple[tuple[str, tuple[int, ...]], ...]


def groups_apart(lives: Lives, book: StackBook, case: Case) -> Iterator[Claim]:
    """Ranks that wait in making groups that are not the same.

    A rank that has made its group and gone on shows it in its dump.
    """
    looks = {rank: life.look for rank, life in lives.ranks.items() if life.look is not None}
    made = {rank: _made(look) for rank, look in looks.items() if look.sample.makes}
    made = _gone_on(case, looks, made) | made if made else made
    waiting = [rank for rank in sorted(made) if looks[rank].meaning.kind == "init" and made[rank]]
    names = (next(iter(made[rank])) for rank in waiting if _in_vain(rank, made))
    name = next(names, None)
    if name is None:
        return
    sides = _versions(name, made)
    told = sum(len(ranks) for _, ranks in sides)
    clear = 2 * len(sides[0][1]) > told
    odd = tuple(sorted(rank for _, ranks in sides[1:] for rank in ranks)) if clear else ()
    rest = sorted(set(waiting) - set(odd))
    yield Claim(
        kind=MEMBERSHIP_MISMATCH,
        rests_on="stacks",
        about=GroupsApart(name, sides),
        culprits=odd,
        victims=tuple(rest),
        subjects=subjects_of(lives.looks_at(odd)),
        sites=(
            *sites_of(lives.looks_at(odd), "culprit", book),
            *sites_of(lives.looks_at(rest), "victim", book),
        ),
        doubts=() if clear else (Doubt.NO_MAJORITY,),
        reasons=(Reason(Because.GROUPS_APART),),
    )


def _in_vain(rank: int, made: Mapping[int, Mapping[str, str]]) -> bool:
    """Whether the group that a rank waits for is, to one of its members, another one.

    Groups of one name without common members are no disagreement: replicas make them so.
    """
    name, members = next(iter(made[rank].items()))
    try:
        known = ranges_of(members)
    except UsageError:  # too many to list one by one
        return False
    peers = (peer for peer in made if any(peer in ranks for ranks in known))
    return any(made[peer].get(name, members) != members for peer in peers)


def _made(look: RankLook) -> dict[str, str]:
    """Members by the names of the groups that a rank made last, newest first."""
    pairs = (each.partition("=") for each in look.sample.makes)
    return {name: members for name, _, members in pairs if name and members}


def _gone_on(
    case: Case, looks: Mapping[int, RankLook], made: Mapping[int, Mapping[str, str]]
) -> dict[int, dict[str, str]]:
    """Members by the names of the groups in which ranks that make none now have called."""
    names = {name for groups in made.values() for name in groups}
    found: defaultdict[int, dict[str, str]] = defaultdict(dict)
    tables = (case.group_status, case.calls)
    pairs = [np.column_stack((table.dump, table.group)) for table in tables]
    for dump, number in np.unique(np.concatenate(pairs), axis=0).tolist():
        if number < 0:
            continue
        group, rank = case.groups[number], case.dumps[dump].rank
        told = group.name in names and group.members and not group.inferred
        if told and rank in looks and rank not in made:
            found[rank][group.name] = members_text(sorted(group.members))
    return found


def _versions(
    name: str, made: Mapping[int, Mapping[str, str]]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    sides: defaultdict[str, list[int]] = defaultdict(list)
    for rank, groups in sorted(made.items()):
        if name in groups:
            sides[groups[name]].append(rank)
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[0]))
    return tuple((members, tuple(ranks)) for members, ranks in ordered)


@words_for(GroupsApart)
def _verdict_of_groups_apart(about: GroupsApart, claim: Claim) -> Words:
    name = printable(about.name)
    told = (f"{rank_phrase(who)} with ranks {printable(which)}" for which, who in about.sides)
    sides = "; ".join(told)
    odd = claim.culprits
    who = f" ({rank_phrase(odd)} against the others)" if odd else ""
    return Words(
        f"Ranks create the new group {name} with different members{who}: {sides}.",
        (
            "Their heartbeats show this; its members wait for ranks that create another group.",
            "All ranks must create the same groups in the same order, members of them or not.",
        ),
    )
