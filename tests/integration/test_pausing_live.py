"""`unhang.breakpoint` and `unhang.print` in a real job of three Gloo ranks without a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from guide_page import on_the_page
from ports import free_port

JOB = """\
import datetime, sys
import torch, torch.distributed as dist
import unhang

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
secret_value = 40 + dist.get_rank()
unhang.breakpoint(rank=1)
total = torch.ones(1)
dist.all_reduce(total)
unhang.print(f"first {int(total)}\\nsecond")
timeout = dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout
assert timeout == datetime.timedelta(seconds=600), timeout
dist.destroy_process_group()
"""


def start(job: Path, rank: int, port: int) -> subprocess.Popen[str]:
    """One rank, without a terminal, as under torchrun."""
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "PYTHONUNBUFFERED": "1"}  # fmt: skip
    return subprocess.Popen([sys.executable, str(job)], env=environment, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)  # fmt: skip


def attach(address: str, token: str, typed: str) -> str:
    """Talk to the stopped rank with unhang attach."""
    command = [sys.executable, "-m", "unhang", "attach", address, token]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=600,
                          check=False)  # fmt: skip
    return done.stdout


def test_one_rank_stops_and_all_go_on(tmp_path: Path) -> None:
    """Its variables can be read with the right token only; then every rank ends as it should."""
    job = tmp_path / "job.py"
    job.write_text(JOB)
    port = free_port()
    ranks = [start(job, rank, port) for rank in range(3)]
    try:
        assert ranks[1].stderr is not None
        for line in ranks[1].stderr:
            if found := re.search(r"unhang attach (\S+) (\S+)", line):
                break
        assert found
        assert "wrong token" in attach(found[1], "0" * 16, "")
        shown = attach(found[1], found[2], "p secret_value\nnext\ncontinue\n")
        assert "41" in shown
        on_the_page("dist.breakpoint(1)", shown)
        for number, rank in enumerate(ranks):
            out, err = rank.communicate(timeout=600)
            assert rank.returncode == 0, err
            assert out == f"[rank{number}]: first 3\n[rank{number}]: second\n"
            if number == 1:
                on_the_page('print(f"{dist', out)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_bad_targets() -> None:
    """No address, nobody there, a PID on a Python that cannot: a sentence and a hint."""
    for words, code in ((["x"], 2), (["127.0.0.1:1", "t"], 3)):
        command = [sys.executable, "-m", "unhang", "attach", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert "hint: " in done.stderr
    if sys.version_info < (3, 14):
        command = [sys.executable, "-m", "unhang", "attach", str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 3
        assert "Python 3.14" in done.stderr
