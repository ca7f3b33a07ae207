"""Which calls meet and who waits, by messages of ranks alone."""

from __future__ import annotations

import pytest

from tests.unit.rehearse.talk import Ranks

SEND = {"kind": "send", "op": "send", "reduction": ""}
RECEIVE = {"kind": "recv", "op": "recv", "reduction": ""}


def test_a_collective_ends_when_its_last_member_comes() -> None:
    """Until then the others wait; after it nobody does, and all ranks' ends end the rehearsal."""
    ranks = Ranks(3)
    ranks.call(0, 5)
    ranks.call(1, 5)
    assert ranks.waiting() == [0, 1]
    assert not ranks.referee.is_stuck  # rank 2 still runs
    ranks.call(2, 5)
    assert ranks.waiting() == []
    assert [waiter for waiter, _ in ranks.referee.answers] == [2, 0, 1] or ranks.referee.met == 3
    for rank in range(3):
        ranks.end(rank)
    assert ranks.referee.is_over


def test_a_rank_that_ends_leaves_its_peers_stuck() -> None:
    """Nothing is left that could help them: that is the end state, known at once."""
    ranks = Ranks(2)
    ranks.call(0, 5)
    ranks.end(1)
    assert ranks.referee.is_stuck
    assert not ranks.referee.is_over


@pytest.mark.parametrize(
    "other",
    [
        {"inputs": [[8]], "outputs": [[8]]},
        {"dtypes": ["int64"]},
        {"op": "broadcast", "root": 0},
        {"reduction": "MAX"},
    ],
    ids=["size", "dtype", "op", "reduction"],
)
def test_members_that_disagree_never_end(other: dict[str, object]) -> None:
    """Nor does anything behind it in their group."""
    ranks = Ranks(3)
    for rank in range(3):
        ranks.call(rank, 5, wait=False, **(other if rank == 1 else {}))
    for rank in range(3):
        ranks.call(rank, 6)
    assert ranks.referee.is_stuck
    assert {call.process.rank for call in ranks.referee.circles["0/[0, 1, 2]"].apart} == {0, 1, 2}


def test_sizes_of_equal_length_agree() -> None:
    """What travels has no shape."""
    ranks = Ranks(2)
    ranks.call(0, 5, inputs=[[2, 6]], outputs=[[2, 6]])
    ranks.call(1, 5, inputs=[[12]], outputs=[[12]])
    assert ranks.waiting() == []


def test_crossed_groups_lock_only_where_they_wait() -> None:
    """In blocking order a circle; asynchronous and waited for later, none."""
    for wait in (True, False):
        ranks = Ranks(2)
        names = ["a/[0, 1]", "b/[0, 1]"]
        made = []
        for rank in range(2):
            for name in ("a", "b"):
                ranks.group(rank, name, [0, 1])
            order = names if rank else names[::-1]
            if wait:
                ranks.call(rank, 5, group=order[0])  # stays in it
                continue
            made += [(rank, ranks.call(rank, 5, group=name, wait=False)) for name in order]
        for rank, number in made:
            ranks.wait(rank, number, 9)
        assert ranks.referee.is_stuck is wait


def test_receives_first_lock_and_sends_both_float() -> None:
    """A ring that receives first waits for ever; isend and irecv of both sides meet."""
    ring = Ranks(2, "gloo")
    for rank in range(2):
        ring.call(rank, 5, peer=1 - rank, inputs=[], dtypes=[], **RECEIVE)
    assert ring.referee.is_stuck
    pair = Ranks(2, "gloo")
    made = [(r, pair.call(r, 5, wait=False, peer=1 - r, outputs=[], **SEND)) for r in range(2)]
    made += [
        (r, pair.call(r, 6, wait=False, peer=1 - r, inputs=[], dtypes=[], **RECEIVE))
        for r in range(2)
    ]
    for rank, number in made:
        pair.wait(rank, number, 7)
    assert pair.waiting() == []


def test_gloo_matches_by_tag_and_nccl_by_order() -> None:
    """Two sends taken in the other order by their tags."""
    for backend, stuck in (("gloo", False), ("nccl", True)):
        ranks = Ranks(2, backend)
        for tag, size in ((1, 4), (2, 8)):
            ranks.call(0, tag, wait=False, peer=1, tag=tag, inputs=[[size]], outputs=[], **SEND)
        taken = ((2, 8), (1, 4))
        for tag, size in taken[: 1 if stuck else 2]:
            ranks.call(1, 9, peer=0, tag=tag, inputs=[], dtypes=[], outputs=[[size]], **RECEIVE)
        assert bool(ranks.waiting()) is stuck


def test_a_receive_from_any_rank_takes_the_first_that_sends() -> None:
    """And says whose it was, whichever side comes first."""
    for first in (0, 2):
        ranks = Ranks(3, "gloo")
        order = [first, 2 - first]
        for rank in order:
            if rank == 2:
                ranks.call(2, 5, peer=0, outputs=[], **SEND)
            else:
                ranks.call(0, 6, peer=3, inputs=[], dtypes=[], **RECEIVE)
        assert ranks.waiting() == []
        assert ranks.referee.ranks[0].calls[0].source == 2


def test_a_key_that_is_never_set_is_what_a_rank_waits_for() -> None:
    """And one that is set later lets it go on."""
    ranks = Ranks(2)
    place = {"stack": 0, "frames": [["main", "train.py", 3]]}
    ranks.say(0, "store", do="get", name="", key="plan", **place)
    assert ranks.referee.ranks[0].waits == "key plan"
    ranks.end(1)
    assert ranks.referee.is_stuck
    ranks.say(1, "store", do="set", name="", key="plan", value="eA==")
    assert ranks.waiting() == []
    assert (0, {"value": "eA=="}) in ranks.referee.answers


def test_ranks_that_a_script_starts_itself_are_the_job() -> None:
    """Their launcher is none of them, nor is anything stuck before all have come."""
    ranks = Ranks(2)
    referee = type(ranks.referee)(1)
    referee.hear(0, {"t": "hello", "pid": 50, "rank": -1, "main": True})
    referee.hear(0, {"t": "alive"})
    for rank in range(2):
        assert not referee.is_stuck
        referee.hear(rank + 1, {"t": "hello", "pid": 60 + rank, "rank": rank, "main": True})
        referee.hear(rank + 1, {"t": "init", "rank": rank, "world": 2, "parent": 50})
    assert list(referee.ranks) == [0, 1]
    assert referee.ranks[0].pid == 60


def test_values_are_spent_when_all_have_taken_them() -> None:
    """Then their files can go."""
    ranks = Ranks(2)
    for rank in range(2):
        ranks.call(rank, 5)
    ranks.say(0, "took", number=0)
    assert ranks.referee.spent == []
    ranks.say(1, "took", number=0)
    assert sorted(ranks.referee.spent) == [(0, 0, 1), (1, 0, 1)]


def test_a_batch_ends_as_one() -> None:
    """Its receive has met, and ends with its send only; the rank that sent goes on at once."""
    ranks = Ranks(3)
    receive = ranks.call(0, 5, wait=False, **RECEIVE, peer=1, inputs=[], batch=0)
    send = ranks.call(0, 5, wait=False, **SEND, peer=2, outputs=[], batch=0)
    ranks.call(1, 6, **SEND, peer=0, outputs=[])
    ranks.say(0, "closed", batch=0)
    assert ranks.waiting() == []
    ranks.wait(0, receive, 7)
    assert ranks.waiting() == [0]
    ranks.call(2, 8, **RECEIVE, peer=0, inputs=[])
    assert ranks.waiting() == []
    assert ranks.referee.ranks[0].calls[send].ended_ns


def test_a_batch_is_not_over_before_it_is_whole() -> None:
    """What comes first in it ends with what comes later."""
    ranks = Ranks(2)
    receive = ranks.call(0, 5, wait=False, **RECEIVE, peer=1, inputs=[], batch=0)
    ranks.call(1, 6, **SEND, peer=0, outputs=[])
    assert not ranks.referee.ranks[0].calls[receive].ended_ns
    ranks.say(0, "closed", batch=0)
    assert ranks.referee.ranks[0].calls[receive].ended_ns


def test_a_rank_that_reads_the_same_key_again_and_again_waits() -> None:
    """A counter that never rises is a wait without a call; one key after the other is work."""
    ranks = Ranks(2)
    ranks.call(1, 5)
    how = {"do": "get", "name": "", "stack": 1, "frames": [["main", "train.py", 9]]}
    ranks.say(0, "store", **how | {"do": "set", "key": "a", "value": ""})
    for key in ("b", "a"):
        ranks.say(0, "store", **how | {"do": "set", "key": key, "value": ""})
        ranks.say(0, "store", **how, key=key)
        assert not ranks.referee.is_stuck
    ranks.say(0, "store", **how, key="a")
    assert ranks.referee.is_stuck
    assert ranks.referee.needs_quiet
    assert ranks.referee.asks_again(0)


def test_a_thread_that_polls_is_not_its_rank() -> None:
    """The main thread computes, however often another one asks."""
    ranks = Ranks(2)
    ranks.call(1, 5)
    ranks.referee.hear(7, {"t": "hello", "pid": 100, "rank": 0, "main": False})
    for _ in range(3):
        ranks.say(7, "store", do="check", name="", keys=["stop"])
    assert not ranks.referee.is_stuck
    assert ranks.referee.asks_again(7)


def test_more_ranks_asked_for_than_were_started_is_an_end() -> None:
    """A world size of three where two processes are: no third will come."""
    ranks = Ranks(2)
    for rank in range(2):
        ranks.say(rank, "init", rank=rank, world=3, parent=1)
        ranks.group(rank, "1", range(3))
        ranks.call(rank, 5, group="1/[0, 1, 2]")
    assert ranks.referee.is_stuck
