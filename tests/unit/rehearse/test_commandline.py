"""What starts a job, as a script and a number of ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unhang.errors import UsageError
from unhang.rehearse.commandline import job_of


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.touch()
    return path


@pytest.mark.parametrize(
    ("command", "ranks", "nodes", "words"),
    [
        ("python train.py --lr 1", 0, 1, ("--lr", "1")),
        ("python -u -X dev train.py", 0, 1, ()),
        ("torchrun --nproc-per-node 4 train.py -x", 4, 1, ("-x",)),
        ("torchrun --nproc_per_node=2 --nnodes=2 --rdzv-backend c10d train.py", 4, 2, ()),
        ("torchrun --standalone --nnodes 1:3 --nproc-per-node gpu train.py", 24, 3, ()),
        ("python -m torch.distributed.run --nproc-per-node 3 train.py", 3, 1, ()),
    ],
)
def test_a_command_is_read(command: str, ranks: int, nodes: int, words: tuple[str, ...]) -> None:
    """Options of the launcher are not the script's."""
    job = job_of(command.split(), None, None)
    assert (job.script, job.ranks, job.nodes, job.words) == ("train.py", ranks, nodes, words)


def test_modules_need_no_file() -> None:
    """Whichever way they are named."""
    for command in ("python -m pkg.train a", "torchrun --nproc-per-node 2 -m pkg.train a"):
        job = job_of(command.split(), None, None)
        assert (job.script, job.is_module, job.words) == ("pkg.train", True, ("a",))


def test_options_of_ours_stand_above_the_command() -> None:
    """--ranks and --nodes."""
    job = job_of(["torchrun", "--nproc-per-node", "8", "train.py"], 6, 3)
    assert (job.ranks, job.nodes) == (6, 3)


@pytest.mark.parametrize(
    ("first", "python"),
    [
        ("#!/bin/sh", sys.executable),  # a wrapper tells of no interpreter
        ("#!/usr/bin/env python-of-job", "bin/python-of-job"),
        ("#!{here}/bin/python-of-job", "bin/python-of-job"),
    ],
)
def test_the_python_is_that_of_torchrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, python: str
) -> None:
    """Where its first line names one."""
    (tmp_path / "bin").mkdir()
    for name, line in (("torchrun", first.format(here=tmp_path)), ("python-of-job", "#!/bin/sh")):
        (tmp_path / "bin" / name).write_text(f"{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    job = job_of(["torchrun", "--nproc-per-node", "2", "train.py"], None, None)
    assert job.python == str(tmp_path / python)


@pytest.mark.parametrize(
    ("command", "ranks", "nodes", "says"),
    [
        ("", None, None, "no command"),
        ("srun train.py", None, None, "srun is no launcher"),
        ("python", None, None, "no script"),
        ("python -c pass", None, None, "no script"),
        ("python gone.py", None, None, "no script gone.py"),
        ("torchrun --nproc-per-node 2", None, None, "no script"),
        ("torchrun --nproc-per-node 0 train.py", None, None, "--nproc-per-node 0 starts no rank"),
        ("torchrun --nproc-per-node 90000 train.py", None, None, "90,000 ranks are too many"),
        ("python train.py", 5, 2, "do not share out"),
    ],
)
def test_what_cannot_be_rehearsed_is_said(
    command: str, ranks: int | None, nodes: int | None, says: str
) -> None:
    """In one sentence."""
    with pytest.raises(UsageError, match=says):
        job_of(command.split(), ranks, nodes)
