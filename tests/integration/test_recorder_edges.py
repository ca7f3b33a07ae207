"""How processes end and what disturbs them: fatal signals, pending calls, fork, full disks."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from armed_jobs import ArmedJob

from unhang.record.contact.heartbeat import read_heartbeat
from unhang.record.contact.marks import alive


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., ArmedJob]:
    """A job of one process that runs one function of the program."""

    def begin(name: str, *, hook: bool = True, **env: str) -> ArmedJob:
        return ArmedJob("recorder_edges.py", 1, tmp_path, (name,), env, hook)

    return begin


def extra(path: Path) -> dict[str, Any]:
    """The key `unhang` of a dump."""
    value: dict[str, Any] = pickle.loads(path.read_bytes())["unhang"]  # noqa: S301 - our own
    return value


def test_a_fatal_signal_leaves_stacks_and_heartbeat(start: Callable[..., ArmedJob]) -> None:
    """All threads' stacks go into our file, as the job's faulthandler is off."""
    with start("fatal_signal") as job:
        assert job.wait_end(0) == -signal.SIGSEGV
        mark = job.mark(0)
        assert "fatal_signal" in Path(mark.faults).read_text(encoding="utf-8")
        beat = read_heartbeat(mark.heartbeat)
        assert beat is not None
        assert (beat.op, beat.function, beat.phase) == ("all_reduce", "begin", "ready")


def test_the_job_s_own_faulthandler_stays(start: Callable[..., ArmedJob]) -> None:
    """What the job has enabled goes where the job wants it."""
    with start("own_faulthandler") as job:
        assert job.wait_end(0) == -signal.SIGSEGV
        assert "Segmentation fault" in job.stderr(0)
        assert job.mark(0).faults == ""


def test_an_exit_with_calls_pending_is_dumped(start: Callable[..., ArmedJob]) -> None:
    """The last thing that the process does."""
    with start("exit_with_calls_pending") as job:
        assert job.wait_end(0) == 0
        path = job.cases / "job-a0-end" / "dumps" / "late" / "rank_0"
        assert extra(path)["reason"] == "exit-pending"


def test_a_quiet_exit_leaves_nothing_but_a_mark(start: Callable[..., ArmedJob]) -> None:
    """No dump, no socket, nothing on the terminal."""
    with start("exit_quietly") as job:
        assert job.wait_end(0) == 0
        assert (job.said[0], job.stderr(0), job.cases.exists()) == ([], "", False)
        mark = job.mark(0)
        assert (mark.phase, alive(mark)) == ("exited", False)
        assert not Path(mark.socket).exists()


def test_the_opted_in_signal_dumps_and_the_job_s_handler_runs(
    start: Callable[..., ArmedJob],
) -> None:
    """UNHANG_SIGNAL only; the handler that was there is called as well."""
    with start("signal_with_a_handler_of_its_own", UNHANG_SIGNAL="SIGUSR2") as job:
        pid = int(job.wait_for(0, "pid"))
        os.kill(pid, signal.SIGUSR2)
        job.wait_for(0, "handled True")
        os.write(job.stdins[0], b"\n")
        assert job.wait_end(0) == 0
        path = job.cases / "job-a0-signal-1" / "dumps" / "fake" / "rank_0"
        assert extra(path)["reason"] == "signal"


def test_forked_ranks_are_armed_afresh(start: Callable[..., ArmedJob]) -> None:
    """Each child has its own rank, files and socket; the parent is no rank."""
    with start("forked_ranks") as job:
        words = {job.wait_for(0, "rank"), job.wait_for(0, "rank")}
        assert words == {"0", "1"}
        marks = [mark for mark in job.marks() if alive(mark)]
        assert [(mark.rank, mark.role) for mark in marks] == [
            (0, "rank"), (1, "rank"), (None, "unknown"),
        ]  # fmt: skip
        assert len({mark.heartbeat for mark in marks[:2]} | {mark.socket for mark in marks}) == 5
        for mark in marks[:2]:
            beat = read_heartbeat(mark.heartbeat)
            assert beat is not None
            assert (beat.rank, beat.pid, beat.op) == (mark.rank, mark.pid, "all_reduce")
        os.write(job.stdins[0], b"\n\n")


def test_armed_by_code_after_init(start: Callable[..., ArmedJob]) -> None:
    """Groups that exist are recorded where Python calls them, later ones wholly."""
    with start("armed_late", hook=False) as job:
        dump = json.loads(job.wait_for(0, "dump"))
        assert [(e["profiling_name"], e["process_group"][1]) for e in dump["entries"]] == [
            ("fake:broadcast", "default_pg"), ("fake:send 0->1", "default_pg"),
            ("fake:all_reduce", "later"),
        ]  # fmt: skip
        who = dump["unhang"]
        assert (who["rank"], who["world_size"], who["step"], who["armed_by"]) == (0, 2, 3, "code")
        assert (who["problems"], job.wait_end(0)) == ([], 0)


def test_nothing_is_armed_where_nobody_asked(start: Callable[..., ArmedJob]) -> None:
    """UNHANG_ARM=0 switches the hook off; a dump by hand still writes what there is."""
    with start("not_armed", UNHANG_ARM="0") as job:
        assert job.wait_for(0, "armed") == f"False ['rank_pid{job.processes[0].pid}']"
        assert job.marks() == []


def test_a_place_that_cannot_be_written_gives_way_to_the_next(
    start: Callable[..., ArmedJob], tmp_path: Path
) -> None:
    """A file where the directory should be: the dump goes elsewhere, and says why."""
    (tmp_path / "cases").write_text("no directory")
    with start("nowhere_to_write") as job:
        (name,) = json.loads(job.wait_for(0, "files"))
        assert Path(name).is_relative_to(job.runtime / "job" / "cases")
        assert any("dump not written to" in problem for problem in extra(Path(name))["problems"])


def test_a_runtime_directory_that_cannot_be_had_stops_nothing(
    start: Callable[..., ArmedJob], tmp_path: Path
) -> None:
    """No mark, no socket, no heartbeat file; calls are recorded all the same."""
    (tmp_path / "runtime").mkdir(mode=0o755)
    with start("nowhere_to_write") as job:
        (name,) = json.loads(job.wait_for(0, "files"))
        dumped = extra(Path(name))
        assert any("runtime directory" in problem for problem in dumped["problems"])
        assert job.wait_end(0) == 0
