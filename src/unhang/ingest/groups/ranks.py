"""Whose dump each file is, and how many ranks there should be.

torch writes the rank into the file's name only, and names are unreliable: so what our own recorder
wrote into the file counts first, then the name, then the one rank that is in all groups that the
dump declares. Replicas of torchft number their ranks from 0 again, in the dumps' groups or in the
files' names, and are distinguished here.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from unhang.bounds import is_rank, largest_world
from unhang.case import IN_MEMORY
from unhang.ingest.columns.decoded import Declared, Decoded
from unhang.ingest.columns.dictionaries import Dictionaries, parse_op
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.columns.memberships import NOBODY, Memberships
from unhang.model import DEFAULT_GROUP, Note
from unhang.rankenv import rank_env
from unhang.wording import count_of


@dataclass(frozen=True, slots=True)
class World:
    """How many ranks there should be, and how that is known."""

    size: int
    inferred: bool


def assign_ranks(loaded: Sequence[DumpFile], shared: Dictionaries, *, told: bool) -> list[Note]:
    """Set `rank` of every file; -1 stays where nothing tells.

    Args:
        loaded: All files.
        shared: Names of ops: a send or receive names its caller's group rank.
        told: The user gave a pattern, so the names are right whatever the files say.
    """
    notes = []
    for item in loaded:
        item.rank = item.claim.rank
        origin = item.decoded.origin if item.decoded else None
        if told or origin is None or not is_rank(origin.rank):
            continue
        if item.rank not in (-1, origin.rank):
            text = f"is rank {origin.rank} as the file says, not {item.rank} as its name says"
            notes.append(Note("info", item.source, text))
        item.rank = origin.rank
    if not told:
        notes += _counted_within(loaded, shared.memberships)
        notes += _from_membership(loaded, shared)
    return notes


def _counted_within(loaded: Sequence[DumpFile], memberships: Memberships) -> list[Note]:
    """Give global ranks to files that are numbered within a group.

    torch names a file by the rank in the first NCCL group of its process: the global one only where
    that is the default group of the whole job. What a dump declares of its groups outranks the
    name: a rank is in every group that it declares. So where the name's number of some file is not
    in its first group, all files of a series with that group are numbered within it.
    """
    series: dict[tuple[str, int], list[DumpFile]] = defaultdict(list)
    for item in loaded:
        if item.rank >= 0 and item.decoded is not None and item.decoded.origin is None:
            first = _first_group(item.decoded)
            if first is not None and first.members:
                series[item.claim.series, first.members].append(item)
    taken = {item.rank for item in loaded}
    of_series = Counter(item.claim.series for item in loaded)
    notes = []
    for (name, number), items in series.items():
        members = memberships.lists[number]
        if len(items) == 1 < of_series[name]:
            continue  # one file's word against those of its peers
        ranks = {item.rank for item in items}
        found = {members[rank] for rank in ranks if rank < len(members)}
        if ranks.issubset(members) or max(ranks) >= len(members) or found & (taken - ranks):
            continue
        for item in items:
            item.rank = members[item.rank]
        group = _first_group(items[0].decoded or Decoded())
        which = "their default" if group and group.description == DEFAULT_GROUP else "one"
        text = f"its files are numbered within {which} group, which says the global ranks"
        notes.append(Note("info", name, text))
    return notes


def _first_group(decoded: Decoded) -> Declared | None:
    """The group in which torch numbers the file: the default one, else the only one."""
    for group in decoded.declared:
        if group.description == DEFAULT_GROUP:
            return group
    return decoded.declared[0] if len(decoded.declared) == 1 else None


def _from_membership(loaded: Sequence[DumpFile], shared: Dictionaries) -> list[Note]:
    """Give ranks to nameless dumps: each is the only rank that fits, or the only one left."""
    taken = {item.rank for item in loaded if item.rank >= 0}
    open_items = {
        index: candidates
        for index, item in enumerate(loaded)
        if item.rank < 0 and item.decoded
        and (candidates := possible_ranks(item.decoded, shared))
    }  # fmt: skip
    notes: list[Note] = []
    while True:
        sure = [index for index, ranks in open_items.items() if len(ranks - taken) == 1]
        if not sure:
            return notes
        for index in sure:
            ranks = open_items.pop(index) - taken
            if len(ranks) != 1:
                continue
            loaded[index].rank = rank = min(ranks)
            taken.add(rank)
            text = f"is rank {rank}, as the groups that it declares have only this rank in common"
            notes.append(Note("info", loaded[index].source, text))


def possible_ranks(decoded: Decoded, shared: Dictionaries) -> frozenset[int]:
    """Ranks that are in all groups that a dump declares; empty where it declares none."""
    sets = shared.memberships.sets
    members = [sets[group.members] for group in decoded.declared if group.members]
    if not members:
        return frozenset()
    common = reduce(frozenset.intersection, members)
    return common & frozenset(own) if (own := _own_ranks(decoded, shared)) else common


def _own_ranks(decoded: Decoded, shared: Dictionaries) -> set[int]:
    """Global ranks that the dump's sends and receives name as their caller."""
    by_name = {(group.name, group.description): group.members for group in decoded.declared}
    names, groups = list(shared.names), list(shared.groups)
    pairs = np.unique(np.stack((decoded.column("name"), decoded.column("pg"))), axis=1).T.tolist()
    found = set()
    for name, group in pairs:
        op = parse_op(names[name])
        own = {"send": op.src, "recv": op.dst}.get(op.op, -1)
        members = shared.memberships.lists[by_name.get(groups[group], NOBODY)]
        if 0 <= own < len(members):
            found.add(members[own])
    return found


def place_lone_dump(loaded: Sequence[DumpFile], shared: Dictionaries) -> list[Note]:
    """Give a rank to one dump that was handed over alone, and say how it is known."""
    nameless = [item for item in loaded if item.rank < 0 and item.decoded]
    if len(loaded) != 1 or not nameless or not loaded[0].source.startswith(f"{IN_MEMORY}/"):
        return []
    item = nameless[0]
    allowed = possible_ranks(item.decoded, shared) if item.decoded else frozenset()
    own = _own_rank()
    if own >= 0 and (not allowed or own in allowed):
        item.rank = own
        return [Note("info", item.source, f"is of rank {own}, as this process is")]
    item.rank = min(allowed, default=0)
    text = (
        f"nothing shows its rank, so it is called rank {item.rank} here: load({{rank: "
        "dump}}) names it"
    )
    return [Note("warning", item.source, text)]


def _own_rank() -> int:
    """The rank of this process: as torch says, or its launcher; -1 where it is none."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    if dist is not None and dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    told = rank_env(os.environ)
    return told.rank if told else -1


def split_replicas(
    loaded: Sequence[DumpFile], memberships: Memberships, told: int | None
) -> tuple[int, list[Note]]:
    """Tell torchft's replicas apart.

    Each replica is a job of its own with ranks from 0, whose dumps carry numbers that go on over
    all replicas: rank 5 of two replicas of 4 is rank 1 of the second. Its groups are renumbered.

    Args:
        loaded: Files with their ranks.
        memberships: Receives the renumbered groups.
        told: Ranks of one replica (`--group-world-size`), or None to see whether there are any.

    Returns:
        Ranks of one replica, 0 where there are none, and notes.
    """
    size = told or _replica_size(loaded, memberships)
    if not size:
        return 0, []
    for item in loaded:
        if item.rank >= 0:
            item.replica = str(item.rank // size)
            if item.decoded:
                item.decoded.declared = tuple(
                    _shifted(group, item.rank, size, memberships) for group in item.decoded.declared
                )
    count = len({item.replica for item in loaded if item.replica})
    if told or count < 2:  # noqa: PLR2004 - one replica is an ordinary job
        return (size if told else 0), []
    text = f"{count} replicas of {size} ranks each, as their default groups say"
    return size, [Note("info", "replicas", text)]


def _replica_size(loaded: Sequence[DumpFile], memberships: Memberships) -> int:
    """Size that all default groups have, where ranks beyond it have left dumps as well."""
    sizes: Counter[int] = Counter()
    beyond = False
    for item in loaded:
        for group in item.decoded.declared if item.decoded else ():
            if group.description == DEFAULT_GROUP and group.members:
                sizes[group.members] += 1
                beyond |= item.rank not in memberships.sets[group.members]
    if not beyond or len(sizes) > 1:
        return 0
    members = memberships.lists[next(iter(sizes))]
    return len(members) if members == tuple(range(len(members))) else 0


def _shifted(group: Declared, rank: int, size: int, memberships: Memberships) -> Declared:
    """The group with the numbers of its replica; one that reaches beyond a replica stays."""
    ranks = memberships.sets[group.members]
    first = rank - rank % size
    if not first or rank % size not in ranks or max(ranks) >= size:
        return group
    return replace(group, members=memberships.shifted(group.members, first))


def world_of(
    files: Sequence[DumpFile],
    memberships: Memberships,
    told: int | None,
    manifest: tuple[int, str],
    replica_size: int,
    notes: list[Note],
) -> World:
    """Number of expected ranks: as told, as our recorder or a group says, or the highest rank.

    Args:
        files: Files of one incident, with their ranks.
        memberships: Members of the groups that they declare.
        told: What the user says, whose word is taken.
        manifest: What a manifest says, and which; 0 where none does.
        replica_size: Ranks of one of torchft's replicas; 0 where there are none.
        notes: What is not believed is added here.
    """
    if told:
        return World(told, inferred=False)
    decoded = [item.decoded for item in files if item.decoded]
    sizes = {group: group.description == DEFAULT_GROUP for d in decoded for group in d.declared}
    largest = {False: 0, True: 0}
    for number, default in {(group.members, default) for group, default in sizes.items()}:
        largest[default] = max(largest[default], memberships.highest(number) + 1)
    highest = max((item.rank for item in files), default=-1) + 1
    if replica_size:
        highest = -(-highest // replica_size) * replica_size
    own = max((item.origin.world_size for item in decoded if item.origin), default=0)
    shown = len({item.rank for item in files}) + max(map(len, memberships.lists))
    claims = (
        (*manifest, False),
        (own, "a dump", False),
        (largest[True] if largest[True] >= highest else 0, "a default group", False),
        (max(highest, *largest.values()), "the highest rank of a file or group", True),
    )
    for size, who, inferred in claims:
        if 0 < size <= largest_world(shown):
            return World(size, inferred)
        if size:
            text = (
                f"{size:,} ranks, as {who} says, are not plausible: "
                f"{count_of(shown, 'rank')} can be seen (--world-size sets more)"
            )
            notes.append(Note("warning", "world size", text))
    return World(0, inferred=True)
