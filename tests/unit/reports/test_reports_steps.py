"""The commands that help after an error of a kernel: the job's own, where its run has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.casedir.place import Place
from unhang.report import Finding, Report
from unhang.reports.steps import next_steps
from unhang.run.incident.judging import _command_of


def report_of(code: str) -> Report:
    """A verdict with one cause."""
    found = Finding(id="f1", code=code, role="cause", confidence="high", summary="It failed.")
    return Report(status="problem", summary="It failed.", findings=(found,))


def again(code: str, *command: str) -> list[str]:
    """The commands that run the job again."""
    steps = next_steps(report_of(code), None, Place(command=command))
    return [step.command for step in steps if step.command.startswith("unhang run")]


@pytest.mark.parametrize("told", [("--nproc-per-node", "8"), ("--nproc_per_node=8",)])
def test_on_one_gpu_there_is_one_rank(told: tuple[str, ...]) -> None:
    """The others would find no GPU."""
    blocking, on_cpu, one = again("UH779", "torchrun", *told, "my train.py")
    assert blocking == f"unhang run --blocking -- torchrun {' '.join(told)} 'my train.py'"
    assert on_cpu == blocking.replace("--blocking", "--on-cpu")
    alone = " ".join(told).replace("8", "1")
    assert one == f"unhang run --one-gpu -- torchrun {alone} 'my train.py'"


def test_only_errors_of_kernels_and_known_commands() -> None:
    """Nothing is made up, and nothing that a terminal would obey is printed."""
    assert again("UH779") == []
    assert again("UH106", "python", "train.py") == []
    assert again("UH779", "python", "a\x1b[2Jb") == []


def test_a_command_that_held_a_secret_is_not_advised(tmp_path: Path) -> None:
    """It would not run as printed."""
    manifest = tmp_path / "manifest.json"
    assert _command_of(tmp_path) == ()
    manifest.write_text('{"job": {"command": ["python", "train.py"]}}')
    assert _command_of(tmp_path) == ("python", "train.py")
    manifest.write_text('{"job": {"command": ["python", "--api-key", "<removed>"]}}')
    assert _command_of(tmp_path) == ()
