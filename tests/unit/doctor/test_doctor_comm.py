"""The communication test's judgement, and what isolating finds in made-up machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.doctor.agents.comm import tournament
from unhang.doctor.agents.ranks import Trace
from unhang.doctor.asking.nodes import Node, NodeAnswer
from unhang.doctor.checks.results import CheckResult
from unhang.doctor.comm.isolate import Search, isolate
from unhang.doctor.comm.judging import CommPlan, judge, run_comm
from unhang.doctor.comm.teams import Crew, Drill, Participant, Team, places_on, traces_in

STEPS = ["load", "allocate", "connect", "meet", "init", "barrier", "all_reduce"]


def trace(rank: int, entered: str = "end", **more: Any) -> Trace:  # noqa: ANN401 - fields of a trace
    """One rank of the test, which has done all before the step that it entered."""
    done = STEPS if entered == "end" else STEPS[: STEPS.index(entered)]
    return Trace(rank, host=f"node{rank}", pid=rank + 1, entered=entered, done=list(done),
                 ended=entered == "end", **more)  # fmt: skip


def waiting(rank: int, step: str = "all_reduce") -> Trace:
    """A rank whose own watch ended it."""
    return trace(rank, step, inside=True, timed_out=True)


def failures(results: Sequence[CheckResult]) -> list[tuple[str, tuple[int, ...]]]:
    """Codes and ranks of what failed."""
    return [(r.code, r.ranks) for r in results if r.level == "fail"]


@pytest.mark.parametrize(
    ("traces", "code", "ranks"),
    [
        ([waiting(0), trace(1, "barrier", state="T")], "UH860", (1,)),
        ([waiting(0), trace(1, "all_reduce", inside=True, state="D")], "UH860", (1,)),
        ([waiting(0), trace(1, "barrier", exit_code=-9)], "UH860", (1,)),
        ([waiting(0, "meet"), trace(1, "load", state="T")], "UH860", (1,)),
        ([waiting(0, "meet"), trace(1, "load", error="OSError: no space")], "UH865", (1,)),
        ([waiting(0, "meet"), trace(1, "allocate", error="out of memory")], "UH867", (1,)),
        ([trace(0), trace(1, wrong={"allocate": "3 words"})], "UH867", (1,)),
        ([trace(0), trace(1, wrong={"all_reduce": "3 of 4 values are not 3.0"})], "UH861", (1,)),
        ([waiting(0, "meet"), Trace(1, output="no route to host")], "UH865", (1,)),
        # All came: nobody is named, whoever is one step behind.
        ([waiting(0), waiting(1)], "UH862", ()),
        ([waiting(0), waiting(1, "barrier")], "UH862", ()),
        ([waiting(0, "meet"), waiting(1, "connect")], "UH862", ()),
        ([waiting(0), trace(1, "all_reduce", inside=True, error="reset by peer")], "UH862", ()),
    ],
)
def test_comm_is_judged(traces: list[Trace], code: str, ranks: tuple[int, ...]) -> None:
    """Missing, dead, failed alone, wrong, stuck: only who is at fault by itself is named."""
    assert failures(judge(traces, "gloo")) == [(code, ranks)]


def test_a_missing_rank_is_named_with_host_and_state() -> None:
    """Rank, host, pid, step and what the kernel says."""
    (result,) = judge([waiting(0), trace(1, "barrier", state="T"), waiting(2)], "gloo")
    assert result.seen == "rank 1 on node1 did not arrive in all_reduce, in which ranks 0,2 waited."
    assert result.evidence == ("rank 1 was last heard of in barrier; its process is stopped",)
    assert (result.subjects[0].rank, result.subjects[0].host, result.subjects[0].pid) == (
        1,
        "node1",
        2,
    )


def test_without_torch_nothing_is_tested() -> None:
    """That is no failure of the nodes."""
    bare = [trace(r, "load", error="ModuleNotFoundError: No module named 'torch'") for r in (0, 1)]
    (result,) = judge(bare, "gloo")
    assert (result.code, result.level) == ("UH865", "skip")
    assert "--python" in result.action


class Machines:
    """Made-up machines: teams that hold a broken unit or both ends of a broken link fail."""

    def __init__(
        self, hosts: Sequence[str], broken: set[frozenset[str]], per_node: int = 1
    ) -> None:
        nodes = [Node(host, host) for host in hosts]
        self.team = places_on(nodes, per_node)
        self.broken, self.rounds = broken, 0

    def name(self, place: Participant) -> str:
        """What a place is called in `broken`."""
        return place.host

    def fails(
        self,
        teams: Sequence[Team],
        settings: Mapping[str, str],
        by_node: Mapping[str, Mapping[str, str]],
    ) -> list[bool]:
        """Run teams."""
        del settings, by_node
        self.rounds += 1
        everybody = [place.rank for team in teams for place in team]
        assert len(everybody) == len(set(everybody)), "teams of one round share a place"
        names = [{self.name(place) for place in team} for team in teams]
        return [any(culprit <= team for culprit in self.broken) for team in names]

    def isolated(self, backend: str = "gloo") -> list[CheckResult]:
        """What isolating says."""
        return isolate(self.team, frozenset(), backend, {}, Search(self.fails))


def named(results: Sequence[CheckResult]) -> set[frozenset[str]]:
    """Units and links of the causes."""
    return {
        frozenset(subject.id.split(" - "))
        for result in results
        if result.level == "fail"
        for subject in result.subjects
    }


HOSTS = [f"h{number:02}" for number in range(20)]


@given(st.integers(3, 20), st.data())
@settings(deadline=None, max_examples=60)
def test_one_bad_node_or_link_is_found_among_any_number(count: int, data: st.DataObject) -> None:
    """Exactly the unit that fails alone, with everybody, or the pair that fails, and no other."""
    hosts = HOSTS[:count]
    a, b = data.draw(st.sampled_from(list(combinations(hosts, 2))))
    kind = data.draw(st.sampled_from(["alone", "with all", "link"]))
    broken = {
        "alone": {frozenset([a])},
        "with all": {frozenset([a, other]) for other in hosts if other != a},
        "link": {frozenset([a, b])},
    }[kind]
    expected = {frozenset([a, b])} if kind == "link" else {frozenset([a])}
    assert named(Machines(hosts, broken).isolated()) == expected


def test_two_bad_links_and_a_bad_node() -> None:
    """Several faults are told apart, and innocent ends of links stay unnamed."""
    hosts = HOSTS[:7]
    links = {frozenset(["h00", "h01"]), frozenset(["h02", "h03"])}
    node = {frozenset(["h06", other]) for other in hosts[:6]}
    assert named(Machines(hosts, links | node).isolated()) == {*links, frozenset(["h06"])}


def test_when_every_pair_fails_no_node_is_blamed() -> None:
    """What connects them is left; and nothing that takes more than two is guessed."""
    every = {frozenset(pair) for pair in combinations(HOSTS[:4], 2)}
    results = Machines(HOSTS[:4], every).isolated()
    assert named(results) == set()
    assert "what connects them all" in results[-1].seen
    results = Machines(HOSTS[:4], {frozenset(HOSTS[:3])}).isolated()
    assert named(results) == set()
    assert "more than two" in results[-1].seen


def test_a_failure_that_does_not_repeat_names_nobody() -> None:
    """A busy machine makes a pair fail once: it is tried again before anybody is named."""
    machines = Machines(HOSTS[:3], set())
    seen: set[Team] = set()

    def fails_once(teams: Sequence[Team], *_: object) -> list[bool]:
        fresh = [team not in seen for team in teams]
        seen.update(teams)
        return fresh

    results = isolate(machines.team, frozenset(), "gloo", {}, Search(fails_once))
    assert named(results) == set()


class Gpus(Machines):
    """One machine with broken GPUs or links between them."""

    def name(self, place: Participant) -> str:
        """The GPU."""
        return f"node1 gpu {place.local}"

    def fails(
        self,
        teams: Sequence[Team],
        settings: Mapping[str, str],
        by_node: Mapping[str, Mapping[str, str]],
    ) -> list[bool]:
        """Shared memory makes up for what is broken."""
        return [not settings.get("NCCL_SHM_DISABLE") and fails
                for fails in super().fails(teams, settings, by_node)]  # fmt: skip


@pytest.mark.parametrize(
    "broken", [{frozenset(["node1 gpu 2"])}, {frozenset(["node1 gpu 0", "node1 gpu 3"])}]
)
def test_the_transport_and_the_gpu_or_link_are_named(broken: set[frozenset[str]]) -> None:
    """The setting that makes it work, and where it fails without."""
    results = Gpus(["node1"], broken, 4).isolated("nccl")
    assert named(results) == {frozenset(["NCCL_SHM_DISABLE=1"]), *broken}


def test_a_node_that_fails_alone_is_looked_into() -> None:
    """The node, then its GPU."""

    class Both(Gpus):
        def name(self, place: Participant) -> str:
            return f"{place.host} gpu {place.local}"

    machines = Both(["a", "b"], {frozenset(["b gpu 1"])}, 2)
    machines_fails = Machines.fails
    results = isolate(
        machines.team, frozenset(), "nccl", {},
        Search(lambda *words: machines_fails(machines, *words)),
    )  # fmt: skip
    assert named(results) == {frozenset(["b"]), frozenset(["b gpu 1"])}


def test_time_is_bounded() -> None:
    """When the time is up it says so and keeps what it has found."""
    machines = Machines(HOSTS, {frozenset(["h00"])})
    results = isolate(machines.team, frozenset(), "gloo", {}, Search(machines.fails, seconds=-1.0))
    assert [r.seen for r in results] == ["stopped isolating after -1 s."]


def test_a_named_rank_is_left_out_of_the_test() -> None:
    """If the others pass without it, nothing else is looked for."""

    class Ranks:
        def run(self, teams: Sequence[Team], test: Drill, *_: object) -> list[list[Trace]]:
            del test
            asked.append([place.rank for team in teams for place in team])
            return [
                [trace(p.rank, "barrier", state="T") if p.rank == 1 else
                 (waiting(p.rank) if any(q.rank == 1 for q in team) else trace(p.rank))
                 for p in team]
                for team in teams
            ]  # fmt: skip

    asked: list[list[int]] = []
    results = run_comm(places_on([Node("a")], 3), CommPlan(), Ranks())
    assert failures(results) == [("UH860", (1,))]
    assert results[-1].seen == "without rank 1 the test passes: nothing else is wrong."
    assert asked == [[0, 1, 2], [0, 2]]


class Timed:
    """Ranks whose pairs take what `ms` says; the second time it is asked, what `again` says."""

    def __init__(self, ms: Mapping[tuple[int, int], float], again: float) -> None:
        self.ms, self.again, self.rounds = ms, again, 0

    def run(self, teams: Sequence[Team], test: Drill, *_: object) -> list[list[Trace]]:
        """All pass."""
        del test
        self.rounds += 1
        (team,) = teams
        traces = [trace(place.rank) for place in team]
        pairs = combinations([place.rank for place in team], 2)
        traces[0].rows = [
            {"event": "pair", "a": a, "b": b, "us": 50.0,
             "ms": self.ms.get((a, b), 1.0) if self.rounds == 1 else self.again}
            for a, b in pairs
        ]  # fmt: skip
        return [traces]


@pytest.mark.parametrize(("again", "links"), [(300.0, ["a - d"]), (1.0, [])])
def test_a_slow_pair_is_named_if_it_is_slow_again(again: float, links: list[str]) -> None:
    """A pair that was slow only beside others is not named."""
    nodes = [Node(name, name) for name in "abcd"]
    results = run_comm(places_on(nodes, 1), CommPlan(), Timed({(0, 3): 300.0}, again))
    assert [s.id for r in results if r.level == "warn" for s in r.subjects] == links


def test_pairs_within_and_between_nodes_are_not_compared() -> None:
    """The network is slower than a node's inside: that is no fault of any pair."""
    across = {(a, b): 100.0 for a, b in combinations(range(8), 2) if (a < 4) != (b < 4)}
    results = run_comm(places_on([Node("a", "a"), Node("b", "b")], 4), CommPlan(),
                       Timed(across, 100.0))  # fmt: skip
    assert [r for r in results if r.level == "warn"] == []


class Asked:
    """Keeps what the nodes were told; one of them does not answer."""

    def __init__(self) -> None:
        self.orders: Mapping[str, Any] = {}

    def ask(
        self,
        nodes: Sequence[Node],
        agent: str,
        orders: Mapping[str, Any],
        timeout_s: float,
        common: Mapping[str, Any] | None = None,
    ) -> list[NodeAnswer]:
        """As `NodeAsker` has it."""
        del common
        assert (agent, timeout_s > 0) == ("ranks", True)
        self.orders = orders
        said = {name: getattr(trace(0), name) for name in Trace.__slots__}
        return [
            NodeAnswer(node, {"traces": [said]})
            if node.name == "a"
            else NodeAnswer(node, {}, "no route")
            for node in nodes
        ]


def test_what_the_nodes_are_told_and_what_is_heard() -> None:
    """Ranks, ports and the meeting point of each team; a silent node's ranks are silent."""
    asked = Asked()
    nodes = {name: Node(name, f"10.0.0.{i}") for i, name in enumerate("ab", 1)}
    crew = Crew(asked, nodes, (29500,))
    team = places_on(list(nodes.values()), 2)
    by_node = {"b": {"GLOO_SOCKET_IFNAME": "eth1"}}
    (traces,) = crew.run([team], Drill("gloo", 1.0, 1.0), {"X": "1"}, by_node)
    assert [(t.rank, t.ended, t.host, t.output) for t in traces] == [
        (0, True, "a", ""), (1, False, "a", ""), (2, False, "b", "no route"),
        (3, False, "b", "no route"),
    ]  # fmt: skip
    assert asked.orders["b"]["settings"] == {"X": "1", "GLOO_SOCKET_IFNAME": "eth1"}
    assert asked.orders["b"]["teams"] == [
        {
            "address": "10.0.0.1",
            "port": 29500,
            "size": 4,
            "ranks": [{"rank": 2, "id": 2, "local": 0}, {"rank": 3, "id": 3, "local": 1}],
        }
    ]
    crew.run([team[:2], team[2:]], Drill("gloo", 1.0, 1.0), {}, {})
    assert [order["teams"][0]["address"] for order in asked.orders.values()] == ["127.0.0.1"] * 2
    assert [order["teams"][0]["port"] for order in asked.orders.values()] == [0, 0]


def test_traces_that_are_none_are_left_out() -> None:
    """What a node sends is from outside."""
    good = {name: getattr(trace(0), name) for name in Trace.__slots__}
    rows = [good, 3, {}, {**good, "rank": "x"}, {**good, "done": None}]
    assert [t.rank for t in traces_in(NodeAnswer(Node("a"), {"traces": rows}))] == [0]
    assert traces_in(NodeAnswer(Node("a"), {"traces": 5})) == []


@given(st.integers(1, 17))
def test_a_tournament_lets_everybody_meet_once(size: int) -> None:
    """Every pair once, nobody twice in one round."""
    rounds = tournament(size)
    assert sorted(pair for one in rounds for pair in one) == list(combinations(range(size), 2))
    for one in rounds:
        ranks = [rank for pair in one for rank in pair]
        assert len(ranks) == len(set(ranks))
