"""Who is a rank of this run, whether it waits, and how those that are gone have ended."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import unhang.run.watching.roster
from unhang.collect.processes import Process, ProcessTable
from unhang.record.contact.beatlayout import GroupBeat
from unhang.record.contact.heartbeat import Heartbeat
from unhang.record.contact.marks import Mark, job_dir, start_ticks, write_mark
from unhang.run.watching import roster as roster_module
from unhang.run.watching.roster import (
    Roster,
    WatchedRank,
    finished_calls,
    is_waiting,
    stands_in_call,
)


def beat(phase: str = "ready", *, counters: tuple[int, int] = (3, 3), **more: int) -> Heartbeat:
    """A heartbeat with one group."""
    values = {"calls": 3, "enqueued": 3, "waits": 3, "waited": 3, **more}
    return Heartbeat(
        pid=1, start_ticks=1, phase=phase, rank=0, world_size=2, local_rank=0, attempt=0,
        step=None, step_ns=0, call_ns=0, waited_ns=0, tick_ns=0, **values,
        groups=(GroupBeat("gloo", 0, counters[0], -1, counters[1]),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "waiting"),
    [
        (beat(), False),
        (beat("initialising"), True),
        (beat(waits=4), True),
        (beat(calls=4), True),
        (beat(counters=(4, 3)), True),
        (beat(counters=(20, 17), calls=20, enqueued=20, waits=20, waited=20), False),
        (beat(counters=(20, 17), calls=20, enqueued=20, waits=19, waited=19), True),
        (None, None),
    ],
)
def test_a_rank_waits_in_python_in_the_library_or_behind_it(
    state: Heartbeat | None,
    waiting: bool | None,  # noqa: FBT001 - a table of expectations
) -> None:
    """A wait begun, a call not taken, a counter behind, or the rendezvous.

    A job on Gloo whose 20 calls had all ended was seen to count 17 ended ones, for ever.
    """
    assert is_waiting(state) is waiting


def test_a_program_stands_in_its_call_where_its_thread_is_seen_there() -> None:
    """Another thread may wait in one for as long as the program runs; a place may be old."""
    inside = replace(
        beat(calls=4), file="train.py", line=9, seen_file="train.py", seen_line=9, seen_ns=7
    )
    assert stands_in_call(inside)
    assert not stands_in_call(replace(inside, seen_line=10))
    assert not stands_in_call(replace(inside, calls=3))
    assert not stands_in_call(replace(inside, call_ns=8))
    assert not stands_in_call(None)


def test_every_kind_of_progress_changes_the_number() -> None:
    """A finished call through Python or C++, and becoming a rank."""
    states = [beat(), beat(waited=4), beat(enqueued=5), beat(counters=(9, 9)), beat("initialising")]
    assert len({finished_calls(state) for state in states}) == len(states)
    assert finished_calls(None) == -1


def mark(pid: int, rank: int, **more: object) -> Mark:
    """A mark of run "ours" as this host writes it."""
    values: dict[str, object] = {
        "pid": pid, "start_ticks": start_ticks(pid), "host": os.uname().nodename, "role": "rank",
        "phase": "ready", "rank": rank, "world_size": 2, "run": "ours", **more,
    }  # fmt: skip
    return Mark(**values)  # type: ignore[arg-type]


def test_a_launcher_that_runs_a_program_waits_for_nobody() -> None:
    """`accelerate launch` of a single process names no rank; a waiting launcher has no program."""
    launcher = Process(10, 1, python=True, command="/venv/bin/python /venv/bin/accelerate launch")
    tracker = Process(
        11, 10, python=True, command="python -c from multiprocessing.resource_tracker"
    )
    program = Process(12, 10, python=True, command="python train.py")
    roster = Roster("job", "ours", 10)
    assert roster.launchers(ProcessTable.of([launcher, tracker])) == [launcher]
    assert roster.launchers(ProcessTable.of([launcher, tracker, program])) == []


def test_members_and_their_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of other runs and launchers are no members; a dead one is told once, with its end."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = job_dir("job")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    write_mark(folder, mark(os.getpid(), 0))
    write_mark(folder, mark(child.pid, 1))
    write_mark(folder, mark(os.getppid(), 2, run="theirs"))
    roster = Roster("job", "ours")
    assert roster.refresh() == []
    assert [member.rank for member in roster.members] == [0, 1]
    assert roster.world_size == 2
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    (gone,) = roster.refresh()
    assert (gone.member.rank, gone.status, gone.clean) == (1, 137, False)
    assert roster.refresh() == []
    assert [member.rank for member in roster.members] == [0]
    child.communicate()


@pytest.mark.parametrize("elsewhere", [{"host": "node02"}, {"pid_ns": "pid:[4026532305]"}])
def test_who_cannot_be_seen_from_here_has_not_gone(
    elsewhere: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy job in containers was told to have disappeared."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    write_mark(job_dir("job"), mark(os.getpid(), 0))
    write_mark(job_dir("job"), mark(4, 1, **elsewhere))
    roster = Roster("job", "ours")
    assert roster.refresh() == []
    assert [member.rank for member in roster.members] == [0]


def test_who_has_left_is_looked_at_only_once_it_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as peers are inside, the counters of who has left say nothing."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = job_dir("job")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    write_mark(folder, mark(os.getpid(), 0, phase="destroyed"))
    write_mark(folder, mark(child.pid, 1))
    roster = Roster("job", "ours")
    roster.refresh()
    assert [rank.rank for rank in roster.look().ranks] == [1]
    child.communicate(b"\n")
    roster.refresh()
    assert [rank.rank for rank in roster.look().ranks] == [0]


def test_a_group_that_goes_and_comes_back_is_no_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick may not tell of all of them, and a group that is destroyed has finished no call."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    write_mark(job_dir("job"), mark(os.getpid(), 0))
    both = beat(counters=(9, 8)), replace(beat(), groups=())
    beats = iter([both[0], both[1], both[0], beat(counters=(9, 9))])
    monkeypatch.setattr(roster_module, "read_heartbeat", lambda _: next(beats))
    roster = Roster("job", "ours")
    roster.refresh()
    finished = [rank.finished for _ in range(4) for rank in roster.look().ranks]
    assert finished == [finished[0]] * 3 + [finished[0] + 1]


@pytest.mark.parametrize("worker", [True, False])
def test_how_ray_ends_its_workers_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, worker: bool
) -> None:
    """Those that have done all they had to, too: by exit code 1, which is an error elsewhere."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    child = subprocess.Popen([sys.executable, "-c", "input(); raise SystemExit(1)"],
                             stdin=subprocess.PIPE)  # fmt: skip
    command = "python /venv/ray/_private/workers/default_worker.py" if worker else "python train.py"
    write_mark(job_dir("job"), mark(child.pid, 0, phase="destroyed", command=command))
    roster = Roster("job", "ours")
    assert roster.refresh() == []
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    (gone,) = roster.refresh()
    assert (gone.status, gone.clean) == ((None, True) if worker else (1, False))
    child.wait()


def test_an_end_that_nobody_can_read_is_judged_by_the_last_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waited for already: a rank that said goodbye ended well, unless by an exception."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = job_dir("job")
    for rank, (phase, error) in enumerate(
        (("exited", ""), ("ready", ""), ("exited", "ValueError: no"))
    ):
        write_mark(
            folder, mark(999_999_990 + rank, rank, phase=phase, exception=error, start_ticks=5)
        )
    ends = Roster("job", "ours").refresh()
    assert [(end.member.rank, end.status, end.clean) for end in ends] == [
        (0, None, True),
        (1, None, False),
        (2, None, False),
    ]


def test_a_process_that_failed_in_the_rendezvous_is_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it came and went between two looks; one that never tried to join is none."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = job_dir("job")
    for pid, beat_file in ((999_999_990, "x.beat"), (999_999_991, "")):
        write_mark(
            folder,
            mark(pid, 3, role="unknown", phase="exited", env_rank=3, start_ticks=5,
                 exception="RuntimeError: refused", heartbeat=beat_file),
        )  # fmt: skip
    (gone,) = Roster("job", "ours").refresh()
    assert (gone.member.rank, gone.member.certain, gone.clean) == (3, False, False)


def test_an_attempt_that_is_over_keeps_its_own_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher was quicker than we: the next attempt's ranks are not mixed with them."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = job_dir("job")
    write_mark(folder, mark(999_999_990, 0, start_ticks=5))
    write_mark(folder, mark(os.getpid(), 0, attempt=1))
    roster = Roster("job", "ours")
    (gone,) = roster.refresh()
    assert roster.attempt == 1
    assert roster.of_attempt(0) == ([], [gone])
    alive, ended = roster.of_attempt(1)
    assert ([member.pid for member in alive], ended) == ([os.getpid()], [])


def test_what_a_rank_starts_before_it_has_joined_is_not_the_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child inherits RANK, with or without a recorder; that it ends is nobody's end."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    folder = job_dir("job")
    here = mark(os.getpid(), 1, role="unknown", phase="initialising", env_rank=1, told_size=2)
    joining = replace(here, rank=None, world_size=None)
    write_mark(folder, joining)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    imported = replace(joining, pid=worker.pid, start_ticks=start_ticks(worker.pid))
    write_mark(folder, replace(imported, phase="imported"))
    roster = Roster("job", "ours", child=os.getpid())
    assert roster.refresh() == []
    assert [member.pid for member in roster.members] == [os.getpid()]
    for process in (child, worker):
        process.communicate(b"\n")
    assert roster.refresh() == []


def test_a_guess_of_which_nobody_saw_the_end_is_no_bad_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper's probe (`python -c …` before `exec`) has a rank's environment as well."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    guess = mark(999_999_990, 1, role="unknown", phase="starting", start_ticks=5)
    member = WatchedRank(replace(guess, rank=None), 1, certain=False)
    assert Roster("job", "ours").gone_now(member).clean


def test_who_still_comes_when_a_peer_has_joined_has_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL's ranks join without waiting: one is ready while others have only imported torch."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = job_dir("job")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = replace(mark(os.getpid(), 0, env_rank=0, told_size=2), rank=None)
    coming = replace(here, role="unknown", phase="imported")
    write_mark(folder, coming)
    late = replace(coming, pid=child.pid, start_ticks=start_ticks(child.pid), env_rank=1)
    write_mark(folder, late)
    roster = Roster("job", "ours", child=os.getpid())
    roster.refresh()
    assert [member.rank for member in roster.members] == [0, 1]
    write_mark(folder, mark(os.getpid(), 0))
    assert roster.refresh() == []
    assert [(m.rank, m.certain) for m in roster.members] == [(0, True), (1, False)]
    child.communicate(b"\n")
    assert [end.member.rank for end in roster.refresh()] == [1]


def test_a_rank_that_joins_and_ends_during_a_look_has_its_last_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine all its steps fit between the look at its mark and that at its process."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = job_dir("job")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own = mark(os.getpid(), 0, env_rank=0, told_size=2, phase="imported", role="unknown")
    coming = mark(child.pid, 1, env_rank=1, told_size=2, phase="imported", role="unknown")
    write_mark(folder, replace(own, rank=None))
    write_mark(folder, replace(coming, rank=None))
    roster = Roster("job", "ours", child=os.getpid())
    roster.refresh()
    read = unhang.run.watching.roster.read_marks

    def slowly(job: str) -> list[Mark]:
        found = read(job)
        write_mark(folder, replace(coming, role="rank", phase="ready", heartbeat="1.beat"))
        if child.poll() is None:
            child.communicate(b"\n")
        return found

    monkeypatch.setattr("unhang.run.watching.roster.read_marks", slowly)
    (end,) = roster.refresh()
    assert (end.member.rank, end.member.certain) == (1, True)
    assert (end.member.mark.phase, end.member.mark.heartbeat) == ("ready", "1.beat")


def test_who_keeps_the_gil_stays_at_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its recorder cannot look meanwhile; one without a thread of its own tells nothing."""
    wall_ns = 100 * 10**9
    for tick_ns, looks in ((wall_ns, 3), (0, 1)):
        roster, held = Roster("job", "run"), replace(beat(at=5, seen_ns=wall_ns), tick_ns=tick_ns)
        for later_s in range(6):
            now_ns = wall_ns + later_s * 10**9
            monkeypatch.setattr("time.time_ns", lambda now_ns=now_ns: now_ns)
            roster._doings({1: held}, 0.0, look=False)
        assert roster.lines(1) == (looks, 1)
