"""What must not be blamed, and what is told only where the evidence allows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from verdicts import only_cause

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import AskedNode, AskedState, DumpStatus, Group
from unhang.report import Report
from unhang.testing import FakeJob, frames_of


@pytest.mark.parametrize(("age_ms", "status"), [(50, "healthy"), (5_000, "problem")])
def test_a_call_that_has_only_just_begun_is_in_flight(age_ms: int, status: str) -> None:
    """Where the dump says when it was made, young calls are no hang."""
    job = FakeJob(4)
    job.call(range(4))
    job.call(range(4), finished=False)
    made = job.now_ns + age_ms * 1_000_000
    job.dump_fields = {rank: {"time_ns": made} for rank in range(4)}
    assert diagnose(job.case()).status in (status, "insufficient" if status == "healthy" else "")


def test_most_dumps_missing_is_no_evidence() -> None:
    """Where most of a group left no dump, nobody is suspected for that."""
    job = FakeJob(8)
    job.call(range(8))
    job.call([0, 1], finished=False)
    job.missing = {2, 3, 4, 5, 6, 7}
    report = diagnose(job.case())
    assert (report.status, report.culprits) == ("insufficient", ())


def test_the_dumps_of_one_node_of_two_are_no_evidence_against_the_other() -> None:
    """Perhaps nobody has fetched them: one of every pair across the nodes is missing, too."""
    job = FakeJob(8)
    job.call(range(4), finished=False)
    job.missing = {4, 5, 6, 7}
    assert diagnose(job.case()).status == "insufficient"
    pairs = FakeJob(6)
    for members in ([0, 3], [1, 4], [2, 5]):
        pairs.call(members[:1], group=pairs.group(members, "dp"), finished=False)
    pairs.missing = {3, 4, 5}
    assert diagnose(pairs.case()).status == "insufficient"


@pytest.mark.parametrize("silent", [{5}, {3, 5}])
def test_ranks_that_no_node_reported_were_not_looked_at(silent: set[int]) -> None:
    """That they left no dump tells nothing of them, however few they are."""
    job = FakeJob(6)
    job.call(range(6))
    job.call({0, 1, 2, 4} | ({3} - silent), finished=False)
    job.missing = silent
    case = job.case()
    assert diagnose(case).causes[0].culprits == tuple(sorted(silent))
    report = diagnose(replace(case, unvisited=(5,)))
    assert (report.status, report.culprits) == ("insufficient", ())
    assert "rank 5 of other nodes was not inspected" in report.summary
    table = {rank.rank: (rank.status, rank.detail) for rank in report.ranks}
    assert table[5] == ("unknown", "not looked at")
    if 3 in silent:
        assert table[3] == ("silent", "no dump")


@pytest.mark.parametrize("state", ["not-reached", "late"])
def test_nodes_of_which_nothing_came_are_named(state: AskedState) -> None:
    """In the sentence, in a note, in the table, and as what to look at; nothing is blamed."""
    job = FakeJob(4)
    job.call(range(4))
    job.call([0, 1], finished=False)
    job.missing = {2, 3}
    nodes = (
        AskedNode("node1", "answered", (0, 1)),
        AskedNode("node2", state, (2, 3), inferred=True, why="ssh: timed out"),
    )
    report = diagnose(replace(job.case(), unvisited=(2, 3), nodes=nodes))
    assert (report.status, report.culprits, report.nodes) == ("insufficient", (), nodes)
    assert "ranks 2-3 on node2 were not inspected" in report.summary
    says = {"not-reached": "was not reached", "late": "had given nothing yet"}[state]
    why = f"node2 (ranks 2-3) {says}: ssh: timed out (its ranks are those of no other node)"
    assert why in [note.text for note in report.notes if note.source == "nodes"]
    assert {row.rank: row.host for row in report.ranks if row.rank > 1} == {2: "node2", 3: "node2"}
    detail = {"not-reached": "its node was not reached", "late": "its node had given nothing yet"}
    assert report.ranks[3].detail == detail[state]
    decision = report.decision
    assert decision is not None
    assert (decision.action, decision.reason) == ("look-first", "not-reached")
    assert [subject.id for subject in decision.subjects] == ["node2"]


def test_a_node_of_which_nothing_came_is_in_verdicts_about_others() -> None:
    """The verdict stands, without that node, and says so."""
    job = FakeJob(4)
    job.call(range(4))
    pair = job.group([0, 1], "tp")
    job.call([0], group=pair, finished=False)
    job.missing = {2, 3}
    nodes = (AskedNode("node1", "answered", (0, 1)), AskedNode("node2", "not-reached", why="down"))
    report = diagnose(replace(job.case(), unvisited=(2, 3), nodes=nodes))
    assert report.culprits == (1,)
    assert [note.text for note in report.notes if note.source == "nodes"] == [
        "node2 was not reached: down"
    ]
    assert report.decision is not None
    assert [(s.id, s.host) for s in report.decision.subjects] == [("rank 1", "node00")]


def test_a_dump_that_was_cut_short_shows_nobody_healthy() -> None:
    """The newest calls come last in a dump: finished ones before the cut are no sign of health."""
    job = FakeJob(4)
    job.call(range(4))
    job.broken = {2: DumpStatus.TRUNCATED}
    report = diagnose(job.case())
    assert report.status == "insufficient"
    assert "dump of rank 2 was cut short" in report.summary
    table = {rank.rank: (rank.status, rank.detail) for rank in report.ranks}
    assert table[2] == ("unknown", "its dump was cut short")
    assert table[0] == ("unknown", "no call in flight")


def test_who_lost_its_newest_calls_came_out_of_none() -> None:
    """Counters have a call that its dump lacks: no cause beside what is known to be wrong."""
    job = FakeJob(6)
    pair = job.group([0, 1], "dp")
    job.call([0, 1], group=pair, finished=False)
    job.call(range(5), finished=False)
    job.broken = {1: DumpStatus.TRUNCATED}
    job.entries[1] = []
    report = diagnose(job.case())
    assert [(c.code, c.culprits) for c in report.causes] == [("UH101", (5,))]
    assert not any("finished" in finding.summary for finding in report.findings)


def test_a_silent_rank_beside_a_known_cause_is_no_cause() -> None:
    """A rank without a dump may wait like the others: it is told as an observation."""
    job = FakeJob(6)
    a, b = job.group([0, 1, 2], "a"), job.group([3, 4], "b")
    job.call([0, 1], group=a, finished=False)
    job.call([3], group=b, finished=False)
    job.missing = {4}
    report = diagnose(job.case())
    assert only_cause(report).culprits == (2,)
    assert [(f.code, f.role) for f in report.findings[1:]] == [("UH103", "observation")]


def test_left_over_members_of_batches_are_finished() -> None:
    """A dump of unfinished calls keeps the members of finished batches, without their end."""
    job = FakeJob(2, active_only=True)
    for _ in range(3):
        for rank, peer in ((0, 1), (1, 0)):
            job.point_to_point(rank, [("send", peer), ("recv", peer)], batch=True, finished=False)
    for entries in job.entries.values():
        for pending in entries:
            pending.is_open = pending.row.name.op != "coalesced"
    job.call([0], finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.victims) == ("UH101", (1,), (0,))


@pytest.mark.parametrize("last_open", [False, True])
def test_exchanges_left_over_from_batches_of_one(last_open: bool) -> None:  # noqa: FBT001
    """With nothing in flight by counters they are remains of batches; else the newest is open."""
    job = FakeJob(2, active_only=True)
    job.call(range(2))
    for _ in range(3):
        for rank, call in ((0, ("send", 1)), (1, ("recv", 0))):
            job.point_to_point(rank, [call], batch=True)
    for entries in job.entries.values():
        for pending in entries[1::2]:
            pending.is_open = True
    if last_open:
        job.send(0, 1, finished=False)
        cause = only_cause(diagnose(job.case()))
        assert (cause.code, cause.culprits) == ("UH302", (1,))
    else:
        assert diagnose(job.case()).status == "healthy"


def test_dumps_without_entries_whose_counters_moved() -> None:
    """A recorder without room shows nothing: not health."""
    job = FakeJob(4, buffer=1)
    job.call(range(4))
    job.call(range(4), finished=False)
    job.entries = {}
    report = diagnose(job.case())
    assert (report.status, report.findings[0].code) == ("insufficient", "UH901")


def versions(first: tuple[int, ...], second: tuple[int, ...]) -> Case:
    """Four ranks, one of which has another idea of who is in a group."""
    job = FakeJob(4)
    right, wrong = job.group(first, "tp", "1"), job.group(second, "tp", "1")
    job.call([0, 1, 2], group=right, finished=False)
    job.call([3], group=wrong, finished=False)
    case = job.case()
    known = {0: 1, 1: 1, 2: 1, 3: 2}
    dumps = tuple(replace(d, group_ids=(0, known[d.rank])) for d in case.dumps)
    return replace(case, dumps=dumps)


def test_ranks_that_disagree_about_members() -> None:
    """The one whose group has other members is named."""
    cause = only_cause(diagnose(versions((0, 1, 2, 3), (1, 2, 3))))
    assert (cause.code, cause.culprits) == ("UH205", (3,))


def test_replicas_share_names_without_disagreeing() -> None:
    """Groups of one name without common members are two groups."""
    report = diagnose(versions((0, 1, 2), (3,)))
    assert "UH205" not in {finding.code for finding in report.findings}


def test_the_wrong_peer() -> None:
    """A send that nobody expects, and a rank that waits for that sender: it named the wrong one."""
    job = FakeJob(4)
    job.call(range(4))
    job.send(0, 2, finished=False, site="ring.py:7 shift")
    job.recv(1, 0, finished=False, site="ring.py:8 shift")
    job.call(range(4), finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH304", (0,))
    assert {site.line for site in cause.sites} == {7, 8}


def test_a_device_that_never_started() -> None:
    """With timing on, the one that has not started what all others run is told."""
    job = FakeJob(4)
    job.call(range(4))
    job.call(range(4), finished=False)
    job.tick(60_000)  # a running call's start is the moment at which the dump asked for it
    for rank in (0, 1, 3):
        last = job.entries[rank][-1]
        last.row = replace(last.row, state=1, started_ns=job.now_ns)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH105", (2,), "medium")


def test_a_call_left_out_between_two_groups() -> None:
    """In each group the numbers agree; the whole program shows the call that is missing."""
    job = FakeJob(4)
    world, tensor = job.world, job.group(range(4), "tp")
    program: list[tuple[Group, str]] = [
        part
        for _ in range(4)
        for part in ((tensor, "t.py:1 f"), (tensor, "t.py:2 f"), (world, "t.py:3 f"))
    ]
    for number, (group, site) in enumerate(program):
        job.call(range(4), group=group, site=site, finished=number < len(program) - 1)
    skipper = job.entries[3]
    job.entries[3] = skipper[:-1]
    for group, site in (program[0], program[1], program[2]):
        job.call([3], group=group, site=site, finished=False, seq=4 if group is world else None)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH102", (3,))
    assert {site.line for site in cause.sites} == {1, 3}


def test_where_the_culprit_stood_when_its_dump_was_made() -> None:
    """A dump that says where its main thread stood shows the culprit's line, not its last call."""
    job = FakeJob(4)
    job.call(range(4), site="train.py:17 step")
    job.call([0, 1, 2], site="train.py:17 step", finished=False)
    job.dump_fields = {3: {"main_stack": frames_of("data.py:31 load < train.py:15 step")}}
    cause = only_cause(diagnose(job.case()))
    culprit = next(site for site in cause.sites if site.role == "culprit")
    assert (culprit.ranks, culprit.file, culprit.line) == ((3,), "data.py", 31)


def test_members_with_unlike_timeouts_are_told() -> None:
    """Whoever gives up first is not to blame for it; the same limit everywhere says nothing."""
    job = FakeJob(4)
    job.call(range(4))
    job.call(range(4), finished=False)
    alike = diagnose(job.case())
    assert "UH403" not in {finding.code for finding in alike.findings}
    last = job.entries[2][-1]
    last.row = replace(last.row, timeout_ms=60_000)
    report = diagnose(job.case())
    assert report.culprits == alike.culprits == ()
    told = next(finding for finding in report.findings if finding.code == "UH403")
    assert (told.role, told.family) == ("observation", "environment")
    assert "rank 2: 60 s; ranks 0-1,3: 600 s" in told.summary


def written(job: FakeJob, after_s: float, **more: int) -> Case:
    """The case of a job whose files were written some time after its newest call."""
    moment = job.now_ns + int(after_s * 1e9)
    ages = dict.fromkeys(range(job.world_size), moment)
    ages |= {int(name.removeprefix("rank")): job.now_ns + ns for name, ns in more.items()}
    job.dump_fields = {rank: {"written_ns": ns} for rank, ns in ages.items()}
    return job.case()


def in_steps(turn_s: float, world_size: int = 4) -> FakeJob:
    """A job that makes the same call in steps of equal length."""
    job = FakeJob(world_size)
    for _ in range(8):
        job.call(range(world_size))
        job.tick(turn_s * 1000)
    return job


@pytest.mark.parametrize(
    ("turn_s", "after_s", "rank1_ns", "status"),
    [
        (10, 2, None, "healthy"),
        (10, 20, None, "problem"),  # as old as two turns
        (10, 2, -1, "problem"),  # a file older than its content: two clocks
        (10, 2, 20 * 10**9, "problem"),  # it waits longer than usual, whatever a peer's file shows
        (1000, 290, None, "problem"),  # no call is in flight for half of its time-out
    ],
)
def test_files_as_old_as_their_calls_show_that_the_job_moved(
    turn_s: float, after_s: float, rank1_ns: int | None, status: str
) -> None:
    """Only where all of them show it, by one clock, and within the rhythm of the job."""
    job = in_steps(turn_s)
    job.call(range(3), finished=False)
    others = {} if rank1_ns is None else {"rank1": rank1_ns}
    assert diagnose(written(job, after_s, **others)).status == status


@pytest.mark.parametrize(("after_s", "status"), [(0.6, "healthy"), (1.4, "problem")])
@pytest.mark.parametrize("turn_s", [0, 0.02])
def test_a_call_of_less_than_a_second_is_young_whatever_its_rhythm(
    turn_s: float, after_s: float, status: str
) -> None:
    """A file is never younger than its dump: below a second the call is in flight."""
    job = in_steps(turn_s) if turn_s else FakeJob(4)
    job.call(range(3), finished=False)
    assert diagnose(written(job, after_s)).status == status


def test_a_host_that_has_gone_on_for_long_shows_a_call_that_does_not_end() -> None:
    """The files are young, and 15 calls were made behind the one that used to take 20 ms."""
    job = in_steps(0.02)
    for _ in range(15):
        job.call(range(3), finished=False)
        job.tick(20)
    report = diagnose(written(job, 0.3))
    assert [(cause.code, cause.culprits) for cause in report.causes] == [("UH101", (3,))]


@pytest.mark.parametrize(
    ("ago_ms", "what", "status"),
    [
        # Its host made the call, and it ended, just before the dump.
        (80, "just ended", "insufficient"),
        (80, "retired", "problem"),
        (4000, "just ended", "problem"),  # made long ago: its watchdog stands still
    ],
)
def test_whoever_was_seen_to_move_is_not_told_to_be_stuck(
    ago_ms: int, what: str, status: str
) -> None:
    """A call that has ended and that the watchdog has not retired ended within its last round."""
    job = in_steps(0.02)
    job.call(range(3), finished=False)
    last = job.entries[3][-1]
    ended = last.row.created_ns + ago_ms * 10**6
    last.row = replace(last.row, retired=what == "retired", completed_ns=ended)
    assert diagnose(job.case()).status == status


@pytest.mark.parametrize("told", ["time_ns", "written_ns"])
@pytest.mark.parametrize(("after_ms", "status"), [(100, "healthy"), (5000, "problem")])
def test_calls_made_ahead_are_as_old_as_the_end_of_the_one_before(
    told: str, after_ms: int, status: str
) -> None:
    """Hosts make the 60 calls of a step at once; their devices take 300 ms for each."""
    job = FakeJob(4)
    for number in range(180):
        job.call(range(4), finished=number < 160)
    case = job.case()
    step, call = np.divmod(case.calls.seq - 1, 60)
    begin = int(case.calls.created_ns.min())
    completed = begin + (step * 60 + call + 1) * 300 * 10**6
    completed[case.calls.completed_ns <= 0] = 0
    now = int(completed.max()) + after_ms * 10**6
    calls = replace(
        case.calls, created_ns=begin + (step * 18_000 + call) * 10**6, completed_ns=completed
    )
    dumps = tuple(replace(dump, **{told: now}) for dump in case.dumps)
    assert diagnose(replace(case, calls=calls, dumps=dumps)).status == status


def test_a_circle_is_a_hang_however_young() -> None:
    """Each waits where the other will not come before: no file makes that a job in motion."""
    job = FakeJob(2)
    a, b = job.group([0, 1], "a"), job.group([0, 1], "b")
    for _ in range(8):
        job.call([0, 1], group=a)
        job.call([0, 1], group=b)
        job.tick(10_000)
    job.call([0], group=a, finished=False)
    job.call([1], group=b, finished=False)
    assert diagnose(written(job, 1)).status == "problem"


def test_dumps_without_a_single_call_are_judged() -> None:
    """A dump of unfinished calls holds none where the job moves."""
    job = FakeJob(2, active_only=True)
    job.call(range(2))
    job.call(range(2))
    assert diagnose(written(job, 1)).status == "healthy"


def test_of_one_who_waits_alone_and_many_who_do_not_nobody_is_named() -> None:
    """It made a call too many, or the others stand still: where they stand would tell."""
    job = FakeJob(4)
    job.call(range(4), site="train.py:1 step")
    job.call([0], site="train.py:9 log", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH101", ())
    assert cause.summary == (
        "No other rank called all_reduce #2 of default_pg (0), in which rank 0 waits: it may be a "
        "call too many."
    )
    job.dump_fields = {rank: {"main_stack": frames_of("data.py:7 load")} for rank in (1, 2, 3)}
    assert diagnose(job.case()).culprits == (1, 2, 3)


def test_what_a_dump_of_unfinished_calls_left_out_was_made() -> None:
    """Members of coalesced calls stay in such dumps: between them and what is open calls are gone.

    All but the last have left the gather in which rank 1 waits for that one.
    """
    job, gone_on = FakeJob(8, active_only=True), (0, 2, 3, 4, 5, 6)
    job.coalesced(range(8), ["_broadcast_oop"] * 2, closing="ALLGATHER_coalesced")
    for rank in range(8):
        for member in job.entries[rank][:2]:
            member.is_open = True
    job.call(range(7), "gather", finished=gone_on, site="eval.py:74 collect")
    job.call(range(7), site="train.py:131 log", finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits) == ("UH101", (7,))


@pytest.mark.parametrize(("backend", "status"), [("nccl", "healthy"), ("gloo", "insufficient")])
def test_a_failed_call_that_looks_finished_shows_no_motion(backend: str, status: str) -> None:
    """Gloo retires what fails: who has gone past what a dump lacks may have failed in it."""
    job = FakeJob(4, backend=backend)
    pairs = [job.group(pair, "dp") for pair in ((0, 2), (1, 3))]
    for _ in range(6):
        for pair in pairs:
            job.call(pair.members, group=pair)
        job.tick(10_000)
    for pair in pairs:
        job.call(pair.members[1:], group=pair)
        job.call(pair.members[1:], group=pair, finished=False)
    assert diagnose(job.case()).status == status


def test_a_dump_that_was_cut_short_shows_nobody_behind() -> None:
    """Its counters tell what it had called; that nothing is open in it is for lack of entries."""
    job = FakeJob(4)
    pairs = [job.group(pair, "dp") for pair in ((0, 1), (2, 3))]
    for _ in range(3):
        job.call(range(4))
        for pair in pairs:
            job.call(pair.members, group=pair)
    job.call((0, 1), group=pairs[0], finished=False)
    job.call([2], group=pairs[1], finished=False)
    job.call(range(3), finished=False)
    job.entries[1] = job.entries[1][:5]
    job.broken = {1: DumpStatus.TRUNCATED}
    report = diagnose(job.case())
    assert report.culprits == (3,)
    assert "UH105" not in {cause.code for cause in report.causes}


def test_calls_without_times() -> None:
    """That all are in one call and stay there is told by its age; without times nothing tells."""
    job = FakeJob(2)
    job.call(range(2), "all_gather", finished=False)
    timed = job.case()
    calls = replace(timed.calls, created_ns=np.zeros_like(timed.calls.created_ns))
    untimed = replace(timed, calls=calls)
    found = [diagnose(each).causes[0] for each in (timed, untimed)]
    assert [(each.code, each.confidence) for each in found] == [
        ("UH401", "medium"),
        ("UH401", "low"),
    ]


def test_one_of_two_is_dead() -> None:
    """Who waits in a call of two waits for the other, of which there is no dump: hardly sure."""
    job = FakeJob(2)
    for _ in range(3):
        job.call(range(2))
    job.call([0], finished=False)
    job.missing = {1}
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH103", (1,), "low")


def waiting_after_first_calls_of_halves(world: int, missing: set[int]) -> Report:
    """The upper half has made the first call of its group and waits; of the lower one nothing."""
    job = FakeJob(world)
    upper = Group("2", "half", tuple(range(world // 2, world)), backend="nccl")
    job.groups += [Group("1", "half", tuple(range(world // 2)), backend="nccl"), upper]
    job.call(range(world))
    job.call(upper.members, group=upper)
    job.call(sorted({*upper.members} | missing), finished=False)
    return diagnose(job.case())


def test_ranks_that_may_stand_in_making_a_group() -> None:
    """They leave no record there, so that which of them stands still nothing tells."""
    cause = only_cause(waiting_after_first_calls_of_halves(4, set()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH101", (), "low")
    assert "Ranks 0-1 never called" in cause.summary


def test_who_passed_the_making_of_a_group_by() -> None:
    """The one that does not come may wait there for one that went on without it."""
    cause = only_cause(waiting_after_first_calls_of_halves(4, {0}))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH101", (), "low")


def test_in_the_first_step_a_group_may_be_made_that_no_waiting_rank_has() -> None:
    """Of two pairs one has called twice in each group; in the other, one calls twice in the first.

    Its mate may stand in making their second group, for the one that passed that by.
    """
    job = FakeJob(4)
    first, second = job.group([0, 1], "tp"), job.group([2, 3], "tp")
    upper = job.group([2, 3], "dp")  # that of the lower ranks has left no record
    for _ in range(2):
        job.call([2, 3], group=second)
        job.call([2, 3], group=upper)
    job.call([0, 1], group=first)
    job.call([0], group=first, finished=False)
    cause = only_cause(diagnose(job.case()))
    assert (cause.code, cause.culprits, cause.confidence) == ("UH101", (), "low")


@pytest.mark.parametrize(
    ("seconds", "status"), [(0.5, "insufficient"), (10, "insufficient"), (40, "problem")]
)
def test_a_ring_full_of_calls_that_hosts_made_ahead(seconds: float, status: str) -> None:
    """The call that is first in it may be any; whether devices move a host that runs hides."""
    job = FakeJob(2, buffer=6)
    for _ in range(40):
        job.call(range(2), finished=False)
        job.now_ns += 10**8
    written = job.now_ns + int(seconds * 10**9)
    job.dump_fields = {rank: {"written_ns": written} for rank in range(2)}
    assert diagnose(job.case()).status == status


def test_a_full_dump_of_many_calls_is_written_late() -> None:
    """Files of 2,000 calls of a moving job lay 4.5 s behind their newest one, and prove nothing."""
    job = FakeJob(2, buffer=2000)
    for _ in range(2100):
        job.call(range(2), finished=False)
        job.now_ns += 2 * 10**6
    written = job.now_ns + 45 * 10**8
    job.dump_fields = {rank: {"written_ns": written} for rank in range(2)}
    assert diagnose(job.case()).causes == ()


@pytest.mark.parametrize(("calls", "status"), [(30, "problem"), (1999, "healthy")])
def test_of_two_files_the_one_with_many_calls_is_written_later(calls: int, status: str) -> None:
    """One shows that the job moved; that the other is 1.5 s old tells much if it is small."""
    job = FakeJob(2, buffer=2000)
    for _ in range(calls):
        job.call(range(2))
        job.now_ns += 2 * 10**6
    job.call(range(2), finished=False)
    behind = {0: 5 * 10**8, 1: 15 * 10**8}
    job.dump_fields = {rank: {"written_ns": job.now_ns + ns} for rank, ns in behind.items()}
    assert diagnose(job.case()).status == status


@pytest.mark.parametrize(("seconds", "causes"), [(0.5, []), (10, ["UH304"])])
def test_a_mismatch_of_calls_in_flight_is_presumed(seconds: float, causes: list[str]) -> None:
    """Where rings have lost their start, the first open send need not meet the first receive."""
    job = FakeJob(2, buffer=6)
    for size in (64, 128) * 20:
        job.send(0, 1, finished=False, sizes=((size,),))
        job.recv(1, 0, finished=False, sizes=((size,),))
        job.now_ns += 10**8
    job.send(0, 1, finished=False, sizes=((64,),))
    written = job.now_ns + int(seconds * 10**9)
    job.dump_fields = {rank: {"written_ns": written} for rank in range(2)}
    assert [cause.code for cause in diagnose(job.case()).causes] == causes
