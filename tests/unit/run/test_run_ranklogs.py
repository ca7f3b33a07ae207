"""Logs of single ranks: what launchers are asked for, and what is found of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from unhang.run.child import ranklogs
from unhang.run.child.ranklogs import (
    FOLDER,
    place_for_logs,
    rank_log_settings,
    rank_logs,
    settle_logs,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with room."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranklogs, "_ROOM_BYTES", 1)
    return tmp_path


def test_torchrun_is_asked_wherever_it_is_called() -> None:
    """A script may call it: its variables mean nothing to anybody else."""
    asked = {"PET_TEE": "3", "PET_LOG_DIR": "/place"}
    assert dict(rank_log_settings(["bash", "train.sh"], "/place")) == asked
    assert rank_log_settings(["torchrun"], "") == []


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/srun", "SLURM_LABELIO"),
        ("mpirun", "OMPI_MCA_orte_tag_output"),
        ("mpiexec", "OMPI_MCA_orte_tag_output"),
    ],
)
def test_other_launchers_mark_lines(program: str, name: str) -> None:
    """Only as the command itself: a script may read what they print for it."""
    assert dict(rank_log_settings([program, "python"], ""))[name] == "1"
    assert name not in dict(rank_log_settings(["bash", program], ""))


def test_logs_lie_in_the_run_s_own_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless that takes memory, or is full: then hidden in the working directory for a while."""
    private = str(here / "runtime" / "not" / "made" / "yet")
    monkeypatch.setattr(ranklogs, "_in_memory", lambda _: False)
    assert place_for_logs("", private, "run") == f"{private}/ranks"
    monkeypatch.setattr(ranklogs, "_in_memory", lambda _: True)
    assert place_for_logs("", private, "run") == f"{here}/.{FOLDER}-run"
    assert place_for_logs("mine", private, "run") == f"{here}/mine"
    assert list(here.iterdir()) == []


def test_a_file_system_in_memory_is_known(here: Path) -> None:
    """By the table of mounts; what it does not list is taken for a disk."""
    for place in (here, Path("/dev/shm"), Path("/proc")):  # noqa: S108 - only looked at
        kinds = subprocess.run(
            ["stat", "-f", "-c", "%T", str(place)], capture_output=True, text=True, check=True
        ).stdout
        assert ranklogs._in_memory(str(place)) == (kinds.strip() in ("tmpfs", "ramfs"))


def test_no_file_where_there_is_no_room(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or a directory that is gone, must not become a failure of the job."""
    monkeypatch.setattr(ranklogs, "_ROOM_BYTES", 1 << 62)
    assert place_for_logs("", str(here), "run") == ""
    monkeypatch.setattr(ranklogs, "_ROOM_BYTES", 1)
    monkeypatch.setattr(ranklogs, "_in_memory", lambda _: True)
    gone = here / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert place_for_logs("", str(here), "run") == ""
    os.chdir(here)


@pytest.mark.parametrize("failed", [False, True])
def test_logs_stay_only_of_a_failure_without_a_case(
    here: Path, capfd: pytest.CaptureFixture[str], *, failed: bool
) -> None:
    """A job that went well leaves nothing; of one that did not, it is said where they are."""
    (here / "temporary" / "j_x" / "attempt_0" / "3").mkdir(parents=True)
    (here / "temporary" / "j_x" / "attempt_0" / "3" / "stdout.log").write_text("text")
    settle_logs(str(here / "temporary"), "run", failed=failed)
    left = [str(path.relative_to(here)) for path in here.rglob("*.log")]
    assert left == [f"{FOLDER}/run/j_x/attempt_0/3/stdout.log"] * failed
    assert capfd.readouterr().err == f"unhang: the logs of the ranks are in {FOLDER}/run\n" * failed
    assert failed or list(here.iterdir()) == []
    settle_logs(str(here / "never made"), "run", failed=failed)


def test_logs_are_found_by_torchrun_s_names(here: Path) -> None:
    """Streams and error files of all attempts; anything else in the directory stays there."""
    for name in ("j_x/attempt_0/3/stdout.log", "j_x/attempt_1/0/error.json", "j_x/notes.txt"):
        (here / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "logs" / name).write_text("text")
    found = dict(rank_logs({"PET_LOG_DIR": str(here / "logs")}))
    assert sorted(found.values()) == ["j_x/attempt_0/3/stdout.log", "j_x/attempt_1/0/error.json"]
    assert all(Path(path).is_file() for path in found)
    assert list(rank_logs({})) == []
