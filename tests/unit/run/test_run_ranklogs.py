"""Logs of single ranks: what launchers are asked for, and what is found of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unhang.run import ranklogs
from unhang.run.ranklogs import FOLDER, rank_log_settings, rank_logs


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with room."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranklogs, "_ROOM_BYTES", 1)
    return tmp_path


def test_torchrun_is_asked_wherever_it_is_called(here: Path) -> None:
    """A script may call it: its variables mean nothing to anybody else."""
    asked = {"PET_TEE": "3", "PET_LOG_DIR": f"{here}/{FOLDER}/job/run"}
    assert dict(rank_log_settings(["bash", "train.sh"], "job/run")) == asked
    assert not (here / FOLDER).exists()


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
    assert dict(rank_log_settings([program, "python"], "x"))[name] == "1"
    assert name not in dict(rank_log_settings(["bash", program], "x"))


def test_no_file_where_there_is_no_room(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or a directory that is gone, must not become a failure of the job."""
    monkeypatch.setattr(ranklogs, "_ROOM_BYTES", 1 << 62)
    assert rank_log_settings(["torchrun"], "x") == []
    monkeypatch.setattr(ranklogs, "_ROOM_BYTES", 1)
    gone = here / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert rank_log_settings(["torchrun"], "x") == []
    os.chdir(here)


def test_logs_are_found_by_torchrun_s_names(here: Path) -> None:
    """Streams and error files of all attempts; anything else in the directory stays there."""
    for name in ("j_x/attempt_0/3/stdout.log", "j_x/attempt_1/0/error.json", "j_x/notes.txt"):
        (here / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "logs" / name).write_text("text")
    found = dict(rank_logs({"PET_LOG_DIR": str(here / "logs")}))
    assert sorted(found.values()) == ["j_x/attempt_0/3/stdout.log", "j_x/attempt_1/0/error.json"]
    assert all(Path(path).is_file() for path in found)
    assert list(rank_logs({})) == []
