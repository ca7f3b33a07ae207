"""What ranks of torchrun print passes through `unhang run` as fast as without it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from needs import needs_torch
from patience import wait_for
from run_jobs import PATIENCE_S, TORCHRUN, UNHANG, environment

pytestmark = needs_torch

RANK = """\
import os, sys
print("out", flush=True)
print("error", file=sys.stderr, flush=True)
print("half", end="\\r", flush=True)
open(sys.argv[1]).read()
print("end")
"""


def start(folder: Path, *options: str, stdout: int) -> subprocess.Popen[bytes]:
    """Start one rank that prints and waits for a FIFO to be opened, with Python's own buffers."""
    (folder / "rank.py").write_text(RANK)
    os.mkfifo(folder / "go-on")
    env = environment(folder)
    env.pop("PYTHONUNBUFFERED", None)
    torchrun = [str(TORCHRUN), "--nproc-per-node", "1", "rank.py", "go-on"]
    command = [*UNHANG, *options, "--", *torchrun]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=stdout, stderr=subprocess.STDOUT)


@pytest.mark.parametrize("options", [(), ("--no-arm",), ("--no-rank-logs",)])
def test_a_line_is_seen_while_its_rank_waits(tmp_path: Path, options: tuple[str, ...]) -> None:
    """In a file as by sbatch: the rank does not end before it has been seen."""
    log = tmp_path / "log"
    with log.open("wb") as output, start(tmp_path, *options, stdout=output.fileno()) as process:
        for word in ("out", "error", "half"):
            wait_for(lambda word=word: word in log.read_text(), word)  # type: ignore[misc]
        (tmp_path / "go-on").write_text("")
        assert process.wait(PATIENCE_S) == 0
    assert "end\n" in log.read_text()


def test_a_line_passes_through_a_pipe_while_its_rank_waits(tmp_path: Path) -> None:
    """The lines are marked and whole, as torchrun writes them."""
    with start(tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        seen = b""
        while not all(f"[default0]:{word}".encode() in seen for word in ("out\n", "error\n")):
            data = os.read(process.stdout.fileno(), 1 << 16)
            assert data, seen
            seen += data
        (tmp_path / "go-on").write_text("")
        rest = process.stdout.read()
        assert process.wait(PATIENCE_S) == 0
    assert (seen + rest).count(b"[default0]:out\n") == 1
    assert (seen + rest).endswith(b"end\n")


def test_nothing_is_lost_if_torchrun_is_killed(tmp_path: Path) -> None:
    """What its rank had printed is there, and what it prints on is where we say."""
    log = tmp_path / "log"
    with log.open("wb") as output, start(tmp_path, stdout=output.fileno()) as process:
        wait_for(lambda: "[default0]:half" in log.read_text(), "what the rank prints")
        (torchrun,) = (
            int(pid)
            for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if b"torchrun" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1]
        )
        os.kill(torchrun, signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 137
    (kept,) = (tmp_path / "unhang-logs").iterdir()
    assert f"the logs of the ranks are in unhang-logs/{kept.name}" in log.read_text()
    (printed,) = kept.rglob("stdout.log")
    (tmp_path / "go-on").write_text("")
    wait_for(lambda: printed.read_text().endswith("end\n"), "what it printed afterwards")
