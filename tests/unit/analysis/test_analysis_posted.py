"""Sends and receives that Gloo has taken: in flight, matched by tag, and ended unseen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from verdicts import only_cause

from unhang.analysis import diagnose
from unhang.analysis.divergence.counterparts import is_asked_for
from unhang.analysis.steps import situation_of
from unhang.bounds import MOST_OPEN_TAGS
from unhang.model import State
from unhang.testing import FakeJob

# ------------------------------------------------------------------ Gloo: in flight, by tag


def posted(
    job: FakeJob, rank: int, *calls: tuple[str, int, int], state: State = State.STARTED
) -> None:
    """Let a rank post sends and receives as our recorder has them: ("send", peer, tag).

    Its dump tells their tags, unless one of them is below 0.
    """
    tags = []
    for kind, peer, tag in calls:
        job.point_to_point(rank, [(kind, peer)], site=f"halo.py:{10 + rank} swap", finished=False)
        entry = job.entries[rank][-1]
        entry.row = replace(entry.row, state=int(state))
        tags.append((entry.row.record_id, tag))
    if all(tag >= 0 for _, tag in tags):
        told = job.dump_fields.setdefault(rank, {}).get("open_tags") or ()
        assert isinstance(told, tuple)
        job.dump_fields[rank]["open_tags"] = (*told, *tags)


def swapping(world: int = 2, rounds: int = 2, backend: str = "gloo", **how: object) -> FakeJob:
    """Rounds of a ring of exchanges in both directions, finished."""
    job = FakeJob(world, backend=backend, **how)  # type: ignore[arg-type]  # fields of the builder
    for _ in range(rounds):
        for rank in range(world):
            job.send(rank, (rank + 1) % world)
            job.recv(rank, (rank - 1) % world)
    return job


def test_what_is_posted_on_gloo_is_in_no_circle() -> None:
    """Both sides are there and do not move: without tags nobody knows more than that."""
    job = swapping()
    for rank in (0, 1):
        posted(job, rank, ("send", 1 - rank, -1), ("recv", 1 - rank, -1))
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH401", (), (0, 1))
    assert cause.confidence != "high"
    assert "different tags" in cause.alternatives[0]
    assert "tags" in cause.actions[0]


def test_what_stands_behind_a_call_on_a_stream_is_a_circle() -> None:
    """The same calls on NCCL wait their turn."""
    job = swapping(backend="nccl")
    for rank in (0, 1):
        posted(job, rank, ("send", 1 - rank, -1), ("recv", 1 - rank, -1))
    assert only_cause(diagnose(job.case())).code == "UH303"


def test_sends_that_block_on_gloo_are_a_circle() -> None:
    """Nobody has come to its receive."""
    job = swapping()
    for rank in (0, 1):
        posted(job, rank, ("send", 1 - rank, 7))
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH303", (), (0, 1))
    assert cause.confidence == "high"


def test_sends_of_another_part_of_the_program_are_a_circle() -> None:
    """A warm-up in turns is no habit to blame rank 1 by: both have gone on from it."""
    job = FakeJob(2)
    for _ in range(3):
        for sender in (0, 1):
            job.send(sender, 1 - sender, site="warm.py:3 warm")
            job.recv(1 - sender, sender, site="warm.py:4 warm")
    for rank in (0, 1):
        job.send(rank, 1 - rank, site="stage.py:9 stage", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH303", (), (0, 1))


def test_a_call_that_gloo_has_not_taken_yet_is_behind_the_one_before() -> None:
    """What is inside the library's call is not in flight."""
    job = swapping()
    for rank in (0, 1):
        posted(job, rank, ("send", 1 - rank, -1))
        posted(job, rank, ("recv", 1 - rank, -1), state=State.SCHEDULED)
    assert only_cause(diagnose(job.case())).code == "UH303"


@pytest.mark.parametrize("buffer", [2000, 4])
def test_tags_that_differ(buffer: int) -> None:
    """One finding for both directions, with both tags; two sides have no majority."""
    job = swapping(buffer=buffer)
    for rank in (0, 1):
        posted(job, rank, ("send", 1 - rank, 15 + rank), ("recv", 1 - rank, 15 + rank))
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH304", (), (0, 1))
    assert cause.summary == (
        "Send and receive between ranks 0 and 1 disagree about the tag: 15 and 16."
    )
    assert cause.confidence == "medium"
    assert {site.line for site in cause.sites} == {10, 11}


def test_tags_that_are_equal_are_no_mismatch() -> None:
    """It is something else that holds them, and no tag."""
    job = swapping()
    for rank in (0, 1):
        posted(job, rank, ("send", 1 - rank, 15), ("recv", 1 - rank, 15))
    cause = only_cause(diagnose(job.case()))
    assert cause.code == "UH401"
    assert not any("tags" in sentence for sentence in (*cause.alternatives, *cause.actions))


def test_calls_that_meet_by_tag_in_another_order_are_no_mismatch() -> None:
    """By number the first send meets the first receive, whose size and tag are another's."""
    job = swapping()
    posted(job, 0, ("send", 1, 1), ("send", 1, 2))
    posted(job, 1, ("recv", 0, 2), ("recv", 0, 1))
    for entry in (job.entries[0][-1], job.entries[1][-2]):
        entry.row = replace(entry.row, signature=replace(entry.row.signature, input_sizes=((9,),)))
    assert only_cause(diagnose(job.case())).code == "UH401"


def test_a_tag_that_one_open_call_does_not_tell_may_be_the_right_one() -> None:
    """The bound of the list, or a call that the program has let go of."""
    job = swapping()
    posted(job, 0, ("send", 1, 1))
    posted(job, 1, ("recv", 0, 2))
    posted(job, 1, ("recv", 0, -1))
    assert only_cause(diagnose(job.case())).code != "UH304"


def test_a_receive_made_in_advance_has_another_tag_until_its_send_comes() -> None:
    """Rank 1 waits for rank 2, which never came; what it has posted for later proves nothing."""
    job = swapping(3)
    posted(job, 0, ("send", 1, 5))
    posted(job, 1, ("recv", 0, 7), ("recv", 2, 7))
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH302", (2,), (0, 1))


def test_a_neighbour_that_never_came_is_the_reason_behind_posted_calls() -> None:
    """What comes first need not be what holds: all that is posted is in flight at once."""
    job = swapping(3)
    posted(job, 0, ("send", 1, 3), ("recv", 2, 3))
    posted(job, 1, ("send", 2, 3), ("recv", 0, 3))
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH302", (2,), (0, 1))


def test_who_answers_neither_way_is_asked_for_both() -> None:
    """A send and a receive of one exchange, and nothing on the other side."""
    job = swapping()
    job.call([0, 1])
    posted(job, 0, ("send", 1, 3), ("recv", 1, 3))
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH302", (1,))
    assert cause.summary.startswith("Rank 1 never made the sends and receives for which rank 0")


def test_only_gloo_matches_by_tag() -> None:
    """NCCL takes calls in their order, whatever tags they were given."""
    job = swapping(backend="nccl")
    posted(job, 0, ("send", 1, 1))
    posted(job, 1, ("recv", 0, 2))
    assert only_cause(diagnose(job.case())).code == "UH401"


# ------------------------------------------------------------------ Gloo: ends that nobody saw


def sleeping(job: FakeJob) -> None:
    """Rank 1 sleeps; all others come to a collective call."""
    others = [rank for rank in range(job.world_size) if rank != 1]
    job.call(others, site="step.py:30 reduce", finished=False)


def started(job: FakeJob, rank: int, kind: str, peer: int) -> int:
    """Let a rank post a call that its program may let go of; gives its record id."""
    posted(job, rank, (kind, peer, -1))
    return job.entries[rank][-1].row.record_id


def tell(job: FakeJob, rank: int, *tags: tuple[int, int]) -> None:
    """What a rank's dump says of record ids and tags of its open calls."""
    job.dump_fields.setdefault(rank, {})["open_tags"] = tags


@pytest.mark.parametrize(("ahead", "done"), [("recv", "send"), ("send", "recv")])
@pytest.mark.parametrize("more", [0, 2])
def test_a_posted_call_whose_other_side_has_ended_is_no_head(
    ahead: str, done: str, more: int
) -> None:
    """Gloo tells of an end only who waits for it, and rank 0 will do so later."""
    job = swapping(3)
    for _ in range(1 + more):
        posted(job, 0, (ahead, 2, 4))
        job.point_to_point(2, [(done, 0)])
    sleeping(job)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH101", (1,), (0, 2))


def test_a_posted_call_that_nothing_has_met_is_waited_for() -> None:
    """The end of an earlier one does not settle it."""
    job = swapping(3)
    job.call([0, 1, 2])
    posted(job, 0, ("recv", 1, 4), ("recv", 1, 5))
    job.send(1, 0)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH302", (1,), (0,))


def test_calls_that_met_by_tag_in_another_order_settle_nothing() -> None:
    """What was sent is the receive that rank 0 saw end: the one before it is open in truth."""
    job = swapping(3)
    posted(job, 0, ("recv", 1, 1))
    job.recv(0, 1)
    job.send(1, 0)
    situation, _ = situation_of(job.case())
    assert len(situation.evidence.open_rows) == 1


def test_what_a_receive_from_any_source_has_taken_settles_no_other() -> None:
    """Rank 1 sent once, which rank 0 took from any source: what it posted for it is open."""
    job = swapping(3)
    posted(job, 0, ("recv", 1, 1))
    job.recv(0, -1)
    job.send(1, 0)
    situation, _ = situation_of(job.case())
    assert len(situation.evidence.open_rows) == 1


@pytest.mark.parametrize("how", [{"buffer": 4}, {"backend": "nccl"}])
def test_nothing_is_settled_where_numbers_are_not_known_or_mean_order(how: dict[str, int]) -> None:
    """A window has lost its beginning; and a device tells its ends itself."""
    job = swapping(3, **how)
    posted(job, 0, ("recv", 2, -1))
    job.send(2, 0)
    situation, _ = situation_of(job.case())
    assert len(situation.evidence.open_rows) == 1


def test_a_send_that_the_program_let_go_of_is_no_head() -> None:
    """Nobody can wait for it any more, whether or not it was received."""
    job = swapping(3)
    for rank in range(3):
        for _ in range(2):
            started(job, rank, "send", (rank + 1) % 3)
        job.recv(rank, (rank - 1) % 3)
        tell(job, rank)
    sleeping(job)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH101", (1,), (0, 2))


def test_a_send_of_which_no_dump_tells_is_open() -> None:
    """Another version's dump, which does not list what somebody may wait for."""
    job = swapping(3)
    started(job, 0, "send", 1)
    situation, _ = situation_of(job.case())
    assert len(situation.evidence.open_rows) == 1


def test_what_is_older_than_a_full_list_is_open() -> None:
    """The list holds the newest: nobody knows whether the program has let go of the first."""
    job = swapping(2)
    first = started(job, 0, "send", 1)
    listed = [(started(job, 0, "send", 1), 0) for _ in range(MOST_OPEN_TAGS)]
    tell(job, 0, *listed)
    situation, _ = situation_of(job.case())
    opened = situation.evidence.case.calls.record_id[situation.evidence.open_rows]
    assert opened.tolist() == [first, *(number for number, _ in listed)]


def test_a_receive_is_not_settled_by_a_send_that_was_let_go_of() -> None:
    """Such a send may be lost: its end was never seen, so rank 1 still waits for it."""
    job = swapping(3)
    started(job, 0, "send", 1)
    tell(job, 0)
    posted(job, 1, ("recv", 0, 4))
    job.call([0, 2], finished=False)
    report = diagnose(job.case())
    assert all(1 not in cause.culprits for cause in report.causes)
    situation, _ = situation_of(job.case())
    assert situation.heads.row[1] >= 0


def test_what_was_settled_by_number_may_be_the_one_with_the_tag() -> None:
    """The send that ended met the second receive; the first is no mismatch."""
    job = swapping()
    posted(job, 0, ("recv", 1, 1), ("recv", 1, 2))
    job.send(1, 0)
    posted(job, 1, ("send", 0, 1))
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH401", ())


def test_a_dump_that_has_lost_calls_settles_nothing() -> None:
    """Its ring has wrapped: nobody knows how many were before."""
    job = swapping(3)
    posted(job, 0, ("recv", 2, 4))
    job.send(2, 0)
    job.dump_fields[2] = {"dropped": 3}
    situation, _ = situation_of(job.case())
    assert len(situation.evidence.open_rows) == 1


@pytest.mark.parametrize("turns", [1, 4])
def test_a_call_that_a_rank_passed_over_turns_ago_is_seen_where_another_waits_for_it(
    turns: int,
) -> None:
    """A server drops a worker, serves the others for some rounds, and comes to the barrier."""
    job = FakeJob(3, backend="gloo")
    for served in ([1, 2],) * 3 + ([1],) * turns:
        for worker in served:
            job.send(worker, 0)
            job.recv(0, worker)
        for worker in served:
            job.send(0, worker)
            job.recv(worker, 0)
    job.send(2, 0)
    job.recv(0, 2)
    job.recv(2, 0, finished=False)
    job.call([0, 1], "barrier", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH302", (0,), "medium")


def test_no_send_meets_a_send() -> None:
    """What rank 0 waits for, in a send to rank 1, is a receive of that rank."""
    job = FakeJob(2)
    job.send(1, 0)
    job.recv(1, 0)
    job.send(0, 1, finished=False)
    situation, _ = situation_of(job.case())
    waiting = int(situation.heads.waiting_call[0])
    calls, names = situation.evidence.case.calls, situation.evidence.case.names
    rows = {names[calls.name[row]].op: row for row in np.flatnonzero(calls.rank == 1).tolist()}
    assert is_asked_for(situation, rows["recv"], waiting)
    assert not is_asked_for(situation, rows["send"], waiting)


def in_pairs(steps: dict[int, int]) -> FakeJob:
    """Ranks 0 and 1, and 2 and 3, exchange in a loop: so many times each."""
    job = FakeJob(4)
    job.call(range(4), site="train.py:1 warm")
    for sender, receiver in ((0, 1), (2, 3)):
        met = min(steps[sender], steps[receiver])
        for turn in range(max(steps[sender], steps[receiver])):
            if turn < steps[sender]:
                job.send(sender, receiver, site="train.py:5 loop", finished=turn < met)
            if turn < steps[receiver]:
                job.recv(receiver, sender, site="train.py:6 loop", finished=turn < met)
    return job


def test_who_made_an_exchange_too_many_is_named_and_not_its_peer() -> None:
    """Rank 2 has made as many as rank 0; rank 3 has made more than rank 1, from the same line."""
    cause = only_cause(diagnose(in_pairs({0: 3, 1: 3, 2: 3, 3: 4}).case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH302", (3,), "low")
    assert {(site.ranks, site.role) for site in cause.sites} == {((3,), "culprit")}


def test_who_is_short_of_an_exchange_is_named() -> None:
    """Rank 0 has made all of its own: rank 2 has made fewer, and stands before the next."""
    cause = only_cause(diagnose(in_pairs({0: 4, 1: 4, 2: 3, 3: 4}).case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH302", (2,), "high")


def test_a_rank_that_does_something_else_is_no_measure() -> None:
    """Rank 0 makes no such calls at all: that it waits for no rank tells nothing."""
    job = FakeJob(3)
    job.send(1, 2, site="train.py:5 loop")
    job.recv(2, 1, site="train.py:6 loop")
    for _ in range(2):  # no first step, in which rank 1 may be making a pair with rank 0
        job.call([0, 1, 2], site="eval.py:1 run")
    job.recv(2, 1, site="train.py:6 loop", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH302", (1,))


def test_unfinished_calls_alone_tell_neither_side() -> None:
    """Counters are level: one side made one too many, or the other stands before its own."""
    job = in_pairs({0: 3, 1: 3, 2: 3, 3: 4})
    job.active_only = True
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH302", ())
    assert "one side made a call too many" in cause.summary
