"""Run the hanging jobs under `unhang run`, and read what they leave."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patience import longer_if_busy
from ports import free_port

UNHANG = [sys.executable, "-m", "unhang", "run"]
PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "hanging_jobs.py"
TORCHRUN = Path(sys.executable).parent / "torchrun"
PATIENCE_S = 600


def lines_of(fault: str) -> set[int]:
    """Numbers of the lines at which the culprits of a fault stand."""
    mark = f"# {fault}: here"
    lines = PROGRAM.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(mark)}


@dataclass(frozen=True)
class Outcome:
    """What a run left."""

    code: int
    said: str
    cases: list[Path]

    @property
    def report(self) -> dict[str, Any]:
        """The verdict of the only case."""
        return dict(json.loads((self.only_case / "report.json").read_text()))

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the only case."""
        return dict(json.loads((self.only_case / "manifest.json").read_text()))

    @property
    def only_case(self) -> Path:
        """The case, of which there must be one."""
        assert len(self.cases) == 1, self.said
        return self.cases[0]

    @property
    def cause(self) -> dict[str, Any]:
        """The first finding, which must be a cause."""
        first = self.report["findings"][0]
        assert first["role"] == "cause", self.said
        return dict(first)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a run whose files stay in one folder."""
    runtime = str(folder / "runtime")
    return {**os.environ, "UNHANG_RUNTIME_DIR": runtime, "OMP_NUM_THREADS": "1"}


def launch(
    folder: Path,
    fault: str,
    *options: str,
    ranks: int = 3,
    torchrun: bool = False,
    python: tuple[str, ...] = (),
) -> Outcome:
    """Run a job under `unhang run` in its own folder, to its end."""
    port = free_port()
    command = [sys.executable, str(PROGRAM), fault, str(ranks), str(port)]
    if torchrun:
        command = [str(TORCHRUN), "--nproc-per-node", str(ranks), "--master-port", str(port),
                   *(["--no-python", *python] if python else []), str(PROGRAM), fault]  # fmt: skip
    return run_job(folder, options, command)


def run_job(folder: Path, options: Sequence[str], command: Sequence[str]) -> Outcome:
    """Run a command under `unhang run` in its own folder, to its end."""
    env = environment(folder)
    process = subprocess.run(
        [*UNHANG, *options, "--", *command],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    cases = sorted((folder / "unhang-cases").glob("*"))
    return Outcome(process.returncode, process.stdout, cases)


def kill() -> tuple[str, ...]:
    """Options that end a job which hangs."""
    return ("--hang-after", longer_if_busy(4, 12), "--grace", "0", "--on-hang", "kill")


def who(path: Path) -> dict[str, Any]:
    """What the recorder says of itself in a dump of ours."""
    extra: dict[str, Any] = pickle.loads(path.read_bytes())["unhang"]  # noqa: S301 - our own
    return extra


def state_of(pid: int) -> str:
    """The kernel's letter for a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def moved_on(said: str) -> bool:
    """Whether the supervisor said that the job moves again.

    It sees that at its next look, at the job's end where that comes first, or while it amends.
    A job that ends between two looks has succeeded, and nothing else is said of it.
    """
    words = ("the job moves on", "the job moved on", "gone on since", "the command succeeded")
    return any(text in said for text in words)
