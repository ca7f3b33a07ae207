"""What may happen to `unhang run` while it works: full disks, jobs that end, impatient people."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from needs import needs_torch
from ports import free_port
from run_jobs import PATIENCE_S, PROGRAM, UNHANG, environment, launch, who

pytestmark = needs_torch

MOUNT = 'mount -t tmpfs -o "$0" none unhang-cases && exec "$@"'


@pytest.mark.debian("unshare")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [("size=512k", "No space left on device"), ("ro", "Read-only file system")],
)
def test_a_place_that_takes_nothing_gives_way_to_the_next(
    tmp_path: Path, options: str, sentence: str
) -> None:
    """Found out when the case is made; the evidence goes to the temporary directory, whole."""
    for name in ("unhang-cases", "tmp"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", MOUNT, options, *UNHANG, "--",
         sys.executable, str(PROGRAM), "raises", "2", str(free_port())],
        cwd=tmp_path, env={**environment(tmp_path), "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert f"{sentence}; trying elsewhere" in done.stderr, done.stderr
    (case,) = (tmp_path / "tmp").glob("unhang-cases-*/*")
    assert f"the evidence is in {case.relative_to(tmp_path)}" in done.stderr
    assert json.loads((case / "report.json").read_text())["findings"][0]["culprits"] == [1]
    assert who(case / "dumps" / "gloo" / "rank_1")["rank"] == 1


def test_a_job_that_ends_during_the_collection_is_let_go(tmp_path: Path) -> None:
    """What had come is kept, what had not is said, and the exit code is the job's."""
    outcome = launch(tmp_path, "leaves", "--hang-after", "4", ranks=2)
    assert outcome.code == 128 + signal.SIGTERM, outcome.said
    assert "Traceback" not in outcome.said
    for rank in outcome.manifest["ranks"].values():
        assert {"dump", "stacks"} <= rank["came"].keys() | rank["missing"].keys()
    (node,) = outcome.manifest["nodes"]
    assert node["ending"]["exit_code"] == outcome.code


def test_ctrl_c_during_the_collection_ends_the_job_and_keeps_the_case(tmp_path: Path) -> None:
    """The whole foreground group gets it; a second one is not needed."""
    log = tmp_path / "log"
    command = [*UNHANG, "--hang-after", "4", "--", sys.executable, str(PROGRAM), "skip", "2",
               str(free_port())]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "collecting evidence" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGINT, log.read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    (case,) = (tmp_path / "unhang-cases").iterdir()
    manifest = json.loads((case / "manifest.json").read_text())
    assert manifest["nodes"][0]["ending"]["exit_code"] == 128 + signal.SIGINT
    assert "watching failed" not in log.read_text()
    status = json.loads((case / "report.json").read_text())["status"]
    last = log.read_text().strip().splitlines()[-1]
    assert last.startswith(f"unhang: {status.upper()}  ")
    assert last.endswith(f"case: {case.relative_to(tmp_path)})")
