"""Real scripts rehearsed with real torch: right verdicts, right lines, no false alarm."""

from __future__ import annotations

import csv
import json
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from needs import needs_torch

from unhang.isolated import python_command

pytestmark = needs_torch

PROGRAMS = Path(__file__).parent / "programs" / "rehearse"
_SENT = r"SEND|RECV"


def rehearse(*words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    command = python_command("unhang", "rehearse", "--format", "json", *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def line_of(program: str, fault: str) -> int:
    """Where the program says that its fault is."""
    return line_with(program, f"the fault: {fault}")


def line_with(program: str, comment: str) -> int:
    """Where the program has a comment."""
    lines = (PROGRAMS / program).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))


@pytest.mark.parametrize(
    ("program", "fault", "slugs", "culprits"),
    [
        ("data_parallel.py", "save", {"op-mismatch", "shape-mismatch", "skipped-call"}, [0]),
        ("data_parallel.py", "uneven", {"op-mismatch", "shape-mismatch", "skipped-call"}, [2]),
        ("data_parallel.py", "root", {"op-mismatch"}, [3]),
        ("exchanges.py", "ring", {"p2p-cycle"}, []),
        ("exchanges.py", "left-over", {"p2p-unmatched"}, []),  # either side may be wrong
        ("exchanges.py", "key", {"never-joined"}, [1]),
        ("sharded.py", "half", {"wait-cycle"}, []),
    ],
)
def test_a_fault_is_found_with_its_line(
    program: str, fault: str, slugs: set[str], culprits: list[int]
) -> None:
    """Whatever torch's layers lie between."""
    script = str(PROGRAMS / program)
    code, report = rehearse("--ranks", "4", "--", sys.executable, script, fault)
    cause = next(f for f in report["findings"] if f["role"] == "cause")
    assert (code, report["status"]) == (1, "problem")
    assert cause["slug"] in slugs
    assert cause["culprits"] == culprits
    at = {site["line"] for site in cause["sites"] if site["file"].endswith(program)}
    assert line_of(program, fault) in at


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("data_parallel.py", ("--ranks", "4")),
        ("exchanges.py", ("--ranks", "3")),
        ("sharded.py", ("--ranks", "4", "--nodes", "2")),
        ("spawning.py", ()),
        ("starting.py", ()),
        ("saving.py", ("--ranks", "2")),
    ],
)
def test_healthy_programs_are_proved(program: str, words: tuple[str, ...]) -> None:
    """Every call met, and the script's own assertions about values hold."""
    script = str(PROGRAMS / program)
    code, report = rehearse(*words, "--", sys.executable, script, "none")
    assert (code, report["status"]) == (0, "healthy"), report["summary"]
    assert report["summary"].startswith("Every call met: ")


@pytest.mark.parametrize(("fault", "status"), [("none", "healthy"), ("log", "problem")])
def test_a_model_that_does_not_fit_is_rehearsed_as_shapes(fault: str, status: str) -> None:
    """Its calls meet or not as they would; the line that reads a value is told."""
    script = str(PROGRAMS / "large.py")
    words = ("--shapes", "--ranks", "4", "--", sys.executable, script, fault)
    _, report = rehearse(*words)
    assert report["status"] == status, report["summary"]
    if fault == "none":
        assert f"large.py:{line_with('large.py', 'what is read is made up')}" in report["summary"]
        return
    cause = next(f for f in report["findings"] if f["role"] == "cause")
    assert cause["culprits"] == [3]
    at = {site["line"] for site in cause["sites"] if site["file"].endswith("large.py")}
    assert line_of("large.py", fault) in at


def test_a_shape_whose_values_are_needed_is_no_fault() -> None:
    """Of elements that a mask chooses nothing tells how many there are."""
    script = str(PROGRAMS / "large.py")
    words = ("rehearse", "--shapes", "--ranks", "4", "--", sys.executable, script, "mask")
    done = subprocess.run(
        python_command("unhang", *words), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stdout
    assert f"has none here at large.py:{line_of('large.py', 'mask')}" in done.stderr


def test_an_interpreter_without_torch_is_said(tmp_path: Path) -> None:
    """In one sentence, with a hint."""
    script = tmp_path / "train.py"
    script.touch()
    fake = tmp_path / "python3"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    fake.chmod(0o755)
    command = python_command("unhang", "rehearse", "--", str(fake), str(script))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "torch cannot be imported" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reproducer_hangs_as_the_case_did(tmp_path: Path) -> None:
    """On Gloo, with two ranks of the four that the case had."""
    dumps = Path(__file__).parents[2] / "examples" / "never-joined" / "dumps"
    script = tmp_path / "repro.py"
    command = python_command("unhang", "reproduce", str(dumps), "-o", str(script))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 call of 2 ranks; tried: it hangs in the same way" in done.stderr
    assert "# Hangs: torchrun --nproc-per-node 2 repro.py" in script.read_text()


@pytest.mark.parametrize(("backend", "device", "code"), [("gloo", "cpu", 1), ("nccl", "cuda", 0)])
def test_a_list_that_is_too_long_is_refused_where_torch_refuses_it(
    tmp_path: Path, backend: str, device: str, code: int
) -> None:
    """ProcessGroupNCCL takes it, as torch 2.13 has shown before a stand-in for NCCL."""
    script = tmp_path / "gathers.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        f"dist.init_process_group('{backend}')\n"
        f"one = torch.zeros(4, device='{device}')\n"
        "dist.all_gather([one.clone() for _ in range(3)], one)\n"
    )
    assert rehearse("--ranks", "2", "--", sys.executable, str(script))[0] == code


@pytest.mark.parametrize(("bound", "code"), [(", device_id=torch.device('cuda', 0)", 1), ("", 0)])
def test_a_group_that_some_ranks_make_blocks_where_torch_splits_a_communicator(
    tmp_path: Path, bound: str, code: int
) -> None:
    """Which it does, on every rank, where the default group was bound to a device."""
    script = tmp_path / "groups.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        f"dist.init_process_group('nccl'{bound})\n"
        "if dist.get_rank() < 2:\n"
        "    dist.new_group([0, 1])\n"
        "dist.barrier()\n"
    )
    got, report = rehearse("--ranks", "3", "--", sys.executable, str(script))
    lines = {site["line"] for finding in report["findings"] for site in finding["sites"]}
    assert (got, 4 in lines) == (code, bool(code)), report["summary"]


TEST = """\
import pytest
import torch.distributed as dist
import torch


@pytest.fixture
def group():
    dist.init_process_group("nccl")
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.rehearse(ranks=2)
@pytest.mark.parametrize("extra", [False, True], ids=["same", "extra"])
def test_calls(group, extra):
    total = torch.ones(2, device="cuda")
    dist.all_reduce(total)
    assert total[0].item() == 2
    if extra and dist.get_rank() == 0:
        dist.all_reduce(total)
"""


def test_a_marked_test_runs_on_all_ranks(tmp_path: Path) -> None:
    """With its fixture and its parameter; pytest fails the one whose calls do not meet."""
    (tmp_path / "test_it.py").write_text(TEST)
    plugins = ("-p", "no:cacheprovider", "-p", "unhang.integrations.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(tmp_path), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "FAILED test_it.py::test_calls[extra]" in done.stdout
    assert "test_it.py:20" in done.stdout  # where rank 0 waits


def test_pipelining_schedules_send_what_their_own_plans_say(tmp_path: Path) -> None:
    """Each of torch's schedules is healthy, with the sends and receives of its CSV."""
    script, case = str(PROGRAMS / "pipelines.py"), tmp_path / "case"
    code, report = rehearse(
        "--ranks", "2", "--case", str(case), "--", sys.executable, script, str(tmp_path)
    )
    assert (code, report["status"]) == (0, "healthy"), report["summary"]
    planned, made = {}, {}
    for plan in tmp_path.glob("*.csv"):
        for rank, row in enumerate(csv.reader(plan.open())):
            kinds = ["send" if "SEND" in each else "recv" for each in row if re.search(_SENT, each)]
            planned[plan.stem, rank] = Counter(kinds)
    for rank in range(2):
        dump = (case / "dumps" / "nccl" / f"rank_{rank}").read_bytes()
        entries = pickle.loads(dump)["entries"]  # noqa: S301 - just made here
        for entry in entries:
            if entry["is_p2p"] and entry["input_sizes"] == [
                [1, 4]
            ]:  # not what stages are told first
                kind = entry["profiling_name"].partition(":")[2].partition(" ")[0]
                made.setdefault((entry["process_group"][1], rank), Counter())[kind] += 1
    assert len(planned) == 10
    single = {
        (name, rank): Counter(send=4, recv=4) for name in ("GPipe", "1F1B") for rank in (0, 1)
    }
    assert made == planned | single
