"""`unhang doctor gpu comm` on a real GPU, where there is one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.gpu
def test_a_real_gpu_is_asked_and_tested() -> None:
    """The management library answers, and one rank per GPU passes every step on NCCL."""
    command = [sys.executable, "-m", "unhang", "doctor", "gpu", "comm", "--backend", "nccl"]
    done = subprocess.run(
        [*command, "--format", "json"], capture_output=True, text=True, check=False, timeout=600
    )
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    notes = " ".join(note["text"] for note in report["notes"])
    assert "no GPU to check" not in notes
    assert "on nccl passed" in notes
