"""After an error of a kernel: the three commands that tell more, with the job's own command."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from guide_page import on_the_page
from needs import needs_torch
from ports import free_port
from run_jobs import environment, run_job

pytestmark = needs_torch

JOB = """\
import os

seen = [os.environ.get(f"CUDA_{name}") for name in ("VISIBLE_DEVICES", "LAUNCH_BLOCKING")]
print("sees", seen, flush=True)
if seen != ["2,3", None]:
    raise SystemExit
import torch.distributed as dist

dist.init_process_group("gloo")
raise RuntimeError(
    "CUDA error: device-side assert triggered\\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect."
)
"""
SEES = {
    "--blocking": "sees ['2,3', '1']",
    "--on-cpu": "sees ['', None]",
    "--one-gpu": "sees ['2', None]",
}


def test_the_same_again_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command runs as it stands, and sets what it says."""
    job = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": str(free_port()), "CUDA_VISIBLE_DEVICES": "2,3"}  # fmt: skip
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "job.py").write_text(JOB)
    outcome = run_job(tmp_path, (), [sys.executable, "job.py"])
    assert "device-side assert" in outcome.report["summary"], outcome.said
    steps = [step["command"] for step in outcome.report["next"]]
    again = [shlex.split(step) for step in steps if step.startswith("unhang run ")]
    assert [words[2] for words in again] == list(SEES)
    said = "\n".join(steps)
    on_the_page("CUDA_LAUNCH_BLOCKING=1", said)
    on_the_page('CUDA_VISIBLE_DEVICES=""', said)
    on_the_page("CUDA_VISIBLE_DEVICES=0 python", said)
    for _, *words in again:
        done = subprocess.run(
            [sys.executable, "-m", "unhang", *words], cwd=tmp_path, env=environment(tmp_path),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout.strip()) == (0, SEES[words[1]]), done.stderr
