from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.collect.processes import read_process
from unhang.model import Frame, ProcessSample, ProcessState, SlowRank, ThreadStack
from unhang.record.statement import handed_on
from unhang.report import Finding, Report
from unhang.stacks.formats.saved import dump_samples, parse
from unhang.testing import FakeJob, worked

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MODULE = Frame("<module>", "/home/user/train.py", 90)
STEP = Frame("step", "/home/user/train.py", 88)
WAITING = (Frame("all_reduce", C10D, 3245), STEP, MODULE)
BARRIER = (Frame("barrier", C10D, 4000), Frame("evaluate", "/home/user/eval.py", 12), MODULE)
LOADING = (Frame("Loader.__next__", "/home/user/data.py", 31), MODULE)
COMPUTING = (Frame("loss", "/home/user/model.py", 7), MODULE)
BACKWARD = (
    Frame(
        "_engine_run_backward", "/opt/venv/lib/python3.11/site-packages/torch/autograd/graph.py", 1
    ),
    STEP,
)


def look(rank: int, frames: tuple[Frame, ...], number: int = 0, **more: object) -> ProcessSample:
    """One look at a rank."""
    threads = (ThreadStack("MainThread", 100 + rank, frames, is_main=True),) if frames else ()
    fields: dict[str, object] = {"state": "S", "tool": "py-spy"} | more
    return ProcessSample(
        rank, "node01", 100 + rank, threads, sample=number, time_ns=number * 10**9, **fields
    )  # type: ignore[arg-type]  # fields of ProcessSample


def verdict(
    *stacks: tuple[Frame, ...], looks: int = 2, world_size: int = 0, **odd: dict[str, object]
) -> Report:
    """The verdict of ranks that stand at these places in all looks; `odd` changes some: r3={…}."""
    samples = [
        look(rank, frames, number, **odd.get(f"r{rank}", {}))
        for number in range(looks)
        for rank, frames in enumerate(stacks)
    ]
    return diagnose(Case(samples=tuple(samples), world_size=world_size))


def essence(report: Report) -> tuple[str, str, str, tuple[int, ...], tuple[int, ...]]:
    """Status, code, confidence, culprits and victims of the first finding."""
    first = report.findings[0]
    return report.status, first.code, first.confidence, first.culprits, first.victims


def test_the_one_elsewhere_is_named_with_its_line() -> None:
    """Seven wait in all_reduce, one loads data, and nothing moves."""
    report = verdict(*[WAITING] * 5, LOADING, *[WAITING] * 2)
    assert essence(report) == ("problem", "UH101", "medium", (5,), (0, 1, 2, 3, 4, 6, 7))
    assert report.summary == (
        "7 of 8 ranks wait in all_reduce at step (train.py:88); rank 5 is waiting for data "
        "(__next__) at Loader.__next__ (data.py:31), unchanged between two looks."
    )
    site = report.findings[0].sites[0]
    assert (site.ranks, site.role, site.file, site.line) == (
        (5,),
        "culprit",
        "/home/user/data.py",
        31,
    )
    assert report.stacks[site.stack_id] == LOADING
    assert [r.status for r in report.ranks] == ["waiting"] * 5 + ["culprit"] + ["waiting"] * 2


def test_one_look_is_a_guess() -> None:
    """It may have been passing by: low confidence, and it says so."""
    report = verdict(WAITING, WAITING, LOADING, looks=1)
    assert essence(report) == ("problem", "UH101", "low", (2,), (0, 1))
    assert "One look cannot tell" in report.findings[0].alternatives[0]


@pytest.mark.parametrize("tool", ["", "heartbeat"])
def test_a_look_without_a_stack_takes_nothing_away_from_the_look_before(tool: str) -> None:
    """Under load a sampler returns none: what was seen a second ago stands, as one look."""
    samples = [look(0, WAITING, 0), look(0, WAITING, 1), look(1, LOADING, 0), look(1, (), 1)]
    if tool:
        samples.append(look(1, WAITING, 2, tool=tool))
    seen = diagnose(Case(samples=tuple(samples)))
    assert essence(seen)[1:4] == ("UH101", "low", (1,))
    assert "data.py:31" in seen.summary
    ended = diagnose(Case(samples=(*samples, look(1, (), 3, gone=True))))
    assert "data.py:31" not in ended.summary


def test_a_stopped_rank_is_certain() -> None:
    """A stopped process does not come; no second look is needed for that."""
    report = verdict(WAITING, COMPUTING, WAITING, r1={"state": "T"}, looks=1)
    assert essence(report) == ("problem", "UH101", "high", (1,), (0, 2))
    assert "kill -CONT 101" in report.findings[0].actions[0]


def test_a_rank_in_a_debugger_is_freed_by_leaving_that() -> None:
    """A signal wakes no process that ptrace(2) holds; saved and read again, it still says so."""
    held = look(1, COMPUTING, 0, state="t", tracer=99, tracer_name="gdb")
    samples = parse(dump_samples([look(0, WAITING, 0), held, look(2, WAITING, 0)]))
    report = diagnose(Case(samples=tuple(samples)))
    assert essence(report) == ("problem", "UH101", "high", (1,), (0, 2))
    assert "rank 1 is stopped by a debugger (gdb, process 99)" in report.findings[0].summary
    assert report.findings[0].actions[0].startswith("Continue it: detach its debugger")
    assert report.decision.reason == "stopped"
    unseen = look(1, COMPUTING, 0, state="t")
    report = diagnose(Case(samples=(samples[0], unseen, samples[2])))
    assert "stopped by a debugger at" in report.findings[0].summary


@pytest.mark.parametrize(
    ("hierarchy", "state", "channel", "name", "frozen"),
    [
        ("6:freezer:/job", "D", "hrtimer_nanosleep", "freezer.state", "FROZEN\n"),
        ("0::/job", "S", "get_signal", "cgroup.events", "populated 1\nfrozen 1\n"),
    ],
    ids=["version 1", "version 2"],
)
def test_a_rank_in_a_paused_container_is_thawed(
    tmp_path: Path, hierarchy: str, state: str, channel: str, name: str, frozen: str
) -> None:
    """From /proc to text and decision: it is no slow disk, and does not wait for peers."""
    folder, group = tmp_path / "101", tmp_path / "job"
    mounted = "cgroup freezer" if "freezer" in hierarchy else "cgroup2 rw"
    files = {
        folder / "stat": f"101 (python) {state} 1 {'0 ' * 17}777 0",
        folder / "wchan": channel,
        folder / "cgroup": hierarchy,
        tmp_path / "self" / "mounts": f"none {tmp_path} {mounted}",
        group / name: frozen,
    }
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    process = read_process(101, tmp_path)
    assert process is not None
    held = look(1, WAITING, **handed_on(process, ProcessState))
    samples = parse(dump_samples([look(0, WAITING), held, look(2, WAITING)]))
    report = diagnose(Case(samples=tuple(samples)))
    assert essence(report) == ("problem", "UH401", "high", (1,), (0, 2))
    assert f"rank 1 is frozen with its cgroup {group} at step" in report.findings[0].summary
    assert report.findings[0].actions[0].startswith("Thaw its cgroup")
    assert report.decision.reason == "stopped"
    (group / name).unlink()
    thawed = read_process(101, tmp_path)
    assert thawed is not None
    assert (thawed.state, thawed.frozen) == (state, "")


@pytest.mark.parametrize("frames", [COMPUTING, WAITING])
def test_a_rank_that_was_stopped_just_now_may_be_continued(frames: tuple[Frame, ...]) -> None:
    """It is named at once, and nothing is ended for it before the time of grace is over."""
    for paused_s, pausing in ((12.0, (1,)), (-1.0, ())):
        report = verdict(WAITING, frames, WAITING, r1={"state": "T", "paused_s": paused_s})
        assert report.findings[0].culprits == (1,)
        assert (report.findings[0].confidence, report.decision.pausing) == ("high", pausing)


def test_who_is_stopped_inside_the_call_has_joined_it() -> None:
    """It did not fail to come: the call cannot go on because of it."""
    report = verdict(WAITING, WAITING, WAITING, r1={"state": "T"})
    assert essence(report) == ("problem", "UH401", "high", (1,), (0, 2))
    report = verdict(WAITING, WAITING, WAITING, LOADING, r1={"state": "T"})
    assert [(f.code, f.culprits) for f in report.causes] == [("UH101", (3,)), ("UH401", (1,))]


def test_whoever_moves_while_others_wait_may_be_slow() -> None:
    """The late one moves: named at low confidence, as slow."""
    samples = [look(r, WAITING, n) for n in range(2) for r in range(3)]
    samples += [look(3, LOADING, 0), look(3, COMPUTING, 1)]
    report = diagnose(Case(samples=tuple(samples)))
    assert essence(report) == ("problem", "UH101", "low", (3,), (0, 1, 2))
    assert "slow" in report.findings[0].alternatives[0]


@pytest.mark.parametrize(
    ("cpu_s", "stored", "confidence", "moving"),
    [(0.9, 0, "low", (1,)), (0.0, 23_000, "low", (1,)), (0.0, 4096, "high", ())],
)
def test_whoever_works_while_dumps_lack_its_call_is_busy(
    cpu_s: float, stored: int, confidence: str, moving: tuple[int, ...]
) -> None:
    """Nobody can say that it is stuck, though it stands at one line; without work it is."""
    job = FakeJob(3)
    job.call(range(3), "all_reduce")
    job.call((0, 2), "barrier", finished=False)
    looks = worked(cpu_s=cpu_s, moved=stored, stored=stored)
    samples = [look(r, WAITING, n) for n in range(2) for r in (0, 2)]
    samples += [look(1, COMPUTING, n, looks=looks) for n in range(2)]
    finding = diagnose(job.case(samples=samples)).findings[0]
    assert (finding.code, finding.culprits) == ("UH101", (1,))
    assert (finding.confidence, finding.moving) == (confidence, moving)
    assert ("busy, slow or late rather than stuck" in finding.summary) == bool(moving)


LOCK = (Frame("acquire", "/usr/lib/python3.11/threading.py", 100), COMPUTING[0], MODULE)


@pytest.mark.parametrize(
    ("frames", "more", "pausing"),
    [
        (LOADING, {}, (1,)),
        (COMPUTING, {"state": "D", "wait_channel": "folio_wait_bit"}, (1,)),
        (COMPUTING, {"wait_channel": "flock_lock_inode_wait"}, (1,)),
        (COMPUTING, {"paused_s": -1.0}, ()),
        (COMPUTING, {"wait_channel": "n_tty_read"}, (1,)),
        (LOCK, {}, (1,)),
        (COMPUTING, {"state": "T"}, ()),
        (COMPUTING, {"wakes_s": 9000.0}, ()),
    ],
)
def test_a_pause_is_no_hang_for_a_while(
    frames: tuple[Frame, ...], more: dict[str, object], pausing: tuple[int, ...]
) -> None:
    """What may still come is waited for; who is stopped, or sleeps for hours, stays so."""
    job = FakeJob(3)
    job.call(range(3), "all_reduce")
    job.call((0, 2), "barrier", finished=False)
    samples = [look(r, WAITING, n, paused_s=12.0) for n in range(2) for r in (0, 2)]
    samples += [look(1, frames, n, **{"paused_s": 12.0, **more}) for n in range(2)]
    finding = diagnose(job.case(samples=samples)).findings[0]
    assert (finding.code, finding.culprits, finding.pausing) == ("UH101", (1,), pausing)
    assert finding.confidence == ("low" if pausing else "high")
    said = "for 12 s: a pause of rank 1" in " ".join(finding.alternatives)
    assert said == bool(pausing)


def test_a_line_that_dump_and_stacks_name_differently_is_told_once() -> None:
    """The dump knows a method by its class, py-spy by its name alone."""
    job = FakeJob(3)
    job.call((0, 2), "all_reduce", finished=False)
    job.dump_fields = {1: {"main_stack": LOADING}}
    plain = (Frame("__next__", LOADING[0].file, LOADING[0].line), MODULE)
    samples = [look(1, plain, n) for n in range(2)]
    finding = diagnose(job.case(samples=samples)).findings[0]
    places = [(s.function, s.line) for s in finding.sites if s.role == "culprit"]
    assert places == [("__next__", 31)]


def test_work_alone_keeps_a_program_that_does_not_communicate_from_being_stuck() -> None:
    """All stand at one line and one of them computes there."""
    busy = {"looks": worked(cpu_s=0.9)}
    report = verdict(COMPUTING, COMPUTING, r1=busy)
    assert (report.status, report.findings[0].code) == ("healthy", "UH601")
    assert verdict(COMPUTING, COMPUTING).status == "problem"


def test_a_rank_without_a_dump_that_is_stopped_is_not_dead() -> None:
    """Its state says why it wrote none."""
    job = FakeJob(3)
    job.call(range(3), "all_reduce")
    job.call((0, 2), "all_reduce", finished=False)
    job.missing |= {1}
    samples = [look(r, WAITING, n) for n in range(2) for r in (0, 2)]
    samples += [look(1, COMPUTING, n, state="T") for n in range(2)]
    finding = diagnose(job.case(samples=samples)).findings[0]
    assert (finding.code, finding.culprits, finding.confidence) == ("UH103", (1,), "high")
    assert finding.summary.startswith("Rank 1 is stopped by a signal (SIGSTOP, SIGTSTP) at loss")
    assert "dead" not in finding.summary


def test_a_job_that_moves_is_healthy() -> None:
    """Ranks that leave their collective between two looks are not stuck."""
    samples = [look(0, WAITING, 0), look(0, COMPUTING, 1), look(1, COMPUTING), look(1, WAITING, 1)]
    report = diagnose(Case(samples=tuple(samples)))
    assert (report.status, report.findings[0].code) == ("healthy", "UH601")
    assert report.culprits == ()


def test_everybody_in_one_call_blames_nobody() -> None:
    """Nobody is elsewhere: the call itself does not move."""
    assert essence(verdict(*[WAITING] * 4)) == ("problem", "UH401", "low", (), (0, 1, 2, 3))
    assert essence(verdict(*[WAITING] * 4, looks=1))[:2] == ("insufficient", "UH901")


@pytest.mark.parametrize(
    "report",
    [
        verdict(WAITING, WAITING, BARRIER, BARRIER),
        verdict(WAITING, WAITING, BARRIER),
        verdict(WAITING, WAITING, world_size=16),
        verdict(WAITING, WAITING, (), r2={"error": "no permission"}),
        verdict((), (), r0={"error": "x"}, r1={"error": "y"}),
    ],
)
def test_what_stacks_cannot_tell_is_not_told(report: Report) -> None:
    """Different calls, ranks on other nodes, ranks that were not seen: nobody is named."""
    assert (report.status, report.findings[0].code, report.culprits) == (
        "insufficient",
        "UH901",
        (),
    )


def test_nobody_communicates_and_nothing_moves() -> None:
    """All in user code, unchanged: the program itself, and no rank is singled out."""
    assert essence(verdict(LOADING, LOADING)) == ("problem", "UH602", "low", (), (0, 1))
    held = verdict(COMPUTING, COMPUTING, r1={"state": "D", "wait_channel": "nfs_wait"})
    assert essence(held) == ("problem", "UH602", "medium", (1,), ())


def test_who_does_not_end_when_all_others_have() -> None:
    """Only where these ended well, and nothing moves: else an end explains more."""
    ended = {"tool": "heartbeat", "state": "X", "exit_status": 0}
    last = verdict(LOADING, LOADING, COMPUTING, r0=ended, r2=ended)
    assert essence(last) == ("problem", "UH602", "medium", (1,), ())
    assert last.summary.endswith(
        "at Loader.__next__ (data.py:31), while ranks 0,2 have ended without an error."
    )
    told = {rank.rank: rank.detail for rank in last.ranks}
    assert told[0] == told[2] == "ended with exit code 0"
    failed = verdict(LOADING, LOADING, COMPUTING, r0=ended, r2=ended | {"exit_status": 1})
    assert failed.findings[0].code == "UH106"
    assert verdict(LOADING, LOADING, r0=ended, looks=1).status == "insufficient"
    assert verdict(LOADING, COMPUTING, r0=ended, r1={"wakes_s": 20.0}).culprits == ()
    working = {"looks": worked(cpu_s=0.9)}
    assert verdict(LOADING, COMPUTING, r0=ended, r1=working).culprits == ()


def test_who_sleeps_for_a_while_will_wake() -> None:
    """Nobody knows what for, but it goes on by itself: late, and not stuck."""
    pause = {"wakes_s": 31.2, "state": "S", "wait_channel": "hrtimer_nanosleep"}
    one = verdict(WAITING, COMPUTING, r1=pause)
    assert essence(one) == ("problem", "UH101", "low", (1,), (0,))
    assert one.findings[0].moving == (1,)
    assert "rank 1 is sleeping, for another 31 s at " in one.summary
    everybody = verdict(COMPUTING, COMPUTING, r0=pause, r1=pause)
    assert essence(everybody) == ("problem", "UH602", "low", (), (0, 1))
    long = verdict(WAITING, COMPUTING, r1=pause | {"wakes_s": 99_999.0})
    assert long.findings[0].moving == ()
    assert "for another 99,999 s" in long.summary


def test_backward_counts_as_waiting_only_beside_others() -> None:
    """Ranks in backward wait for the one in its loader; alone they prove nothing."""
    assert essence(verdict(BACKWARD, BACKWARD, LOADING)) == (
        "problem", "UH101", "low", (2,), (0, 1),
    )  # fmt: skip
    assert verdict(BACKWARD, BACKWARD).culprits == ()


def test_helpers_and_launchers_are_no_ranks() -> None:
    """Samples of other roles never count as ranks."""
    helper = replace(look(-1, LOADING), role="data-loader", parent_rank=0)
    launcher = replace(look(0, LOADING), role="launcher", pid=9)
    samples = [look(r, WAITING, n) for n in range(2) for r in range(2)]
    report = diagnose(Case(samples=(helper, launcher, *samples)))
    assert (report.job.ranks_seen, report.culprits) == (2, ())


def test_renaming_ranks_renames_the_culprit() -> None:
    """Nothing depends on which number a rank has."""
    for culprit in range(4):
        stacks = [LOADING if rank == culprit else WAITING for rank in range(4)]
        assert verdict(*stacks).culprits == (culprit,)


PAUSING = (Frame("throttle", "/home/user/train.py", 40), STEP, MODULE)


def in_one_call(*samples: ProcessSample) -> Report:
    """The verdict of four ranks that are all in one call, by their dumps, and of these looks."""
    job = FakeJob(4)
    job.call(range(4))
    job.call(range(4), finished=False)
    return diagnose(job.case(samples=samples))


@pytest.mark.parametrize(
    "odd",
    [
        look(2, PAUSING, wait_channel="hrtimer_nanosleep"),
        look(2, LOADING),
        look(2, WAITING, state="T"),
    ],
)
def test_who_stands_elsewhere_is_named_where_dumps_have_everybody_in_the_call(
    odd: ProcessSample,
) -> None:
    """Two sources disagree: low confidence, and both are told."""
    waiting = [look(rank, WAITING) for rank in (0, 1, 3)]
    report = in_one_call(*waiting, odd)
    assert essence(report) == ("problem", "UH401", "low", (2,), (0, 1, 3))
    assert report.summary.startswith("Rank 2 is ")
    assert (report.findings[0].evidence[1]) == (
        "Sources disagree: the dumps show all members in all_reduce #2, "
        "the stacks only ranks 0-1,3."
    )
    assert "no rank is named" not in " ".join(report.findings[0].evidence)
    assert [s.ranks for s in report.findings[0].sites if s.role == "culprit"] == [(2,)]


def test_nobody_is_named_for_standing_where_most_do() -> None:
    """Who polls sleeps while it waits; who moves is busy; one who is alone seen tells nothing."""
    pausing = [look(rank, PAUSING, wait_channel="hrtimer_nanosleep") for rank in range(4)]
    waiting = [look(rank, WAITING) for rank in (0, 1, 3)]
    moving = [look(2, LOADING), look(2, PAUSING, 1, wait_channel="hrtimer_nanosleep")]
    for samples in (pausing, pausing[2:3], [*waiting, *moving], waiting):
        report = in_one_call(*samples)
        assert essence(report)[1:4] == ("UH401", "medium", ())


REPORTING = (
    Frame("TrainContext._sync_checkpoint_dir_name_across_ranks",
          "ray/train/v2/_internal/execution/context.py", 254),
    *LOADING,
)  # fmt: skip
MAKING = (Frame("_new_process_group_helper", C10D, 2169), *LOADING)


def meeting(frames: tuple[Frame, ...], *ranks: int) -> Finding:
    """Of three, these stand there, and the others in an all_reduce."""
    rest = [rank for rank in range(3) if rank not in ranks]
    job = FakeJob(3)
    job.call(range(3))
    job.call(rest, finished=False)
    samples = [
        look(rank, frames if rank in ranks else WAITING, number)
        for rank in range(3)
        for number in (0, 1)
    ]
    return diagnose(job.case(samples=samples)).findings[0]


def test_of_two_meetings_that_to_which_most_have_come_is_the_right_one() -> None:
    """Dumps hold the one, stacks the other: each side waits for those of the other."""
    found = meeting(REPORTING, 0, 2)
    assert (found.code, found.culprits, found.victims) == ("UH101", (1,), (0, 2))
    assert (found.op, found.confidence) == ("ray.train.report", "medium")
    found = meeting(REPORTING, 2)
    assert (found.culprits, found.confidence) == ((2,), "low")
    found = meeting(MAKING, 0, 2)
    assert (found.code, found.culprits, found.confidence) == ("UH101", (1,), "medium")


def test_a_handler_that_is_entered_again_and_again_does_not_move() -> None:
    """Each signal enters it once more, while the lock that it wants is its own thread's."""
    beat = Frame("Counters.beat", "/home/user/train.py", 35)
    samples = [look(1, (*(beat,) * (3 + number), STEP, MODULE), number) for number in (0, 1)]
    samples += [look(rank, WAITING, number) for rank in (0, 2) for number in (0, 1)]
    report = diagnose(Case(samples=tuple(samples)))
    assert essence(report) == ("problem", "UH101", "medium", (1,), (0, 2))


def test_who_waits_for_a_key_of_a_store_may_not_be_the_one_at_fault() -> None:
    """The dumps lack its call, and it waits for what somebody else may have to set."""
    job = FakeJob(3)
    job.call(range(3))
    job.call((1, 2), finished=False)
    keys: dict[int, dict[str, object]] = {
        0: {"awaits": "3/2", "has_set": "2/0"}, 1: {"has_set": "3/1"}, 2: {"has_set": "2/2"},
    }  # fmt: skip
    stand = {0: COMPUTING, 1: WAITING, 2: WAITING}
    samples = [look(r, stand[r], number, **keys[r]) for number in (0, 1) for r in range(3)]
    found = diagnose(job.case(samples=samples)).findings[0]
    assert (found.code, found.culprits, found.confidence) == ("UH101", (0,), "medium")
    assert "for '3/2' in a store" in found.evidence[0]
    assert found.evidence[1] == (
        "The last key that each rank set: rank 0: '2/0'; rank 1: '3/1'; rank 2: '2/2'."
    )
    assert found.alternatives[-1].startswith("The rank that has to set that key")


def test_who_waits_for_a_lock_that_processes_share_may_not_be_the_one_at_fault() -> None:
    """One of those in the call may hold it: a deadlock of both."""
    lock = Frame("SemLock.__enter__", "/usr/lib/python3.11/multiprocessing/synchronize.py", 95)
    job = FakeJob(3)
    job.call(range(3))
    job.call((1, 2), finished=False)
    stand = {0: (lock, *COMPUTING), 1: WAITING, 2: WAITING}
    samples = [look(r, stand[r], number) for number in (0, 1) for r in range(3)]
    found = diagnose(job.case(samples=samples)).findings[0]
    assert (found.code, found.culprits, found.confidence) == ("UH101", (0,), "low")
    assert found.alternatives[-1].startswith("Processes share the lock")


def test_who_waits_for_another_key_than_most_at_one_line_is_named() -> None:
    """As with other calls, most are right; of keys of their own for each rank nothing is said."""
    same = {f"r{rank}": {"awaits": "epoch/7"} for rank in (0, 1, 3)}
    found = verdict(*[COMPUTING] * 4, **same, r2={"awaits": "epoch/8"})
    assert essence(found) == ("problem", "UH602", "medium", (2,), (0, 1, 3))
    own = {f"r{rank}": {"awaits": f"go/{rank}"} for rank in range(4)}
    assert essence(verdict(*[COMPUTING] * 4, **own))[3] == ()


@pytest.mark.parametrize(("goes_along", "confidence"), [(True, "low"), (False, "medium")])
def test_who_has_more_data_than_the_others_is_not_slow_for_certain(
    goes_along: bool,  # noqa: FBT001 - a table of expectations
    confidence: str,
) -> None:
    """Those who go along in `Join` have run out of it."""
    join = Frame("Join.__exit__", "torch/distributed/algorithms/join.py", 274)
    waits = (WAITING[0], join, *WAITING[1:]) if goes_along else WAITING
    job = FakeJob(3)
    for _ in range(30):
        job.call(range(3), site="train.py:1 step")
    samples = [look(rank, LOADING if rank == 1 else waits) for rank in range(3)]
    case = replace(job.case(samples=samples), slow=SlowRank(1, 0.5, 20.0, 10**18, 30.0))
    moving = [replace(dump, reason="slow") for dump in case.dumps]
    found = diagnose(replace(case, dumps=tuple(moving))).findings[0]
    assert (found.code, found.culprits, found.confidence) == ("UH501", (1,), confidence)
    assert ("no data left and join the others' calls" in found.summary) == goes_along


def test_who_goes_on_while_the_others_make_a_group_is_told_as_that() -> None:
    """The dumps alone show a call that it made and the others did not."""
    job = FakeJob(4)
    for _ in range(3):
        job.call(range(4), site="train.py:1 step")
    job.call((0,), site="train.py:90 log", finished=False)
    samples = [
        look(r, BACKWARD if r == 0 else MAKING, number) for number in (0, 1) for r in range(4)
    ]
    without = diagnose(job.case()).findings[0]
    assert (without.code, without.culprits, without.confidence) == ("UH102", (0,), "low")
    found = diagnose(job.case(samples=samples)).findings[0]
    assert (found.code, found.culprits, found.confidence) == ("UH101", (0,), "medium")
    assert found.summary.startswith("3 of 4 ranks are setting up process groups")


def test_who_is_alone_in_a_new_call_while_the_others_work_may_be_early() -> None:
    """As after a preprocessing that takes some longer: nobody says that it is one too many."""
    job = FakeJob(3)
    for _ in range(3):
        job.call(range(3), site="train.py:1 step")
    job.call((1,), site="train.py:90 log", finished=False)
    works = {"looks": worked(cpu_s=0.9)}
    samples = [look(1, WAITING, number) for number in (0, 1)]
    samples += [look(r, COMPUTING, number, **works) for number in (0, 1) for r in (0, 2)]
    found = diagnose(job.case(samples=samples)).findings[0]
    assert (found.code, found.culprits, found.confidence) == ("UH101", (0, 2), "low")


FILE_LOCK = (Frame("BaseFileLock.acquire", "/usr/lib/filelock/_api.py", 340), COMPUTING[0], MODULE)
AT_STORE = (Frame("main", "/home/user/train.py", 14), MODULE)


@pytest.mark.parametrize(
    ("frames", "more", "paused_s", "confidence"),
    [
        (FILE_LOCK, {}, 12.0, "low"),
        (FILE_LOCK, {}, -1.0, "medium"),
        (AT_STORE, {"awaits": "data/ready"}, 13.0, "low"),
        (AT_STORE, {"awaits": "data/ready"}, -1.0, "medium"),
    ],
)
@pytest.mark.parametrize("ranks", [3, 5])
def test_all_but_one_that_stand_in_their_own_code_are_late(
    frames: tuple[Frame, ...], more: dict[str, object], paused_s: float, confidence: str, ranks: int
) -> None:
    """A lock or a key keeps many as well as one: the punctual rank made no call too many.

    Captured of programs whose ranks share a cache on a file system, and a key of a store.
    """
    job = FakeJob(ranks)
    for _ in range(41):
        job.call(range(ranks), site="train.py:1 step")
    job.call((0,), "barrier", site="train.py:23 main", finished=False)
    away = range(1, ranks)
    samples = [look(0, WAITING, number, paused_s=paused_s) for number in (0, 1)]
    samples += [look(r, frames, n, paused_s=paused_s, **more) for n in (0, 1) for r in away]
    found = diagnose(job.case(samples=samples)).findings[0]
    assert (found.code, found.culprits, found.victims) == ("UH101", tuple(away), (0,))
    assert found.confidence == confidence
    assert found.pausing == (tuple(away) if paused_s >= 0 else ())
    assert {site.ranks for site in found.sites if site.role == "culprit"} == {tuple(away)}


@pytest.mark.parametrize("ahead", [(0,), ()])
def test_where_calls_end_again_after_the_alarm_nobody_is_blamed_for_certain(
    ahead: tuple[int, ...],
) -> None:
    """An evaluation that has just ended; or a call that all had made, and that has ended since."""
    job = FakeJob(3)
    job.call(range(3))
    job.call([rank for rank in range(3) if rank not in ahead], finished=False)
    ended = {"state": "R", "tool": "py-spy"}
    for went_on in (False, True):
        samples = [look(rank, (), number, **ended) for number in (0, 1) for rank in range(3)]
        samples[-1] = replace(samples[-1], went_on=went_on)
        report = diagnose(job.case(samples=samples))
        found, decision = report.findings[0], report.decision
        assert decision is not None
        assert (found.confidence == "low") >= went_on
        assert ((decision.action, decision.reason) == ("wait", "moves")) == went_on
        assert ("rank 2 has gone on since" in found.summary) == went_on
