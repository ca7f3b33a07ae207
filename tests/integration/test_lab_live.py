"""Every live fault, run afresh, gets stuck where it should and gets its right verdict."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import unhang

from lab.live.faults import FAULTS
from lab.score.adapters import verdict_of
from lab.score.verdict import disagreements
from lab.truth import read_truth

SMALLER = {  # than the example: other sizes are tried, and processes are what takes time here
    "healthy": 3,
    "never-joined": 2,
    "skipped-call": 3,
    "wrong-op": 3,
    "frozen-rank": 3,
    "wrapped-buffer": 3,
    "late-rank": 3,
    "p2p-cycle": 2,
    "p2p-unmatched": 3,
    "skipped-then-barrier": 3,
    "ddp-stall": 2,
    "dead-rank": 3,
    "never-joined-armed": 2,
    "p2p-cycle-armed": 2,
    "p2p-unmatched-armed": 3,
}


ROOT = Path(__file__).parents[2]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
"""The lab is not installed: here it is found though the working directory is another one."""


def live(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m lab live WORDS…` in a directory."""
    return subprocess.run(
        [sys.executable, "-m", "lab", "live", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRON,
    )


@pytest.mark.parametrize("name", FAULTS)
def test_a_fresh_hang_gets_its_right_verdict(name: str, tmp_path: Path) -> None:
    """Capture and diagnosis through the command line; some with fewer ranks than the example."""
    size = ("--ranks", str(SMALLER[name])) if name in SMALLER else ()
    captured = live(name, "-o", "capture", *size, cwd=tmp_path)
    assert (captured.returncode, captured.stdout) == (0, ""), captured.stderr
    done = unhang("diagnose", "capture", "--format", "json", cwd=tmp_path)
    assert (
        disagreements(read_truth(tmp_path / "capture"), verdict_of(json.loads(done.stdout))) == []
    )


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small capture that several tests look at."""
    place = tmp_path_factory.mktemp("live") / "capture"
    done = live("never-joined", "--ranks", "2", "-o", str(place), cwd=place.parent)
    assert done.returncode == 0, done.stderr
    return place


def test_a_capture_is_never_overwritten(capture: Path) -> None:
    """A second run into the same directory is refused before anything starts."""
    before = {path: path.stat().st_mtime_ns for path in capture.rglob("*")}
    done = live("never-joined", "-o", str(capture), cwd=capture.parent)
    assert done.returncode == 2
    assert "not overwritten" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in capture.rglob("*")} == before


def test_nothing_else_is_left_behind(capture: Path) -> None:
    """The scratch directory is gone; the capture holds the dumps and the truth."""
    assert [path.name for path in capture.parent.iterdir()] == ["capture"]
    files = sorted(str(p.relative_to(capture)) for p in capture.rglob("*") if p.is_file())
    assert files == ["dumps/gloo/rank_0", "dumps/gloo/rank_1", "truth.json"]


@pytest.fixture
def sigint_heard() -> Iterator[None]:
    """Children hear Ctrl-C even where a shell started this test run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_heard")
def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while ranks run: they are gone, and so are their files; the exit code says it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lab", "live", "healthy", "-o", "capture"],
        env=ENVIRON,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "starting" not in process.stderr.readline():
        pass
    ranks = watched(children_of(process.pid, 4))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=600) == 130
    assert list(tmp_path.iterdir()) == []
    assert all(map(ended, ranks))


def test_ranks_die_with_a_killed_parent(tmp_path: Path) -> None:
    """Even SIGKILL, which nobody can handle, leaves no rank behind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lab", "live", "never-joined", "-o", "capture"],
        env=ENVIRON,
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    ranks = watched(children_of(process.pid, 4))
    process.kill()
    process.wait()
    assert all(map(ended, ranks))


def children_of(pid: int, count: int) -> list[int]:
    """The children of a process, as soon as it has so many."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + 600
    while len(children := path.read_text().split()) < count:
        assert time.monotonic() < deadline, "the ranks were never started"
        time.sleep(0.01)
    return [int(child) for child in children]


def watched(pids: list[int]) -> list[int]:
    """A descriptor for each process, which becomes readable when it ends."""
    return [os.pidfd_open(pid) for pid in pids]


def ended(fd: int) -> bool:
    """Whether the process behind a descriptor ends, in good time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    gone = bool(poll.poll(600_000))
    os.close(fd)
    return gone


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("no-such-fault",), "there is no live fault 'no-such-fault'"),
        ((), "name a fault"),
        (("never-joined", "--ranks", "1"), "cannot be run with 1 ranks"),
        (("never-joined", "--timeout", "0.5"), "did not get stuck in time"),
        (("never-joined", "-o", "/proc/nowhere/x"), "cannot be written"),
    ],
)
def test_what_does_not_work_is_said(tmp_path: Path, words: tuple[str, ...], complaint: str) -> None:
    """One sentence and a hint, no traceback, nothing left behind."""
    done = live(*words, cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert complaint in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not any(tmp_path.rglob("rank_*"))
