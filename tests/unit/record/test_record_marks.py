"""Marks: written in one step, read without trust, in a directory that is ours alone."""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.rankenv import VARIABLES
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Ring
from unhang.record.contact import marks, opening
from unhang.record.contact.beat import Beat
from unhang.record.contact.marks import Mark, RuntimeDirError
from unhang.record.crash import CrashWatch
from unhang.record.process import ArmedProcess, process
from unhang.record.settings import Settings


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of this test."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "run"))
    return marks.runtime_root()


def own_mark(**changes: object) -> Mark:
    """A mark of this very process."""
    mark = Mark(
        pid=os.getpid(),
        start_ticks=marks.start_ticks(),
        host=socket.gethostname(),
        pid_ns=marks.pid_namespace(),
        job_id="job",
    )
    return replace(mark, **changes)


def test_a_mark_comes_back_as_it_was_written(root: Path) -> None:
    """Whole-object equality over a round trip."""
    mark = own_mark(role="rank", rank=3, world_size=8, failures=("a", "b"))
    marks.write_mark(marks.job_dir("job", root), mark)
    assert marks.read_marks() == [mark]
    assert marks.read_marks("job") == [mark]
    assert marks.read_marks("other") == []


def test_marks_come_by_rank_and_helpers_last(root: Path) -> None:
    """Ranks in order, then those without one."""
    directory = marks.job_dir("job", root)
    for pid, rank in ((10, None), (11, 1), (12, 0)):
        marks.write_mark(directory, Mark(pid=pid, start_ticks=1, job_id="job", rank=rank))
    assert [mark.pid for mark in marks.read_marks()] == [12, 11, 10]


def test_alive_means_this_very_process() -> None:
    """A reused pid, another host or another namespace is not this process."""
    assert marks.alive(own_mark())
    assert not marks.alive(own_mark(start_ticks=1))
    assert not marks.alive(own_mark(host="elsewhere"))
    assert not marks.alive(own_mark(pid_ns="pid:[1]"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"schema": "unhang.mark/1"}',
        b'{"schema": "unhang.mark/2", "pid": 1, "start_ticks": 1}',
        b'{"schema": "unhang.mark/1", "pid": "1", "start_ticks": 1}',
        b'{"schema": "unhang.mark/1", "pid": true, "start_ticks": 1}',
        b'{"schema": "unhang.mark/1", "pid": 1, "start_ticks": 1, "failures": "x"}',
        b'{"schema": "unhang.mark/1", "pid": 1, "start_ticks": 1, "command": "'
        + b"x" * marks.MAX_MARK_BYTES
        + b'"}',
    ],
)
def test_malformed_marks_are_passed_over(root: Path, content: bytes) -> None:
    """A file that is no mark is no error."""
    directory = marks.create_private_dir(marks.job_dir("job", root) / "marks")
    (directory / "1.json").write_bytes(content)
    assert marks.read_marks() == []


def test_unknown_fields_are_ignored(root: Path) -> None:
    """A newer recorder may say more."""
    directory = marks.create_private_dir(marks.job_dir("job", root) / "marks")
    raw = {"schema": "unhang.mark/1", "pid": 1, "start_ticks": 2, "colour": "blue"}
    (directory / "1.json").write_text(json.dumps(raw))
    assert marks.read_marks() == [Mark(pid=1, start_ticks=2)]


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    """Neither as a mark, nor as a job's directory."""
    marks.write_mark(marks.job_dir("job", root), own_mark())
    real = root / "job" / "marks" / f"{os.getpid()}.json"
    real.rename(tmp_path / "moved.json")
    real.symlink_to(tmp_path / "moved.json")
    assert marks.read_marks() == []
    (root / "linked").symlink_to(root / "job")
    with pytest.raises(RuntimeDirError):
        marks.job_dir("linked", root)


def test_a_directory_open_to_others_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode 0755 could be written by nobody else, but its sockets could be seen: refused."""
    (tmp_path / "open").mkdir(mode=0o755)
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "open"))
    with pytest.raises(RuntimeDirError, match="0700"):
        marks.runtime_root()
    assert marks.read_marks() == []


@pytest.mark.parametrize(
    ("env", "job"),
    [
        ({"UNHANG_JOB": "a/../b c"}, "a_.._b_c"),
        ({"TORCHELASTIC_RUN_ID": "run7", "SLURM_JOB_ID": "5"}, "run7"),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}, "h-29500"),
        ({"SLURM_JOB_ID": "5"}, "5"),
        ({}, f"session-{os.getsid(0)}"),
    ],
)
def test_the_job_is_named_by_who_knows_it(
    env: dict[str, str], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours first, then the launcher's, then the scheduler's; always safe as a file name."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert marks.job_from_env() == job


def test_the_folder_of_a_living_run_stays(root: Path) -> None:
    """Its command may live for days without a mark, and a clock may jump a day ahead."""
    (marks.job_dir("watched", root) / f"run-some-host-{os.getpid()}-17").mkdir()
    (marks.job_dir("left", root) / f"run-host-{2**22 + 1}-17").mkdir()
    assert marks.remove_stale_jobs(root, time.time() + 100_000) == ["left"]
    assert [path.name for path in root.iterdir()] == ["watched"]


@pytest.mark.parametrize("name", ["beat", "sock", "fifo", "faults"])
def test_planted_links_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What lies under the name of one of our files is replaced; where it points stays as it was."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o644)
    settings = Settings(signal=0)
    state = ArmedProcess(settings, os.getpid(), Beat(None, pid=1, start_ticks=1), Ring(10))
    state.directory = tmp_path
    (tmp_path / f"{os.getpid()}.{name}").symlink_to(victim)
    recorder = Recorder(state)
    monkeypatch.setenv("LOCAL_RANK", "1")  # The first one looks at the directory above as well.
    monkeypatch.setattr(faulthandler, "is_enabled", lambda: False)
    monkeypatch.setattr(faulthandler, "enable", lambda **_: None)
    monkeypatch.setattr(faulthandler, "disable", lambda: None)
    crash = CrashWatch(recorder, lambda: None)
    opening.open_heartbeat(recorder)
    opening.open_faults(recorder, crash)
    watcher = opening.open_socket(recorder)
    crash.release()
    assert watcher is not None
    watcher.stop(60.0)
    watcher.close()
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", 0o644)
    assert not any(path.is_symlink() for path in tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_not_used(root: Path) -> None:
    """Neither to write to nor to read from, whatever its mode."""
    marks.write_mark(marks.job_dir("job", root), own_mark())
    os.chown(root / "job" / "marks" / f"{os.getpid()}.json", 65534, -1)
    assert marks.read_marks() == []
    os.chown(root / "job", 65534, -1)
    with pytest.raises(RuntimeDirError):
        marks.job_dir("job", root)
    os.chown(root, 65534, -1)
    with pytest.raises(RuntimeDirError):
        marks.runtime_root()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("python -u train.py --pw X", "python train.py"),
        ("python -X dev -m pkg.train --pw X", "python -m pkg.train"),
        ("python -W ignore -Ic code X", "python -c"),
        ("python -codeX X", "python -c"),
        ("python", "python"),
    ],
)
def test_a_mark_tells_the_program_and_no_arguments(
    line: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments and code may hold secrets: whoever wants them reads /proc, cleaned."""
    monkeypatch.setattr("sys.orig_argv", line.split())
    assert process().mark().command == told
