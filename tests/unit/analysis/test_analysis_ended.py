"""Ranks that ended: who was first, how, at which line, and who is spared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unhang.activity.looks import ProcessLook
from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Frame, LogEvent, MemoryKill, ProcessSample, ThreadStack
from unhang.report import Finding
from unhang.stacks.formats.saved import dump_samples, parse
from unhang.testing import FakeJob

NOW = 1_700_000_100 * 10**9
LINE = Frame("train", "/home/user/train.py", 88)
LOST = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:25321"


def ended(rank: int, status: int | None, *, line: bool = True, age_s: float = 3.0) -> ProcessSample:
    """A rank that has ended, with its last known line."""
    thread = ThreadStack("MainThread", 100 + rank, (LINE,), is_main=True)
    return ProcessSample(
        rank=rank,
        host="node01",
        pid=100 + rank,
        threads=(thread,) if line else (),
        state="X",
        time_ns=NOW - int(age_s * 10**9) if line else 0,
        tool="heartbeat",
        exit_status=status,
    )


def alive(rank: int) -> ProcessSample:
    """A rank that waits in a call."""
    frames = (Frame("all_reduce", "torch/distributed/distributed_c10d.py", 9), LINE)
    thread = ThreadStack("MainThread", 100 + rank, frames, is_main=True)
    return ProcessSample(rank, "node01", 100 + rank, (thread,), state="S", time_ns=NOW)


def cause(case: Case) -> Finding:
    """The first finding, which is about an end."""
    first = diagnose(case).findings[0]
    assert (first.code, first.role, first.id) == ("UH106", "cause", "f1")
    return first


def job(missing: tuple[int, ...] = (1,)) -> FakeJob:
    """Three ranks of which one left no dump while the others wait."""
    builder = FakeJob(3)
    builder.call(range(3), "all_reduce")
    builder.call([rank for rank in range(3) if rank not in missing], "all_reduce",
                       finished=False)  # fmt: skip
    builder.missing |= set(missing)
    return builder


def test_a_killed_rank_is_the_cause_and_its_silence_a_consequence() -> None:
    """SIGKILL is named, with the last known line and its age; the silent rank follows from it."""
    report = diagnose(job().case(samples=[alive(0), ended(1, 137), alive(2)]))
    first, *rest = report.findings
    assert first.code == "UH106"
    assert (first.culprits, first.victims, first.confidence) == ((1,), (0, 2), "high")
    assert "was ended by SIGKILL; its last known line, 3.0 s old, is train (train.py:88)" in (
        first.summary
    )
    (site,) = first.sites
    assert (site.line, site.age_s) == (88, 3.0)
    assert [(f.code, f.role, f.caused_by) for f in rest] == [("UH103", "consequence", ("f1",))]
    assert report.status == "problem"
    assert report.ranks[1].detail == "no dump, ended with exit code 137"


@pytest.mark.parametrize("status", [137, None])
def test_a_rank_that_the_kernel_killed_for_memory(status: int | None) -> None:
    """The counter of its cgroup tells, with limit and usage, even where nobody saw the signal."""
    kill = MemoryKill(kills=1, ended=1, limit=8 << 30, used=8 << 30)
    gone = replace(ended(1, status), memory_kill=kill)
    assert parse(dump_samples([gone])) == [gone]
    first = cause(job().case(samples=[alive(0), gone, alive(2)]))
    assert first.culprits == (1,)
    assert first.summary.startswith("Rank 1 was killed by the kernel for lack of memory: its")
    assert "its cgroup used up to 8,192 of 8,192 MB" in first.summary
    assert any("killed 1 process of its cgroup" in line for line in first.evidence)
    assert first.actions[0].startswith("Raise the limit")
    bare = replace(gone, memory_kill=MemoryKill(kills=1, ended=1))
    first = cause(job().case(samples=[alive(0), bare, alive(2)]))
    assert "shows no limit, so the node or a parent cgroup ran out of memory" in first.summary


def test_kills_beside_a_rank_that_lives_are_told_and_blame_nobody() -> None:
    """Its cgroup has counted one since it was made; who that was, nobody knows."""
    kill = MemoryKill(kills=1, limit=8 << 30, used=8 << 30)
    peers = [replace(alive(rank), memory_kill=kill) for rank in (0, 2)]
    assert parse(dump_samples(peers)) == peers
    report = diagnose(job().case(samples=peers))
    (told,) = (note.text for note in report.notes if note.source == "memory of node01")
    assert told == (
        "the kernel killed 1 process for lack of memory in the cgroup of ranks 0,2 since its "
        "creation: its cgroup used up to 8,192 of 8,192 MB. A missing rank may be one of them"
    )
    assert "UH106" not in {finding.code for finding in report.findings}


def test_fewer_kills_than_ends_prove_nothing() -> None:
    """One of two was killed for memory, and nobody knows which: both ends are told as they are."""
    kill = MemoryKill(kills=1, ended=2, limit=8 << 30, used=8 << 30)
    gone = [replace(ended(rank, 137), memory_kill=kill) for rank in (1, 2)]
    first = cause(job((1, 2)).case(samples=[alive(0), *gone]))
    assert "were ended by SIGKILL" in first.summary
    assert any("killed 1 process of its cgroup for lack of memory" in e for e in first.evidence)
    assert first.alternatives


def test_a_line_that_nobody_knows_is_unknown() -> None:
    """Without a heartbeat no line is invented."""
    found = cause(job().case(samples=[alive(0), ended(1, 137, line=False), alive(2)]))
    assert found.summary.endswith("its last line is unknown.")
    assert found.sites == ()


def test_an_exception_comes_before_those_that_follow_from_it() -> None:
    """The rank that raised on its own is named at the line where it raised."""
    builder = job(missing=())
    builder.dump_fields = {
        0: {"exception": LOST, "time_ns": NOW, "exception_stack": (LINE,)},
        1: {"exception": "ValueError: bad batch", "time_ns": NOW + 5,
            "exception_stack": (Frame("load", "/home/user/data.py", 7),)},
    }  # fmt: skip
    found = cause(builder.case(samples=[ended(0, 1), ended(1, 1)]))
    assert found.culprits == (1,)
    assert [(site.line, site.age_s) for site in found.sites] == [(7, None)]
    assert "raised ValueError: bad batch at load (data.py:7)" in found.summary
    assert found.evidence[1] == f"Rank 0 failed or was ended after it: {LOST}"


@pytest.mark.parametrize("status", [143, 130])
def test_ranks_that_were_told_to_end_are_no_cause(status: int) -> None:
    """SIGTERM and SIGINT are somebody's order."""
    samples = [ended(rank, status) for rank in range(3)]
    assert not [f for f in diagnose(Case(samples=tuple(samples))).findings if f.code == "UH106"]


def test_a_rank_whose_interpreter_is_still_ending_has_left() -> None:
    """Its program has ended, which it said itself; on a busy machine the process outlives that."""
    leaving = replace(ended(1, None), state="R", phase="exited", sample=1)
    empty = replace(leaving, tool="py-spy", sample=0, threads=(ThreadStack("", 9, (), True),))  # noqa: FBT003 - is_main
    found = cause(job().case(samples=[alive(0), empty, leaving, alive(2)]))
    assert (found.culprits, found.victims, found.confidence) == ((1,), (0, 2), "high")
    assert "has reached the end of its program while its peers are in calls" in found.summary
    assert "train (train.py:88)" in found.summary


def test_where_most_have_left_nobody_is_blamed_for_it() -> None:
    """Who still calls may make calls that nobody else makes: one layer, or one batch, too many."""
    builder = FakeJob(3)
    builder.call(range(3), "all_reduce")
    builder.call([2], "all_reduce", finished=False)
    found = cause(builder.case(samples=[ended(0, 0), ended(1, 0), alive(2)]))
    assert (found.culprits, found.victims, found.confidence) == ((), (2,), "medium")
    assert found.summary == "Ranks 0-1 ended with exit code 0 while their peers were in calls."
    assert {site.role for site in found.sites} == {"peer"}


def test_a_rank_that_leaves_its_peers_in_a_call_is_the_cause() -> None:
    """Exit code 0 is an exit: those who wait for that rank wait for ever."""
    found = cause(job().case(samples=[alive(0), ended(1, 0), alive(2)]))
    assert (found.culprits, found.victims, found.confidence) == ((1,), (0, 2), "high")
    assert "ended with exit code 0 while its peers were in calls" in found.summary
    assert "train (train.py:88)" in found.summary


def test_a_rank_is_not_blamed_for_leaving_where_a_peer_that_waited_has_ended_well() -> None:
    """The job went on while its evidence was collected: that peer's call has come back."""
    report = diagnose(job().case(samples=[alive(0), ended(1, 0), ended(2, 0)]))
    first = report.findings[0]
    assert (first.code, first.role, first.confidence) == ("UH103", "cause", "low")
    assert "ended with exit code 0 since: the call returned" in first.evidence[0]
    assert "UH106" not in {finding.code for finding in report.findings}
    assert report.decision.action == "look-first"


def test_what_held_nobody_up_for_good_is_no_problem_and_no_health() -> None:
    """All ranks ended with exit code 0: what dumps show is told, and nobody is blamed."""
    report = diagnose(job().case(samples=[ended(rank, 0) for rank in range(3)]))
    assert report.status == "insufficient"
    assert report.culprits == ()
    assert report.summary.endswith("; all ranks have ended with exit code 0 since.")
    (found,) = report.findings
    assert (found.code, found.role, found.confidence) == ("UH103", "observation", "low")
    assert "ended with exit code 0 since: the call returned" in found.evidence[0]
    assert report.decision.action == "look-first"


def test_who_gave_up_and_ended_waited_for_the_rank_that_left_nothing() -> None:
    """Gloo calls a call finished that timed out, and the launcher ends the rank that never came."""
    builder = FakeJob(3, backend="gloo")
    builder.call(range(3), "all_reduce")
    builder.call([0, 2], "all_reduce")
    builder.missing |= {1}
    late = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 5000ms for recv operation"
    gave_up = {"exception": late, "failures": (f"all_reduce (default_pg): {late}",)}
    builder.dump_fields = {rank: {**gave_up, "time_ns": NOW} for rank in (0, 2)}
    report = diagnose(builder.case(samples=[ended(0, 1), ended(1, 143), ended(2, 1)]))
    first = report.findings[0]
    assert (first.code, first.culprits, first.victims) == ("UH103", (1,), (0, 2))
    assert any("are taken as failed" in note.text for note in report.notes)
    # Dumps of the moment at which they gave up: that they ended by it their processes tell.
    gave_up = {"failures": (f"all_reduce (default_pg): {late}",)}
    builder.dump_fields = {rank: {**gave_up, "time_ns": NOW} for rank in (0, 2)}
    lost = [replace(ended(rank, 1), lost_ns=NOW) for rank in (0, 2)]
    first = diagnose(builder.case(samples=[*lost, ended(1, 143)])).findings[0]
    assert (first.code, first.culprits, first.victims) == ("UH103", (1,), (0, 2))
    own = {"exception": "ValueError: bad batch", "failures": ("all_reduce: ValueError",)}
    builder.dump_fields = {rank: {**own, "time_ns": NOW} for rank in (0, 2)}
    assert "UH103" not in {finding.code for finding in diagnose(builder.case()).findings}


def test_dtypes_that_did_not_fit_are_why_gloo_ended_a_process() -> None:
    """It ends who receives too much; without its dump there is no majority, and nobody is sure."""
    builder = FakeJob(4, backend="gloo")
    builder.call(range(4), "all_reduce")
    builder.call([0, 1, 2], "all_reduce", finished=False)
    builder.call([3], "all_reduce", dtype="Double", finished=False)
    builder.missing |= {2}
    builder.dump_fields = {r: {"exception": LOST, "time_ns": NOW} for r in (0, 1, 3)}
    told = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 1000 vs 500. Received"
    event = LogEvent("UH762", "cause", 2, told, "job.log:1")
    samples = [ended(0, 1), ended(1, 1), ended(2, 134), ended(3, 1)]
    alone = diagnose(builder.case(samples=samples)).findings[0]
    assert (alone.code, alone.culprits) == ("UH106", (2,))
    found = diagnose(builder.case(samples=samples, log_events=[event])).findings
    assert [(f.code, f.role, f.culprits) for f in found[:2]] == [
        ("UH203", "cause", (3,)),
        ("UH106", "consequence", (2,)),
    ]
    assert found[0].confidence == "low"
    sizes = [
        replace(e, last_op="all_reduce", last_call=9, last_numel=5 - e.rank // 3) for e in samples
    ]
    found = diagnose(builder.case(samples=sizes, log_events=[event])).findings
    assert [f.code for f in found if f.role == "cause"] == ["UH202", "UH203"]


@pytest.mark.parametrize(
    ("odd", "told", "said"),
    [
        (
            19336,
            ("12892", "4"),
            ("UH202", (2,), "medium"),
        ),  # a sixth of 77,344 bytes, and one number
        (19336, ("12892", "12892"), ("UH106", (2,), "medium")),
        (19336, ("4096", "4"), ("UH106", (2,), "medium")),
        (40_000, ("26668", "12892"), ("UH202", (0,), "medium")),
    ],
)
def test_what_gloo_told_of_bytes_names_who_made_another_call(
    odd: int,
    told: tuple[str, str],
    said: tuple[str, tuple[int, ...], str],
) -> None:
    """Calls from C++ leave no size in a heartbeat, and who was ended left no dump."""
    builder = FakeJob(3, backend="gloo")
    builder.call(range(3), "all_reduce")
    for rank, elements in enumerate((odd, 19336)):
        builder.call([rank], "all_reduce", sizes=((elements,),), finished=False)
    builder.missing |= {2}
    builder.dump_fields = {rank: {"exception": LOST, "time_ns": NOW} for rank in (0, 1)}
    text = f"[enforce fail] op.preamble.length <= op.nbytes. {told[0]} vs {told[1]}. Received"
    fields = dict(zip(("sent", "room"), told, strict=True))
    event = LogEvent("UH762", "cause", -1, text, "job.log:1", fields=fields)
    samples = [ended(0, 1), ended(1, 1), ended(2, 134)]
    report = diagnose(builder.case(samples=samples, log_events=[event]))
    first = report.findings[0]
    assert (first.code, first.culprits, first.confidence) == said
    named = first.code == "UH202"
    assert ("that Gloo reported when it ended rank 2" in first.evidence[0]) == named
    assert (
        any("the logs show another first failure" in text for text in first.alternatives) != named
    )


@pytest.mark.parametrize(
    ("iterations", "said"), [(3, ((1,), "medium")), (1, ((), "medium"))], ids=["loop", "too-short"]
)
def test_of_two_the_one_that_passed_over_a_layer_is_named(
    iterations: int, said: tuple[tuple[int, ...], str]
) -> None:
    """FSDP gathers a layer that rank 1 does not run this time: no majority, but a habit."""
    builder = FakeJob(2, backend="gloo")
    layers = ((49, "train.py:15 forward"), (101, "train.py:16 forward"))
    for _ in range(iterations):
        for size, site in layers:
            builder.call(range(2), "all_gather", sizes=((size,),), site=site)
    for rank, (size, site) in enumerate(layers):  # rank 1's has failed, so no call disagrees
        builder.call([rank], "all_gather", sizes=((size,),), site=site, finished=rank == 1)
    text = "[enforce fail] op.preamble.length <= op.nbytes. 404 vs 196. Received data"
    event = LogEvent("UH762", "cause", -1, text, "job.log:1")
    samples = [
        replace(ended(rank, status), last_op="all_gather", last_call=9, last_numel=size)
        for rank, status, (size, _) in zip((0, 1), (134, 1), layers, strict=True)
    ]
    first = diagnose(builder.case(samples=samples, log_events=[event])).findings[0]
    assert first.code == "UH202"
    assert (first.culprits, first.confidence) == said


def test_who_gloo_ended_is_not_blamed_where_all_made_the_same_call() -> None:
    """What does not fit may be the splits of an all_to_all, which nothing records."""
    told = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 24 vs 16. Received data"
    event = LogEvent("UH762", "cause", -1, told, "job.log:1")
    ends = (ended(rank, 143 if rank else 134) for rank in range(4))
    samples = [replace(e, last_op="all_to_all", last_call=21, last_numel=16) for e in ends]
    found = diagnose(Case(samples=tuple(samples), log_events=(event,))).findings
    assert [(f.slug, f.role, f.culprits) for f in found] == [
        ("message-truncated", "cause", ()),
        ("rank-ended", "consequence", (0,)),
    ]


def test_a_rank_that_leaves_before_its_peers_fail_is_the_cause() -> None:
    """Gloo's peers of a process that has gone raise; one that goes after them is not to blame."""
    builder = FakeJob(3)
    builder.call(range(3), "all_reduce")
    builder.missing |= {1}
    builder.dump_fields = {rank: {"exception": LOST, "time_ns": NOW} for rank in (0, 2)}

    def samples(left_ns: int) -> list[ProcessSample]:
        return [ended(0, 1), replace(ended(1, 0), ended_ns=left_ns), ended(2, 1)]

    found = cause(builder.case(samples=samples(NOW + 10**7)))
    assert (found.culprits, found.victims, found.confidence) == ((1,), (0, 2), "high")
    late = diagnose(builder.case(samples=samples(NOW + 10**10)))
    assert "UH106" not in {finding.code for finding in late.findings}


@pytest.mark.parametrize(("left_ns", "culprits"), [(NOW, (1,)), (NOW + 10**10, ())])
def test_that_peers_lost_a_rank_needs_no_word_of_theirs(
    left_ns: int, culprits: tuple[int, ...]
) -> None:
    """Their recorders saw it; the traceback is in an output that names no ranks."""
    lost = [replace(ended(rank, 1), lost_ns=NOW, ended_ns=NOW + 10**9) for rank in (0, 2)]
    left = replace(ended(1, 0), ended_ns=left_ns)
    report = diagnose(job(()).case(samples=[*lost, left]))
    named = [each.culprits for each in report.causes if each.code == "UH106"]
    assert named == ([culprits] if culprits else [])


def test_who_failed_for_it_is_not_to_blame_for_the_next_call() -> None:
    """One of the peers fails in the call before the one that the others had queued."""
    builder = FakeJob(4)
    builder.call(range(4), "all_reduce")
    builder.call([0, 1, 3], "all_reduce")
    builder.call([1, 3], "all_reduce", finished=False)
    builder.missing |= {2}
    builder.dump_fields = {rank: {"exception": LOST, "time_ns": NOW} for rank in (0, 1, 3)}
    samples = [ended(0, 1), ended(1, 1), replace(ended(2, 0), ended_ns=NOW), ended(3, 1)]
    report = diagnose(builder.case(samples=samples))
    assert [(f.code, f.culprits) for f in report.causes] == [("UH106", (2,))]
    assert ("UH101", "consequence") in {(f.code, f.role) for f in report.findings}


def test_a_last_line_is_as_old_as_the_last_end_where_all_have_ended() -> None:
    """A launcher may have ended everybody before anybody looked: heartbeats are all there is."""
    samples = [
        replace(ended(0, 143, age_s=9), ended_ns=NOW + 2 * 10**9),
        replace(ended(1, 137, age_s=5), ended_ns=NOW),
    ]
    (site,) = cause(Case(samples=tuple(samples), world_size=2)).sites
    assert (site.ranks, site.age_s) == ((1,), 7.0)


def test_an_unexplained_end_after_one_with_code_0_is_doubted() -> None:
    """Torch's spawn keeps the exceptions of its processes to itself: the order of ends is all."""
    samples = [
        replace(ended(0, 143), ended_ns=NOW + 2),
        replace(ended(1, 0), ended_ns=NOW),
        replace(ended(2, 1), ended_ns=NOW + 1),
    ]
    found = cause(Case(samples=tuple(samples), world_size=3))
    assert (found.culprits, found.confidence) == ((2,), "low")
    assert found.alternatives[0].startswith("Rank 1 had ended with exit code 0 before it")


def test_the_end_of_a_healthy_job_has_no_cause() -> None:
    """Ranks end one after another with exit code 0, and no rank waits for those that have gone."""
    builder = FakeJob(3)
    builder.call(range(3), "all_reduce")
    saving = (ThreadStack("MainThread", 102, (LINE,), is_main=True),)
    busy = replace(
        alive(2),
        threads=saving,
        looks=tuple(ProcessLook(float(s), cpu_s=float(s)) for s in range(9)),
    )
    samples = [ended(0, 0), ended(1, 0), busy]
    assert not diagnose(builder.case(samples=samples)).causes


def test_dumps_without_a_wait_change_nothing_about_who_has_left() -> None:
    """Stacks that show a rank in a call say the same beside finished calls as without dumps."""
    builder = FakeJob(3)
    builder.call(range(3), "all_reduce")
    samples = [ended(0, 0), ended(1, 0), alive(2)]
    with_dumps = cause(builder.case(samples=samples))
    without = cause(Case(samples=tuple(samples), world_size=3))
    assert (with_dumps.code, with_dumps.culprits) == ("UH106", ())
    assert replace(with_dumps, id="") == replace(without, id="")


def test_when_all_end_alike_nobody_is_blamed() -> None:
    """A job that was killed as a whole has no culprit among its ranks."""
    found = cause(Case(samples=tuple(ended(rank, 137) for rank in range(3)), world_size=3))
    assert found.culprits == ()
    assert found.confidence == "medium"
    assert "All ranks ended alike" in found.alternatives[0]


def test_several_ends_are_said_in_the_plural() -> None:
    """One verb form does not do for one rank and for all."""
    first = cause(job((0, 1, 2)).case(samples=[ended(rank, 137) for rank in range(3)]))
    assert first.summary.startswith("Ranks 0-2 were ended by SIGKILL")


def test_one_failure_of_several_ranks_is_one_failure() -> None:
    """Equal exceptions at one time are told together; a later one is not."""
    builder = FakeJob(4)
    builder.call(range(4), "all_reduce")
    wrong = {"exception": "KeyError: 'lr'", "exception_stack": (LINE,)}
    builder.dump_fields = {
        0: {**wrong, "time_ns": NOW},
        2: {**wrong, "time_ns": NOW + 10**8},
        3: {**wrong, "time_ns": NOW + 10**11},
    }
    assert cause(builder.case(samples=[ended(rank, 1) for rank in (0, 2, 3)])).culprits == (0, 2)


def test_an_end_that_nobody_saw_is_said_to_be_unseen() -> None:
    """Without status and exception the finding is of medium confidence."""
    found = cause(job().case(samples=[alive(0), ended(1, None), alive(2)]))
    assert "no source shows how it ended" in found.summary
    assert found.confidence == "medium"


def test_who_gave_up_waiting_did_not_end_first() -> None:
    """Its own dump tells that its call timed out; its exit code follows from the absent rank."""
    builder = FakeJob(3)
    builder.call(range(3))
    builder.call([0, 2], finished=False)
    case = builder.case()
    gave_up = "all_reduce (default_pg): RuntimeError: Timed out waiting 5000ms for recv operation"
    dumps = tuple(replace(d, failures=(gave_up,)) if d.rank != 1 else d for d in case.dumps)
    samples = (ended(0, 1), ended(2, 1))
    first = diagnose(replace(case, dumps=dumps, samples=samples)).findings[0]
    assert (first.code, first.culprits) == ("UH101", (1,))


def test_a_call_of_cpp_that_timed_out_is_known_by_the_exception() -> None:
    """Of DDP's calls no failure is noted, and Gloo says of them that they have ended."""
    builder = FakeJob(3, backend="gloo")
    builder.call(range(3))
    builder.call([0, 2])
    error = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation"
    case = builder.case()
    dumps = tuple(replace(d, exception=error) if d.rank != 1 else d for d in case.dumps)
    samples = (ended(0, 1), ended(2, 1), ended(1, 143))
    report = diagnose(replace(case, dumps=dumps, samples=samples))
    assert [(each.code, each.culprits) for each in report.causes] == [("UH101", (1,))]


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ({1: 1}, ("UH106", (1,), "medium", "Rank 1 raised KeyError: 1 at settings (train.py:25).")),
        ({1: 1, 2: 1}, ("UH793", (), "medium", "")),
        ({1: 3}, ("UH106", (1,), "medium", "Rank 1 ended with exit code 3; its last known line")),
    ],
)
def test_a_traceback_of_nobody_is_that_of_the_one_rank_that_ended_so(
    statuses: dict[int, int], said: tuple[str, tuple[int, ...], str, str]
) -> None:
    """Launchers of people's own write no rank before a line; Python ends with 1 after it."""
    fields = {"file": "/home/user/train.py", "line": "25", "function": "settings"}
    event = LogEvent("UH793", "cause", -1, "KeyError: 1", "job.log:13", fields=fields)
    ends = tuple(ended(rank, status) for rank, status in statuses.items())
    samples = (alive(0), *ends)
    first = diagnose(Case(samples=samples, log_events=(event,))).findings[0]
    assert (first.code, first.culprits, first.confidence) == said[:3]
    assert first.summary.startswith(said[3])


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (LOST, ("insufficient", "UH901", ())),
        (
            "RuntimeError: [enforce fail at gloo/alltoallv.cc:138] in[myRank] == out[myRank].",
            ("problem", "UH106", (2,)),
        ),
    ],
)
def test_ranks_that_all_failed_are_never_healthy(first: str, said: tuple[object, ...]) -> None:
    """Though each could have failed for another one, and all calls count as finished."""
    builder = FakeJob(3, backend="gloo")
    builder.call(range(3), "all_to_all")
    inside = (
        Frame("wrapper", "torch/distributed/c10d_logger.py", 83),
        Frame("main", "train.py", 9),
    )
    builder.dump_fields = {
        rank: {
            "exception": first if rank == 2 else LOST,
            "exception_stack": inside,
            "time_ns": NOW + rank,
        }
        for rank in range(3)
    }
    report = diagnose(builder.case(samples=[ended(rank, 1) for rank in range(3)]))
    found = report.findings[0]
    assert (report.status, found.code, found.culprits) == said


def test_exit_codes_alone_tell_that_ranks_failed() -> None:
    """Without a word of why, as where no dump holds the exception."""
    job = FakeJob(3)
    job.call(range(3), "all_reduce")
    samples = [replace(ended(rank, 1), lost_ns=NOW) for rank in range(3)]
    assert diagnose(job.case(samples=samples)).status == "insufficient"


@pytest.mark.parametrize("numels", [(384, 384, 576), (384, 384, 384)])
def test_splits_that_do_not_fit_blame_no_rank_for_its_size(numels: tuple[int, ...]) -> None:
    """Of a MoE layer: rank 2 gets more tokens, rightly; what rank 0 expects of rank 1 is wrong."""
    text = "[enforce fail] op.preamble.length <= op.nbytes. 768 vs 512. Received data size"
    fields = {"sent": "768", "room": "512"}
    event = LogEvent("UH762", "cause", -1, text, "job.log:1", fields=fields)
    samples = tuple(
        replace(ended(rank, 1 if rank else 134), last_op="all_to_all", last_call=91, last_numel=n)
        for rank, n in enumerate(numels)
    )
    first, *rest = diagnose(Case(samples=samples, log_events=(event,))).findings
    assert (first.code, first.role, first.culprits) == ("UH204", "cause", ())
    assert first.victims == (0, 1, 2)
    assert "one of ranks 1-2 sent rank 0 768 bytes, and rank 0 expected 512" in first.summary
    assert [finding.culprits for finding in rest if finding.role == "cause"] == []


def said(rank: int, text: str, role: str = "cause", **fields: str) -> LogEvent:
    """An exception with its place, as the output of a rank holds it."""
    place = {"file": "/home/user/train.py", "line": "31", "function": "load"}
    code = "UH700" if role == "cause" else "UH729"
    return LogEvent(
        code, role, rank, text, f"rank{rank}.log:9", order=9, fields={**place, **fields}
    )


def test_exceptions_that_only_the_output_tells_of_are_how_ranks_ended() -> None:
    """No dump of peers holds the loss of a peer: rank 2, which left as if all were well, did it."""
    builder = job((0, 1, 2))
    gone = [ended(0, 1), ended(1, 1), ended(2, 0)]
    lost = [said(rank, LOST, "consequence") for rank in (0, 1)]
    first = cause(builder.case(samples=gone, log_events=lost))
    assert (first.culprits, first.victims) == ((2,), (0, 1))
    assert LOST in " ".join(first.evidence)


def test_the_last_exception_of_a_rank_in_its_output() -> None:
    """Its error and line are told; not those of an attempt before, nor of a thread."""
    samples = [alive(0), ended(1, 1), alive(2)]
    own = said(1, "ValueError: bad batch", attempt="1")
    first = cause(job().case(samples=samples, log_events=[own]))
    assert (first.culprits, first.confidence) == ((1,), "high")
    assert "ValueError: bad batch" in first.summary
    assert [site.line for site in first.sites] == [31]
    old = [said(0, "KeyError: 'x'", attempt="1"), said(1, "ValueError: bad batch", attempt="0")]
    for events in (old, [said(1, "ValueError: bad batch", thread="feeder")]):
        first = diagnose(job().case(samples=samples, log_events=events)).findings[0]
        assert "raised ValueError" not in first.summary


def test_ranks_that_were_all_ended_by_order_are_no_health() -> None:
    """Their last calls are over; what ended them, and why, nothing shows."""
    builder = FakeJob(2)
    builder.call(range(2))
    report = diagnose(builder.case(samples=[ended(rank, 143) for rank in range(2)]))
    assert report.status == "insufficient"
    assert "ranks 0-1 were ended by SIGTERM" in report.summary
    well = diagnose(builder.case(samples=[ended(rank, 0) for rank in range(2)]))
    assert well.status == "healthy"
