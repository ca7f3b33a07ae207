"""What a real torchrun leaves when a rank fails: log directory, error files, its own summary."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from valid_reports import report_in

TORCHRUN = Path(sys.executable).parent / "torchrun"
PROGRAM = Path(__file__).parent / "programs" / "recorded_failure.py"
EXAMPLES = Path(__file__).parents[2] / "examples"
SAVE = next(
    i for i, line in enumerate(PROGRAM.read_text().splitlines(), 1) if "raise OSError" in line
)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `launcher.log` and torchrun's own log directory, `ranks`."""
    folder = tmp_path_factory.mktemp("torchrun")
    command = [TORCHRUN, "--nproc-per-node", "4", "--log-dir", "ranks", "--tee", "3", PROGRAM]
    with (folder / "launcher.log").open("w") as out:
        done = subprocess.run(
            list(map(str, command)), cwd=folder, stdout=out, stderr=out, check=False, timeout=600
        )
    assert done.returncode == 1
    assert len(list(folder.glob("ranks/*/attempt_0/2/error.json"))) == 1
    return folder


def report_of(*words: object, cwd: Path) -> dict[str, Any]:
    """Run a judging command that finds a problem, and check its JSON against the schema."""
    command = [sys.executable, "-m", "unhang", *map(str, words), "--format", "json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    return report_in(done.stdout)


@pytest.mark.parametrize(
    "logs",
    [["launcher.log"], ["ranks"], ["ranks/*/attempt_0/*/error.json"], ["launcher.log", "ranks"]],
    ids=["launcher", "directory", "error files", "all"],
)
def test_each_of_them_names_the_rank(left: Path, logs: list[str]) -> None:
    """Rank, line and message; the peers' lost connections are consequences."""
    report = report_of("logs", *logs, cwd=left)
    first = report["findings"][0]
    assert (first["code"], first["culprits"], first["confidence"]) == ("UH776", [2], "high")
    assert (first["sites"][0]["function"], first["sites"][0]["line"]) == ("save", SAVE)
    assert {f["role"] for f in report["findings"][1:]} <= {"consequence", "observation"}


def test_the_log_tells_why_the_dumps_miss_a_rank(left: Path) -> None:
    """Real dumps in which rank 2 never came, and a real log of its failure: one verdict."""
    dumps = EXAMPLES / "never-joined"
    report = report_of("diagnose", dumps, "--log", "launcher.log", "--log", "ranks", cwd=left)
    first, absence = report["findings"][:2]
    assert (first["code"], first["culprits"], first["confidence"]) == ("UH776", [2], "high")
    assert (first["victims"], first["op"], first["seq"]) == ([0, 1, 3], "all_reduce", 5)
    assert first["sites"][0]["line"] == SAVE
    assert (absence["code"], absence["role"]) == ("UH101", "consequence")
    assert any(note["text"].startswith("read ") for note in report["notes"])


def test_logs_alone_are_a_case_too(left: Path) -> None:
    """`diagnose --log` without dumps, where no case lies around."""
    report = report_of("diagnose", "--log", "launcher.log", cwd=left)
    assert report["findings"][0]["culprits"] == [2]


def test_logs_in_a_case_are_read_without_being_told(left: Path, tmp_path: Path) -> None:
    """A note says so, and --no-logs leaves them."""
    case = tmp_path / "case"
    (case / "logs").mkdir(parents=True)
    shutil.copytree(EXAMPLES / "never-joined" / "dumps", case / "dumps")
    (case / "logs" / "stderr.log").write_bytes((left / "launcher.log").read_bytes())
    read = report_of("diagnose", case, cwd=left)
    left_out = report_of("diagnose", case, "--no-logs", cwd=left)
    assert [r["findings"][0]["code"] for r in (read, left_out)] == ["UH776", "UH101"]
    assert any("--no-logs" in note["text"] for note in left_out["notes"])
