"""`unhang logs` as a user runs it: verdict, views, bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from valid_reports import report_in

DISK_FULL = """\
[rank0]:[I1120 05:56:29.0 a.cpp:1] step 1
[rank1]: Traceback (most recent call last):
[rank0]:[I1120 05:56:30.0 a.cpp:1] step 2
[rank1]:   File "/home/user/job/train.py", line 88, in save
[rank1]:     torch.save(state, path)
[rank1]: OSError: [Errno 28] No space left on device: '/ckpt/rank_1.pt'
[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.
"""


def logs(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `unhang logs` and collect what it prints."""
    command = [sys.executable, "-m", "unhang", "logs", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log in which rank 1's disk is full."""
    path = tmp_path / "job.log"
    path.write_text(DISK_FULL)
    return path


def test_the_verdict_names_rank_and_line(log: Path) -> None:
    """The rank whose disk is full, and its source line; exit code 1."""
    done = logs(str(log))
    assert done.returncode == 1
    assert "rank 1" in done.stdout
    assert "train.py:88" in done.stdout


def test_json_and_standard_input(log: Path) -> None:
    """Standard input gives the same verdict, and JSON is all that stands on stdout."""
    done = logs("-", "--format", "json", stdin=log.read_text())
    report = report_in(done.stdout)
    assert report["findings"][0]["code"] == "UH776"
    assert report["findings"][0]["culprits"] == [1]


def test_views(log: Path, tmp_path: Path) -> None:
    """One rank's lines, one file per rank, folded lines, the timeline, following."""
    assert "train.py" in logs(str(log), "--rank", "1").stdout
    assert "train.py" not in logs(str(log), "--rank", "0").stdout
    assert logs(str(log), "--split", str(tmp_path / "split")).returncode == 0
    assert (tmp_path / "split" / "rank_0.log").read_text().count("\n") == 3
    assert "rank 0: step 1 (2 times)" in logs(str(log), "--fold").stdout
    assert "UH776" in logs(str(log), "--timeline").stdout
    assert "UH776 cause" in logs("-f", "-", stdin=log.read_text()).stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["/no/such.log"], 3),
        ([], 2),
        (["{log}", "--rank", "7"], 2),
        (["{empty}"], 3),
        (["{log}", "--split", "{full}"], 2),
    ],
)
def test_bad_input(log: Path, tmp_path: Path, words: list[str], code: int) -> None:
    """One sentence on stderr and the right exit code; no traceback."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("keep")
    names = {"log": log, "empty": tmp_path / "empty", "full": tmp_path / "full"}
    done = logs(*(word.format(**names) for word in words))
    assert done.returncode == code
    assert done.stderr
    assert "Traceback (most recent call last)" not in done.stderr
    assert (tmp_path / "full" / "mine").read_text() == "keep"


@pytest.mark.parametrize(("end", "code"), [("training finished\n", 0), ("", 3)])
def test_a_quiet_log_is_healthy_if_it_ends_well(end: str, code: int, tmp_path: Path) -> None:
    """No known message: a log that only stops may be that of a job that stands."""
    (tmp_path / "a.log").write_text(f"step 1\nstep 2\nstep 3\n{end}")
    assert logs(str(tmp_path / "a.log")).returncode == code


def test_the_message_of_a_guide_on_asynchronous_errors(tmp_path: Path) -> None:
    """As it was pasted, over three lines and in torch's older words: with what to run next."""
    log = tmp_path / "pasted.log"
    log.write_text(
        "[E ProcessGroupNCCL.cpp:414] Some NCCL operations have failed or timed out. Due to the\n"
        "asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/\n"
        "incomplete data. To avoid this inconsistency, we are taking the entire process down.\n"
    )
    done = logs(str(log), "-v")
    said = " ".join(done.stdout.split())
    assert done.returncode == 3
    assert "the logs show what followed from a failure, but not the failure itself" in said
    for option in ("--blocking", "--on-cpu", "--one-gpu"):
        assert f"unhang run {option} -- CMD" in said
