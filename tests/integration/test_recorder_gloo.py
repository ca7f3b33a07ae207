"""The recorder in a real Gloo job: what it sees, and what is left of ranks in trouble."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from armed_jobs import PATIENCE_S, ArmedJob

from unhang.ingest import load
from unhang.record.contact.client import AskError, ask, ask_worker, request_dump
from unhang.record.contact.heartbeat import Heartbeat, read_heartbeat
from unhang.record.contact.marks import alive

PROGRAM = "recorder_gloo.py"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArmedJob]:
    """The job, with each rank in its trouble."""
    with ArmedJob(PROGRAM, 4, tmp_path_factory.mktemp("job")) as started:
        for rank in range(3):
            started.wait_for(rank, "ready")
        started.wait_for(3, "forked")
        yield started


def line_of(text: str) -> int:
    """The number of the program's line that holds a text."""
    source = (Path(__file__).parent / "programs" / PROGRAM).read_text(encoding="utf-8")
    return next(n for n, line in enumerate(source.splitlines(), 1) if text in line)


def dump_of(job: ArmedJob, rank: int, shape: str) -> dict[str, Any]:
    """One of the dumps that the program took as bytes."""
    said = next(line for line in job.said[rank] if line.startswith("bytes"))
    value: dict[str, Any] = pickle.loads(bytes.fromhex(json.loads(said[5:])[shape]))  # noqa: S301 - our own
    return value


def beat(job: ArmedJob, rank: int) -> Heartbeat:
    """The heartbeat of a rank."""
    found = read_heartbeat(job.mark(rank).heartbeat)
    assert found is not None
    return found


# ------------------------------------------------------------------ what is recorded


def test_a_process_is_a_rank_once_init_has_returned(job: ArmedJob) -> None:
    """Four ranks; the forked child, which inherits RANK=3, is none of them."""
    marks = [mark for mark in job.marks() if alive(mark)]
    assert [(mark.rank, mark.role, mark.world_size) for mark in marks] == [
        (rank, "rank", 4) for rank in range(4)
    ]
    assert {mark.armed_by for mark in marks} == {"hook"}
    assert {mark.failures for mark in marks} == {()}


def test_counters_have_the_names_of_their_groups(job: ArmedJob) -> None:
    """Each rank numbers its groups for itself; the names are the same for all of them."""
    named = {
        (group.description, group.name, rank)
        for rank in range(4)
        for group in beat(job, rank).groups
        if group.recorder == "gloo"
    }
    assert {(what, rank) for what, _, rank in named} <= {
        *(("default_pg", rank) for rank in range(4)), *(("pair", rank) for rank in range(4)),
        ("hasty", 0), ("hasty", 3),
    }  # fmt: skip
    assert {rank for what, _, rank in named if what == "default_pg"} == set(range(4))
    names = defaultdict(set)
    for what, name, rank in named:
        names[what, rank // 2 if what == "pair" else 0].add(name)
    assert all(len(own) == 1 for own in names.values())


def test_healthy_dumps_are_read_whole(job: ArmedJob) -> None:
    """The first dump of each rank: true groups, our own calls between torch's, all finished."""
    case = load([job.cases / "job-a0-api-1"])
    groups = {(g.description, g.members) for g in case.groups if not g.inferred}
    assert groups == {
        ("default_pg", (0, 1, 2, 3)), ("pair", (0, 1)), ("pair", (2, 3)), ("hasty", (0, 3)),
    }  # fmt: skip
    names = [case.call(row).name.raw for row in range(len(case.calls)) if case.calls.rank[row] == 1]
    assert names == [
        "gloo:all_reduce", "gloo:all_reduce", "gloo:send 1->0", "gloo:recv 1<-0", "gloo:send 1->0",
        "gloo:recv 1<-0", "gloo:monitored_barrier", "gloo:barrier",
    ]  # fmt: skip
    assert [dump.step for dump in case.dumps] == [7] * 4
    assert case.world_size == 4


def test_our_sends_carry_what_torch_would_record(job: ArmedJob) -> None:
    """Whole-row equality but for times, stack and thread."""
    row = dump_of(job, 1, "all")["unhang"]["entries"][2]
    site = next(f for f in row.pop("frames") if f["filename"].endswith(PROGRAM))
    assert (site["name"], site["line"]) == ("train_step", line_of("in dist.batch_isend_irecv("))
    for name in list(row):
        if name.startswith(("time_", "thread_", "wait_", "duration_")):
            del row[name]
    assert row == {
        "record_id": 2,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 3,
        "op_id": 4,
        "profiling_name": "gloo:send 1->0",
        "input_sizes": [[2, 3]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[2, 3]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "retired": True,
        "timeout_ms": 1_800_000,
        "is_p2p": True,
        "after_record_id": 1,
    }


def test_our_barrier_stands_between_torch_s_collectives(job: ArmedJob) -> None:
    """monitored_barrier takes two numbers that torch records nowhere: ours is the first of them."""
    dump = dump_of(job, 2, "plain")
    world = ("0", "default_pg")
    torch_seqs = [e["collective_seq_id"] for e in dump["entries"] if e["process_group"] == world]
    ours = [e for e in dump["unhang"]["entries"] if "barrier" in e["profiling_name"]]
    assert torch_seqs == [1, 4]
    assert [entry["collective_seq_id"] for entry in ours] == [2]


def test_dumps_as_bytes_hold_what_was_asked_for(job: ArmedJob) -> None:
    """With and without entries, stacks, and what has ended."""
    whole, plain = dump_of(job, 0, "all"), dump_of(job, 0, "plain")
    assert all(entry["frames"] for entry in whole["entries"] + whole["unhang"]["entries"])
    assert not any("frames" in entry for entry in plain["entries"] + plain["unhang"]["entries"])
    assert not dump_of(job, 0, "bare").get("entries")
    assert dump_of(job, 0, "bare")["unhang"]["entries"] == []
    assert dump_of(job, 0, "active")["unhang"]["entries"] == []


def test_torchfrtrace_reads_our_dumps(job: ArmedJob) -> None:
    """On torch's own Gloo dumps it raises KeyError for want of a true pg_config."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace",
         str(job.cases / "job-a0-api-1" / "dumps" / "gloo")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


# ------------------------------------------------------------------ ranks in trouble


def test_a_rank_blocked_in_gloo_answers(job: ArmedJob) -> None:
    """Status, then a dump whose pending receive has the line that made it."""
    mark = job.mark(0)
    (status,) = ask(mark.socket, {"do": "status"}, PATIENCE_S)
    assert status["pending"] == ["gloo:recv 0<-1"]
    assert status["main_thread"]["function"] == "receive_what_nobody_sends"
    assert {tuple(group["ranks"]) for group in status["groups"]} >= {(0, 1, 2, 3), (0, 3)}
    replies = list(request_dump(mark.socket, reason="hang", incident="look", timeout_s=PATIENCE_S))
    assert [reply["stage"] for reply in replies] == ["entries", "stacks"]
    case = load(replies[0]["files"])
    last = case.call(len(case.calls) - 1)
    assert (last.name.raw, last.retired) == ("gloo:recv 0<-1", False)
    assert [frame.function for frame in last.frames][-2:] == [
        "receive_what_nobody_sends", "<module>",
    ]  # fmt: skip
    assert case.dumps[0].main_stack[-2].function == "receive_what_nobody_sends"


def test_a_dump_goes_where_the_asker_wants_it(job: ArmedJob, tmp_path: Path) -> None:
    """And a second one beside it, never over it."""
    for _ in range(2):
        list(
            request_dump(
                job.mark(0).socket, reason="asked", directory=tmp_path / "case",
                timeout_s=PATIENCE_S, stacks=False,
            )
        )  # fmt: skip
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("rank_*"))
    assert files == ["case.2/dumps/gloo/rank_0", "case/dumps/gloo/rank_0"]


def test_the_pipe_triggers_a_dump(job: ArmedJob) -> None:
    """A line names the incident; a status request behind it waits until it is written."""
    mark = job.mark(0)
    Path(mark.fifo).write_text("by-pipe\n", encoding="utf-8")
    list(ask(mark.socket, {"do": "status"}, PATIENCE_S))
    path = job.cases / "job-a0-by-pipe" / "dumps" / "gloo" / "rank_0"
    assert pickle.loads(path.read_bytes())["unhang"]["reason"] == "pipe"  # noqa: S301 - our own


def test_a_rank_that_keeps_the_gil_still_gives_counters(job: ArmedJob) -> None:
    """Python is silent; torch's worker server and the heartbeat are not."""
    mark = job.mark(1)
    with pytest.raises(AskError, match="in time"):
        list(ask(mark.socket, {"do": "ping"}, 0.5))
    counters = json.loads(ask_worker(mark.worker_socket, "fr_trace_json", PATIENCE_S))["pg_status"]
    assert counters["0"]["last_enqueued_collective"] == counters["0"]["last_completed_collective"]
    seen = beat(job, 1)
    assert (seen.rank, seen.step, seen.op) == (1, 7, "barrier")
    assert seen.file.endswith(PROGRAM)


def unhang_dump(job: ArmedJob, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `unhang dump` in a directory, beside the job."""
    env = {**os.environ, "UNHANG_RUNTIME_DIR": str(job.runtime)}
    return subprocess.run(
        [sys.executable, "-m", "unhang", "dump", *words],
        cwd=place, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def test_the_command_gathers_dumps_of_all_ranks(job: ArmedJob, tmp_path: Path) -> None:
    """The rank that keeps the GIL too, through torch's worker server."""
    done = unhang_dump(job, tmp_path, "--no-stacks", "--case", "case")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "case: dumps of ranks 0-3", "next: unhang diagnose case",
    ]  # fmt: skip
    files = sorted(path.name for path in (tmp_path / "case" / "dumps" / "gloo").iterdir())
    assert files == ["rank_0", "rank_1.json", "rank_2", "rank_3"]
    case = load([tmp_path / "case"])
    assert case.world_size == 4
    assert {case.call(row).name.raw for row in np.flatnonzero(~case.calls.retired)} == {
        "gloo:recv 0<-1", "gloo:recv 2<-0",
    }  # fmt: skip
    again = unhang_dump(job, tmp_path, "--case", "case")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)


def test_the_command_says_who_is_armed(job: ArmedJob, tmp_path: Path) -> None:
    """One line a rank; a process that is not armed is no rank."""
    lines = unhang_dump(job, tmp_path, "--list").stdout.splitlines()
    assert [line.split("  ")[1] for line in lines] == [f"rank {rank} of 4" for rank in range(4)]
    stranger = unhang_dump(job, tmp_path, "--pid", str(os.getpid()))
    assert (stranger.returncode, "is not armed" in stranger.stderr) == (3, True)
    assert "hint: Start the job with 'unhang run" in stranger.stderr
    elsewhere = unhang_dump(job, tmp_path, "--job", "other")
    assert (elsewhere.returncode, elsewhere.stderr.splitlines()[0]) == (
        3, "unhang: no armed rank of job other on this node",
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_killed_rank_leaves_its_last_line(job: ArmedJob) -> None:
    """Stopped first, then killed: the heartbeat file survives both."""
    process = job.processes[2]
    os.kill(process.pid, signal.SIGSTOP)
    stopped = beat(job, 2)
    os.kill(process.pid, signal.SIGKILL)
    assert job.wait_end(2) == -signal.SIGKILL
    assert not alive(job.mark(2))
    killed = beat(job, 2)
    assert killed == stopped
    assert (killed.op, killed.function, killed.line) == (
        "recv", "wait_for_the_worst", line_of("torch.empty(6)"),
    )  # fmt: skip
    assert killed.calls > killed.waited  # it was still waiting


def test_a_timeout_is_dumped_before_the_program_goes_on(job: ArmedJob) -> None:
    """Gloo calls the failed call retired; the dump says that it failed, and with what."""
    path = job.cases / "job-a0-timeout-1" / "dumps" / "gloo" / "rank_3"
    extra = pickle.loads(path.read_bytes())["unhang"]  # noqa: S301 - our own
    (failure,) = extra["failures"]
    assert (failure["op"], failure["description"]) == ("all_reduce", "hasty")
    assert "imed out" in failure["error"]
    assert extra["reason"] == "timeout"


def test_an_exception_is_dumped_and_the_job_s_own_hook_still_runs(job: ArmedJob) -> None:
    """Ours was there before; theirs calls it, and torch's prefix stays on the traceback."""
    process = job.processes[3]
    os.write(job.stdins[3], b"go\n")
    job.wait_for(3, "hooked ValueError")
    assert process.wait(PATIENCE_S) == 1
    assert "[rank3]: ValueError: the batch is empty" in job.stderr(3)
    path = job.cases / "job-a0-end" / "dumps" / "gloo" / "rank_3"
    exception = pickle.loads(path.read_bytes())["unhang"]["exception"]  # noqa: S301 - our own
    assert (exception["type"], exception["message"]) == ("ValueError", "the batch is empty")
    assert exception["frames"][0]["line"] == line_of('raise ValueError("the batch')
    assert job.mark(3).phase == "exited"
