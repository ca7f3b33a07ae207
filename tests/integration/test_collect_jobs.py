"""Several jobs on one node: their evidence is never one case, and none is lost unsaid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import why_not
from patience import PATIENCE_S

RANK = "import os, sys, time; open(sys.argv[1], 'w').write('.'); time.sleep(3600)"


@pytest.fixture
def own_node() -> list[str]:
    """What runs a shell in a namespace of processes of its own: nobody else's jobs are there."""
    if reason := why_not():
        pytest.skip(reason)
    return ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]


def jobs(folder: Path, ranks: int) -> str:
    """A shell script that starts two jobs of some ranks and waits until all of them run."""
    lines = []
    for port in (1001, 1002):
        for rank in range(ranks):
            env = f"RANK={rank} WORLD_SIZE={ranks} MASTER_PORT={port}"
            fifo = folder / f"ready-{port}-{rank}"
            os.mkfifo(fifo)
            lines.append(f'{env} {sys.executable} -c "{RANK}" {fifo} &')
            lines.append(f"cat {fifo} >/dev/null")
    return "\n".join(lines)


def answer(node: list[str], folder: Path, words: str) -> tuple[int, str, str]:
    """Exit code and output of an unhang command on that node, beside the two jobs."""
    script = f"{jobs(folder, 2)}\n{sys.executable} -m unhang {words}"
    work = folder / "work"
    work.mkdir()
    done = subprocess.run(
        [*node, script],
        cwd=work,
        env={**os.environ, "UNHANG_RUNTIME_DIR": str(folder / "runtime")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_two_jobs_are_shown_and_none_is_collected(own_node: list[str], tmp_path: Path) -> None:
    """As `stacks` and `dump` do: the answer is a table, a hint, and no case."""
    code, out, error = answer(own_node, tmp_path, "collect")
    assert (code, out) == (2, ""), error
    assert "several jobs run there: none was collected" in error
    assert "Choose one with --job ID." in error
    rows = [line.split()[:4] for line in error.splitlines() if line.startswith("local-")]
    assert rows == [["local-1001", "0-1", "of", "2"], ["local-1002", "0-1", "of", "2"]]
    assert not list((tmp_path / "work").rglob("manifest.json"))


def test_the_job_that_is_chosen_is_collected_alone(own_node: list[str], tmp_path: Path) -> None:
    """The case holds its ranks, and the other job's processes are nowhere in it."""
    words = "collect --job local-1002 --only env --case one"
    code, out, error = answer(own_node, tmp_path, words)
    assert (code, error) == (0, ""), error
    assert "ranks 0-1 from 1 node" in out
    case = tmp_path / "work" / "one"
    manifest = json.loads((case / "manifest.json").read_text())
    assert [node["ranks"] for node in manifest["nodes"]] == [[0, 1]]
    assert manifest["job"]["job"] == "local-1002"
    assert "ready-1002-0" in manifest["job"]["command"][-1]
