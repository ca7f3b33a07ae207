"""One model of each rank's life, from everything that was seen of it.

Sources (`unhang.analysis.sources`) observe: where a rank stood and whether it moved, how its
process ended, what it printed, what its watchdog counted, which call it was last heard in, and on
which host it ran. Rules ask here, and no rule asks a source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from unhang.analysis.sources.exits import End, ends_of, with_last_words
from unhang.analysis.sources.launchers import LauncherLook, launchers_of
from unhang.analysis.sources.log_places import placed
from unhang.analysis.sources.logs import Counters, Said, said_in
from unhang.analysis.sources.nodes import Nodes, nodes_of, processes_of
from unhang.analysis.sources.reports import Reported, Told, reports_of
from unhang.analysis.sources.stacks import RankLook, doubles_of, looks_of, looks_with_dumps
from unhang.analysis.sources.traces import LastHeard, heard_of
from unhang.case import Case
from unhang.model import AskedNode


class RankLife(Struct, frozen=True):
    """What is known of one rank next to its calls; None and empty for what nothing tells.

    Attributes:
        look: Where it stands, and whether it moves.
        sampled: That was seen from outside, rather than written by its own dump.
        end: How its process ended.
        counters: What its watchdog counted, by the name of the group (or "").
        heard: The last traced call of its process.
        spoke: The logs name it.
    """

    rank: int
    look: RankLook | None = None
    sampled: bool = False
    end: End | None = None
    counters: Mapping[str, Counters] = field(default_factory=dict)
    heard: LastHeard | None = None
    spoke: bool = False

    @property
    def is_seen(self) -> bool:
        """Whether anything was seen of it."""
        return bool(self.look or self.end or self.heard or self.spoke)


class Lives(Struct, frozen=True):
    """The lives of all ranks of a job, and what is known of no rank alone.

    Attributes:
        ranks: By number, ascending: those expected and those about which anything was seen.
        expected: Ranks that should be there.
        world_size: Number of ranks that were told of; 0 where nothing tells.
        said: What the logs say.
        heard: Where each traced process was last heard of, oldest first.
        nodes: Which host and process each rank is on.
        reports: What other commands found.
        in_calls: Ranks that are in a call, by their dumps.
        failed: Ranks with a call that raised, by what their recorder wrote.
        asked: The nodes of the job, by the manifest.
        launchers: Launchers that were looked at: they had started no rank yet.
        doubles: Ranks that several living processes say they are, with a look at each.
    """

    ranks: Mapping[int, RankLife]
    expected: tuple[int, ...]
    world_size: int
    said: Said
    heard: tuple[LastHeard, ...]
    nodes: Nodes
    reports: tuple[Reported, ...]
    in_calls: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    doubles: Mapping[int, tuple[RankLook, ...]] = field(default_factory=dict)
    launchers: tuple[LauncherLook, ...] = ()
    asked: tuple[AskedNode, ...] = ()

    @property
    def sampled(self) -> dict[int, RankLook]:
        """The ranks that were looked at from outside."""
        return {n: life.look for n, life in self.ranks.items() if life.look and life.sampled}

    @property
    def told(self) -> tuple[Told, ...]:
        """The findings that verdicts of other commands rest on."""
        return tuple(
            Told(source="reports", finding=finding, by=each)
            for each in self.reports
            for finding in each.chosen
        )

    def looks_at(self, ranks: Iterable[int]) -> list[RankLook]:
        """Where these ranks stand, of those about which anything tells."""
        lives = (self.ranks.get(rank) for rank in ranks)
        return [life.look for life in lives if life is not None and life.look is not None]


def lives_of(case: Case) -> Lives:
    """Put together what all sources saw of each rank."""
    sampled = looks_of(case.samples)
    looks = looks_with_dumps(case, sampled)
    processes = processes_of(case)
    events = placed(case, processes)
    ends = with_last_words(ends_of(case, looks), events)
    named = {*case.log_ranks, *(event.rank for event in events if event.rank >= 0)}
    known = named.union(case.expected_ranks)
    said = said_in(events, known, case.log_facts)
    heard = heard_of(case.last_calls)
    by_rank = {each.call.rank: each for each in heard if each.call.rank >= 0}
    counters: dict[int, dict[str, Counters]] = defaultdict(dict)
    for name, told in said.counters.items():
        for rank, counted in told.items():
            counters[rank][name] = counted
    return Lives(
        ranks={
            rank: RankLife(
                rank=rank,
                look=looks.get(rank),
                sampled=rank in sampled,
                end=ends.get(rank),
                counters=counters[rank],
                heard=by_rank.get(rank),
                spoke=rank in named,
            )
            for rank in sorted(known | looks.keys() | ends.keys() | by_rank.keys())
        },
        expected=case.expected_ranks,
        world_size=case.world_size,
        said=said,
        heard=heard,
        nodes=nodes_of(processes),
        reports=reports_of(case),
        failed=frozenset(dump.rank for dump in case.dumps if dump.failures)
        | {rank for rank, look in sampled.items() if look.sample.lost_ns},
        doubles=doubles_of(case.samples),
        launchers=launchers_of(case.samples),
        asked=case.nodes,
    )
