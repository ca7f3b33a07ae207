"""The simulator: healthy jobs end, outcomes repeat, and only the injected fault makes a hang."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.layouts.table import LAYOUTS, build
from lab.model.draft import LayoutRequest
from lab.model.job import Bundle, Issue, Plan, Site, Stop
from lab.model.mesh import grid
from lab.model.schedules import interleaved_table, one_forward_one_backward
from lab.simulate.engine import Outcome, run
from lab.simulate.oracle import Oracle
from unhang.errors import UsageError
from unhang.model import Group
from unhang.rehearse.matching.agreement import agree

AT = Site("step", "train.py", 1)


def job(*programs: list[object], backend: str = "nccl") -> Outcome:
    """Run hand-written programs on one group of all ranks."""
    group = Group("0", "default_pg", tuple(range(len(programs))), backend=backend)
    return run(Plan("hand", [group], [list(p) for p in programs]), seed=1)  # type: ignore[arg-type]


def reduce(size: int = 4, **more: object) -> Issue:
    """An all-reduce of one vector."""
    return Issue(0, "all_reduce", ((size,),), ((size,),), AT, **more)  # type: ignore[arg-type]


def send(peer: int) -> Issue:
    """A send of one vector."""
    return Issue(0, "send", ((4,),), ((4,),), AT, peer=peer)


def receive(peer: int, size: int = 4) -> Issue:
    """A receive of one vector."""
    return Issue(0, "recv", ((size,),), ((size,),), AT, peer=peer)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(
    ranks=st.sampled_from((2, 4, 8, 16, 32, 64)),
    seed=st.integers(0, 99),
    batched=st.booleans(),
    microbatches=st.integers(1, 9),
    naming=st.sampled_from(("global", "hashed", "local")),
)
@settings(max_examples=8, deadline=None)
def test_everybody_finishes_a_healthy_job(
    layout: str,
    ranks: int,
    seed: int,
    batched: bool,  # noqa: FBT001 - drawn by name
    microbatches: int,
    naming: str,
) -> None:
    """Without a fault every program of every layout runs to its end."""
    request = LayoutRequest(
        ranks, seed=seed, steps=2, batched=batched, microbatches=microbatches, naming=naming
    )
    outcome = run(build(layout, request), seed)
    assert outcome.ended == frozenset(range(ranks))
    assert not Oracle(outcome).waits


def test_equal_seeds_give_equal_outcomes() -> None:
    """A job is a function of its plan and its seed."""

    def times(seed: int) -> list[tuple[float, float | None]]:
        outcome = run(build("megatron", LayoutRequest(8, seed=4)), seed)
        return [(r.created, r.finished) for records in outcome.records for r in records]

    assert times(7) == times(7)
    assert times(7) != times(8)


def test_a_rank_that_stops_is_the_only_sink() -> None:
    """Victims wait for victims, and all of it ends at the rank that stopped."""
    plan = build("megatron", LayoutRequest(16, seed=2))
    plan.programs[5].insert(len(plan.programs[5]) // 2, Stop())
    oracle = Oracle(run(plan, 1))
    assert oracle.sinks() == {5}
    assert set(oracle.waits) == set(range(16)) - {5}


def test_hosts_run_ahead_of_their_device() -> None:
    """On NCCL the host enqueues what follows a call that does not finish."""
    outcome = job([reduce(), reduce(), reduce()], [reduce(), Stop()])
    assert [r.finished is None for r in outcome.records[0]] == [False, True, True]


def test_gloo_blocks_the_host() -> None:
    """On Gloo the host stands in the call."""
    outcome = job([reduce(), reduce(), reduce()], [reduce(), Stop()], backend="gloo")
    assert len(outcome.records[0]) == 2


@pytest.mark.parametrize(
    "odd",
    [reduce(5), reduce(dtype="Half"), Issue(0, "broadcast", ((4,),), ((4,),), AT, root=0)],
    ids=["shape", "dtype", "op"],
)
def test_members_that_disagree_are_stuck(odd: Issue) -> None:
    """A collective of members that mean different calls never ends."""
    outcome = job([reduce()], [reduce()], [odd])
    assert len(Oracle(outcome).waits) == 3


def test_a_broadcast_leaves_its_source_ahead() -> None:
    """The source, and members before the missing one, come out; the others wait."""
    cast = Issue(0, "broadcast", ((4,),), ((4,),), AT, root=0)
    outcome = job([cast], [cast], [Stop()], [cast])
    assert set(Oracle(outcome).waits) == {3}


def test_uneven_all_to_all_agrees_in_total() -> None:
    """What all give must be what all take, whoever it is."""

    def call(gives: int, takes: int) -> Issue:
        return Issue(0, "all_to_all", ((gives,),), ((takes,),), AT, uneven=True)

    assert agree([call(8, 5), call(8, 11)])
    assert not agree([call(8, 5), call(7, 11)])


def test_sends_and_receives_meet_in_order() -> None:
    """One after the other, in the order of each direction."""
    outcome = job([send(1), receive(1)], [receive(0), send(0)])
    assert not Oracle(outcome).waits


def test_two_who_receive_first_wait_for_ever() -> None:
    """Nobody sends: a loop without a sink."""
    oracle = Oracle(job([receive(1), send(1)], [receive(0), send(0)], backend="gloo"))
    assert set(oracle.waits) == {0, 1}
    assert not oracle.sinks()


def test_a_batch_may_cross() -> None:
    """In one batch both may send first."""
    batches = [[Bundle((send(1 - r), receive(1 - r)), AT)] for r in range(2)]
    assert not Oracle(job(*batches)).waits


def test_wrong_sizes_do_not_pair() -> None:
    """A send and a receive of other sizes block each other."""
    assert set(Oracle(job([send(1)], [receive(0, 5)])).waits) == {0, 1}


def test_one_sequence_number_a_launch() -> None:
    """Members of a batch and its closing entry share one P2P number; collectives count apart."""
    outcome = job(
        [Bundle((send(1), receive(1)), AT), reduce()],
        [Bundle((send(0), receive(0)), AT), reduce()],
    )
    numbers = [(r.seq, r.p2p_seq, r.closing) for r in outcome.records[0]]
    assert numbers == [(0, 1, ""), (0, 1, ""), (0, 1, "coalesced"), (1, 1, "")]


def test_grids() -> None:
    """Groups along axes of a grid, fastest axis first."""
    axes = {"tp": 2, "dp": 2, "pp": 2}
    assert grid(range(8), axes, ["tp"]) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert grid(range(8), axes, ["pp"]) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert grid(range(8), axes, ["tp", "pp"]) == [(0, 1, 4, 5), (2, 3, 6, 7)]


@pytest.mark.parametrize("stage", range(4))
def test_one_forward_one_backward_does_all_work_once(stage: int) -> None:
    """Each microbatch goes forward and back once, forward first."""
    work = one_forward_one_backward(stage, 4, 6)
    assert len(set(work)) == len(work) == 12
    assert all(work.index(w._replace(forward=True)) <= i for i, w in enumerate(work))


def test_the_interleaved_table_ends() -> None:
    """All work of all chunks is in the table, each piece once."""
    table = interleaved_table(4, 2, 8)
    for stage in range(4):
        column = [row[stage] for row in table if row[stage] is not None]
        assert len(set(column)) == len(column) == 32


def test_impossible_jobs_are_refused() -> None:
    """With a sentence that says what is possible."""
    with pytest.raises(UsageError):
        build("ddp", LayoutRequest(3))
    with pytest.raises(UsageError):
        build("nothing", LayoutRequest(4))
