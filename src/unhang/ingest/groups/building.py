"""Which group each call belongs to, and who its members are.

A group is its name, description and members. `pg_config` says so where it can be believed; it is
lazy (a group appears with its first call), exported by name only, and in every Gloo dump of torch
2.13 empty. So a rank without a declaration takes its peers', and where no rank declares a group,
its members are the ranks that called something on it. As long as there is the default group
only, the nameless declaration of such a dump is that group's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from unhang.bounds import members_budget
from unhang.ingest.columns.decoded import Declared
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.columns.memberships import Memberships
from unhang.model import DEFAULT_GROUP, Group, Note
from unhang.wording import count_of

Pair = tuple[str, str]
"""Name and description of a group, as a call has them."""


_FIRST_MADE: Pair = ("0", "")
"""The first group of a process where groups have no names: the default one, if rank 0 or most ranks
are in it."""


@dataclass(slots=True)
class Grouping:
    """The groups of a case and who knows them.

    Attributes:
        groups: Numbered in order of first use.
        of_calls: For each file, the group of each (name, description) number that it uses.
        of_files: For each file, the groups that it knows, in its own order.
    """

    groups: list[Group] = field(default_factory=list)
    of_calls: list[dict[int, int]] = field(default_factory=list)
    of_files: list[tuple[int, ...]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def resolve_groups(
    files: Sequence[DumpFile], shared: Dictionaries, world_size: int, replica_size: int
) -> Grouping:
    """Find the groups of all files' calls.

    Args:
        files: Files of one incident, with ranks, declarations already of global ranks.
        shared: Names of the groups.
        world_size: For the default group where no rank declares it; 0 if not known.
        replica_size: Ranks of one of torchft's replicas; 0 where there are none.
    """
    pairs = list(shared.groups)
    used = [_used_pairs(item) for item in files]
    pairs_used = [[pairs[number] for number in numbers] for numbers in used]
    resolver = _Resolver(files, pairs_used, shared.memberships)
    resolver.infer(world_size, replica_size)
    grouping = Grouping()
    for index, item in enumerate(files):
        of_calls = {number: resolver.group(item, pairs[number]) for number in used[index]}
        known = dict(zip(pairs_used[index], of_calls.values(), strict=True))
        declared = [
            known[pair] if pair in known else resolver.group(item, pair)
            for group in resolver.own[index].values()
            for pair in [(group.name, group.description)]
        ]
        grouping.of_calls.append(of_calls)
        grouping.of_files.append(tuple(dict.fromkeys([*declared, *of_calls.values()])))
    grouping.groups, grouping.notes = list(_with_twins(resolver.groups)), resolver.notes()
    return grouping


def _with_twins(groups: Sequence[Group]) -> Iterator[Group]:
    """Groups that share name and ranks with one of another backend say so."""
    backends: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    several = len({group.backend for group in groups}) > 1
    for group in groups if several else ():
        for rank in group.members:
            backends[group.name, group.description, rank].add(group.backend)
    for group in groups:
        owned = (backends[group.name, group.description, r] for r in group.members if several)
        yield replace(group, has_twin=True) if any(len(each) > 1 for each in owned) else group


def _used_pairs(item: DumpFile) -> list[int]:
    return item.decoded.groups_used() if item.decoded else []


class _Resolver:
    """Answers who the members of a call's group are, for any file."""

    def __init__(
        self,
        files: Sequence[DumpFile],
        used: Sequence[Sequence[Pair]],
        memberships: Memberships,
    ) -> None:
        self.files = files
        self.used = used
        self.memberships = memberships
        self.nameless = 0
        self.own = [self._believable(*pair) for pair in zip(files, used, strict=True)]
        self.made: dict[tuple[str, str, int, bool, str], int] = {}
        self.groups: list[Group] = []
        self.by_file = {id(item): own for item, own in zip(files, self.own, strict=True)}
        self.peers: dict[Pair, set[int]] = defaultdict(set)
        for own in self.own:
            for group in own.values():
                self.peers[group.name, group.description].add(group.members)
        self.inferred: dict[tuple[Pair, str], int] = {}
        self.common_backend = _most_common(item.backend for item in files)
        self.budget = members_budget(len(files))
        self.left_over: dict[tuple[Pair, str], set[int]] = {}
        self.cut = 0

    def _believable(self, item: DumpFile, used: Sequence[Pair]) -> dict[str, Declared]:
        """What a file declares, by name, where its own rank is a member."""
        found: dict[str, Declared] = {}
        for group in item.decoded.declared if item.decoded else ():
            named = self._named(item, group, used)
            if named is not None and item.rank in self.memberships.sets[named.members]:
                found[named.name] = named
        return found

    def _named(self, item: DumpFile, group: Declared, used: Sequence[Pair]) -> Declared | None:
        """A declaration; a nameless one stands for the default group if that is alone, or none."""
        pair = (group.name, group.description)
        if any(pair) or pair in used:
            return group
        statuses = item.decoded.statuses if item.decoded else ()
        if len(used) != 1 or used[0][1] != DEFAULT_GROUP or len(statuses) > 1:
            return None
        self.nameless += 1
        return Declared(*used[0], group.members)

    def infer(self, world_size: int, replica_size: int) -> None:
        """Infer members of what no rank declares from who called something on it."""
        for (pair, replica), ranks in self.callers(undeclared=True).items():
            first = int(replica) * replica_size if replica and replica_size else 0
            whole = range(first, first + (replica_size or world_size))
            most = 0 in ranks or 2 * len(ranks) > len(whole)
            first_made = pair == _FIRST_MADE and most
            if (pair[1] == DEFAULT_GROUP or first_made) and self.budget.take(len(whole)):
                ranks.update(whole)
            self.inferred[pair, replica] = self.memberships.number(tuple(sorted(ranks)))

    def callers(self, *, undeclared: bool) -> dict[tuple[Pair, str], set[int]]:
        """Who called something on each group, of all or of those that no rank declares."""
        found: dict[tuple[Pair, str], set[int]] = defaultdict(set)
        for item, pairs in zip(self.files, self.used, strict=True):
            for pair in pairs:
                if not undeclared or self.declared(item, pair) is None:
                    found[pair, item.replica].add(item.rank)
        return found

    def declared(self, item: DumpFile, pair: Pair) -> Declared | None:
        """What the file itself, or else its peers, say about the group."""
        own = self.by_file[id(item)]
        found = own.get(pair[0])
        if found and (found.description == pair[1] or not (found.description and pair[1])):
            return found
        sets = self.memberships.sets
        fitting = [number for number in self.peers.get(pair, ()) if item.rank in sets[number]]
        return Declared(*pair, fitting[0]) if len(fitting) == 1 else None

    def group(self, item: DumpFile, pair: Pair) -> int:
        """Number of the group that a file means by a name and description."""
        backend = item.backend or self.common_backend
        if found := self.declared(item, pair):
            key = (found.name, found.description or pair[1], found.members, False, backend)
        else:
            key = (*pair, self.inferred[pair, item.replica], True, backend)
        number = self.made.get(key)
        if number is None:
            name, description, members, inferred, backend = key
            ranks = self.memberships.lists[members]
            if not inferred and not self.budget.take(len(ranks)):
                ranks, inferred = self._left_over((name, description), item), True
            number = self.made[key] = len(self.groups)
            self.groups.append(Group(name, description, ranks, inferred, backend))
        return number

    def _left_over(self, pair: Pair, item: DumpFile) -> tuple[int, ...]:
        """Members of a group whose list is one too many: its callers, or who declares it."""
        if not self.left_over:
            self.left_over = self.callers(undeclared=False)
        self.cut += 1
        return tuple(sorted(self.left_over.get((pair, item.replica), {item.rank})))

    def notes(self) -> list[Note]:
        """One note for all that was inferred, for what stood under no name, for what was cut."""
        texts = []
        cut = (
            f"the dumps list more members of groups than so few dumps can vouch for: those of "
            f"{count_of(self.cut, 'group')} are inferred from their callers"
        )
        if self.inferred:
            count = count_of(len(self.inferred), "group")
            texts.append(
                f"the dumps do not list the members of {count}: inferred from their callers"
            )
        if self.nameless:
            texts.append(
                f"the members that {count_of(self.nameless, 'dump')} list without a name are those "
                "of the one group that they have"
            )
        notes = [Note("info", "groups", text) for text in texts]
        return [*notes, Note("warning", "groups", cut)] if self.cut else notes


def _most_common(values: object) -> str:
    votes = Counter(value for value in values if value)  # type: ignore[attr-defined]
    return votes.most_common(1)[0][0] if votes else ""
