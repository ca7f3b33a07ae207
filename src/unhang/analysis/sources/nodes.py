"""Which ranks other commands mean: their hosts, processes and GPUs, as dumps and stacks know them.

A rank number alone proves nothing: a test of `doctor` counts its own ranks. What is matched is the
host, with the process id, the rank or the GPU where the finding and the case both tell it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from unhang.case import Case
from unhang.model import AskedNode
from unhang.report import Subject

_LINK: Final = re.compile(r"(\S+) (?:->|-) (\S+?)(?::\d+)?")
_GPU: Final = re.compile(r"\bgpu (\d{1,4})\b", re.IGNORECASE)
_NO_NAMES: Final = ("localhost", "localhost.localdomain")


class RankProcess(Struct, frozen=True):
    """A process of a rank; -1 or "" for what nothing tells."""

    rank: int
    host: str
    pid: int
    local_rank: int = -1


def processes_of(case: Case) -> tuple[RankProcess, ...]:
    """The processes of ranks that dumps and stacks tell of; else the node, as the manifest has it.

    Dumps and stacks are asked first: a launcher may call a node by another name than its host does.
    """
    dumped = (RankProcess(dump.rank, dump.host, dump.pid, dump.local_rank) for dump in case.dumps)
    seen = (s for s in case.samples if s.rank >= 0 and s.role == "rank")
    found = (*dumped, *(RankProcess(sample.rank, sample.host, sample.pid) for sample in seen))
    known = {each.rank for each in found if each.host}
    told = ((rank, node.node) for node in case.nodes for rank in node.ranks)
    return (*found, *(RankProcess(rank, name, -1) for rank, name in told if rank not in known))


class Nodes(Struct, frozen=True):
    """Where the ranks of a case are.

    Attributes:
        host_of: Host by rank, where exactly one is known.
        ranks_on: Ranks by host, ascending.
        pids_of: RankProcess ids by rank.
        local_of: Number of the rank on its host, where it is known.
    """

    host_of: Mapping[int, str]
    ranks_on: Mapping[str, tuple[int, ...]]
    pids_of: Mapping[int, frozenset[int]]
    local_of: Mapping[int, int]
    _names: Mapping[str, frozenset[str]]

    def known_as(self, host: str) -> str:
        """The case's name of a host, short and full names being one; "" where it has none."""
        name = host.casefold()
        known = self._names.get(name, frozenset()) | self._names.get(_short(name), frozenset())
        same = [ours for ours in known if ours.casefold() == name]
        alike = same or [ours for ours in known if _is_short(ours, name)]
        return alike[0] if len(alike) == 1 else ""

    def ranks_of(self, subject: Subject) -> tuple[int, ...]:
        """The ranks that a finding's subject is about, by its host; none where nothing fits."""
        ranks = self.ranks_on.get(self.known_as(subject.host or ""), ())
        if subject.kind == "host":
            return ranks
        if subject.kind == "gpu":
            return tuple(rank for rank in ranks if self._may_use(rank, subject.id))
        if subject.kind in ("rank", "process"):
            return tuple(rank for rank in ranks if self._is_process(rank, subject))
        return ()

    def names(self, subject: Subject) -> int | None:
        """The one rank that a subject names by number or process, on the host where it is."""
        ranks = self.ranks_of(subject)
        return ranks[0] if subject.kind in ("rank", "process") and len(ranks) == 1 else None

    def hosts_of(self, ranks: Iterable[int]) -> frozenset[str]:
        """The hosts of ranks; none where the host of one of them is unknown."""
        known = {self.host_of.get(rank, "") for rank in ranks}
        return frozenset() if "" in known else frozenset(known)

    def _is_process(self, rank: int, subject: Subject) -> bool:
        if subject.rank is not None:
            return subject.rank == rank
        return subject.pid in self.pids_of.get(rank, ())

    def _may_use(self, rank: int, gpu: str) -> bool:
        """Whether a GPU can be a rank's: by its number on the host, where both are known."""
        found, local = _GPU.search(gpu), self.local_of.get(rank)
        return found is None or local is None or int(found[1]) == local


def unheard(nodes: Iterable[AskedNode], ranks: Collection[int]) -> tuple[AskedNode, ...]:
    """The nodes without an answer that have one of these ranks, or may have one."""
    silent = (node for node in nodes if node.state != "answered")
    return tuple(node for node in silent if not node.ranks or not {*ranks}.isdisjoint(node.ranks))


def hosts_named(subject: Subject) -> tuple[str, ...]:
    """The hosts that a subject is about: both ends of a link, the host of a GPU."""
    if subject.kind == "link":
        ends = _LINK.fullmatch(subject.id)
        return (ends[1], ends[2]) if ends else ()
    return (subject.host,) if subject.host and subject.kind in ("host", "gpu") else ()


def nodes_of(processes: Sequence[RankProcess]) -> Nodes:
    """Which rank is where; one that sources place on two hosts is on none."""
    hosts: dict[int, set[str]] = defaultdict(set)
    pids: dict[int, set[int]] = defaultdict(set)
    for process in processes:
        hosts[process.rank].add(process.host)
        pids[process.rank].add(process.pid)
    host_of, ranks_on, names = {}, defaultdict(list), defaultdict(set)
    for rank in sorted(hosts):
        told = hosts[rank] - {""}
        if len(told) != 1 or (host := told.pop()).casefold() in _NO_NAMES:
            continue
        host_of[rank] = host
        ranks_on[host].append(rank)
        names[host.casefold()].add(host)
        names[_short(host.casefold())].add(host)
    return Nodes(
        host_of,
        {host: tuple(ranks) for host, ranks in ranks_on.items()},
        {rank: frozenset(pid for pid in known if pid > 0) for rank, known in pids.items()},
        {each.rank: each.local_rank for each in processes if each.local_rank >= 0},
        {name: frozenset(ours) for name, ours in names.items()},
    )


def _short(host: str) -> str:
    """A host's name without its domain; addresses have none."""
    is_address = ":" in host or host.replace(".", "").isdigit()
    return host if is_address else host.split(".", 1)[0]


def _is_short(ours: str, name: str) -> bool:
    """Whether one of two hosts is the other without its domain."""
    mine = ours.casefold()
    return ("." in mine) != ("." in name) and _short(mine) == _short(name)
