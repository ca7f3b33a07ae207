"""Who takes part in the communication test, and running it with some of them.

A place is one rank of the test and the node that starts it. A team is a set of places that make one
group; teams that share no place run at the same time, in one round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from unhang.doctor.agents.ranks import Trace
from unhang.doctor.asking.nodes import Node, NodeAnswer, NodeAsker
from unhang.incoming import fitting

LONGEST_TEST_S = 900.0
START_GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Participant:
    """One rank of the whole test.

    Attributes:
        node: Name of the node that starts it.
        local: Its number on its machine, which is that of its GPU.
        host: Its machine.
    """

    rank: int
    node: str
    local: int
    host: str


Team = tuple[Participant, ...]


@dataclass(frozen=True, slots=True)
class Drill:
    """What the ranks do: the argument of agents/comm.py.

    Attributes:
        timeout: For each step in s.
        start: For loading torch and finding each other, in s.
        sizes: Bytes of the timed collectives; none leaves the tables out.
        pairs: Whether all pairs are timed.
        allocate: Bytes that each rank fills and reads back.
    """

    backend: str
    timeout: float
    start: float
    sizes: tuple[int, ...] = ()
    pairs: bool = False
    allocate: int = 64 << 20

    def order(self) -> dict[str, Any]:
        """As the rank program takes it."""
        return {name: getattr(self, name) for name in self.__slots__}


class Runner(Protocol):
    """Runs the test."""

    def run(
        self,
        teams: Sequence[Team],
        test: Drill,
        settings: Mapping[str, str],
        by_node: Mapping[str, Mapping[str, str]],
    ) -> list[list[Trace]]:
        """Run it with one or more teams at the same time.

        Args:
            teams: They share no place.
            test: What the ranks do.
            settings: Environment on top of theirs.
            by_node: The same, for single nodes.

        Returns:
            The traces of each team, one a place, in its order.
        """


def places_on(nodes: Sequence[Node], per_node: int) -> Team:
    """All places: the rank that each node is, else so many on each."""
    if any(node.rank >= 0 for node in nodes):
        found = [Participant(node.rank, node.name, node.local, node.where) for node in nodes]
        return tuple(sorted(found, key=lambda place: place.rank))
    return tuple(
        Participant(number * per_node + local, node.name, local, node.where)
        for number, node in enumerate(nodes)
        for local in range(per_node)
    )


def hosts_of(team: Team) -> list[str]:
    """The machines of a team, in the order of their first rank."""
    return list(dict.fromkeys(place.host for place in team))


@dataclass(slots=True)
class Crew:
    """Nodes that run the test's ranks.

    Attributes:
        ports: Where the first rank of a team listens, if several nodes start the team.
    """

    asking: NodeAsker
    nodes: Mapping[str, Node]
    ports: Sequence[int]

    def run(
        self,
        teams: Sequence[Team],
        test: Drill,
        settings: Mapping[str, str],
        by_node: Mapping[str, Mapping[str, str]],
    ) -> list[list[Trace]]:
        """As `Runner` has it."""
        orders: dict[str, Any] = {}
        for number, team in enumerate(teams):
            for name in dict.fromkeys(place.node for place in team):
                order = orders.setdefault(
                    name,
                    {
                        "test": test.order(),
                        "teams": [],
                        "settings": {**settings, **by_node.get(name, {})},
                    },
                )
                order["teams"].append(self._part(team, name, number))
        limit = min(test.start * 2 + test.timeout * 4 + START_GRACE_S, LONGEST_TEST_S)
        asked = [self.nodes[name] for name in orders]
        answers = self.asking.ask(asked, "ranks", orders, limit)
        heard = {trace.rank: trace for answer in answers for trace in traces_in(answer)}
        why = {answer.node.name: answer.error for answer in answers}
        return [[heard.get(p.rank) or _unheard(p, why[p.node]) for p in team] for team in teams]

    def _part(self, team: Team, name: str, number: int) -> dict[str, Any]:
        """What one node receives of a team, the how manieth of its round."""
        first = self.nodes[team[0].node]
        ports = first.ports or self.ports
        alone = all(place.node == first.name for place in team)
        ranks = [
            {"rank": number, "id": place.rank, "local": place.local}
            for number, place in enumerate(team)
            if place.node == name
        ]
        return {
            "address": "127.0.0.1" if alone else first.address,
            "port": 0 if alone else ports[number % len(ports)],
            "size": len(team),
            "ranks": ranks,
        }


def _unheard(place: Participant, why: str) -> Trace:
    return Trace(place.rank, host=place.host, output=why)


def traces_in(answer: NodeAnswer) -> list[Trace]:
    """The traces that a node sent; what does not look like one is left out."""
    found = fitting(answer.data.get("traces"), Trace)
    return [replace(trace, host=answer.node.where) for trace in found]
