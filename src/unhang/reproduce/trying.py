"""Run a reproducer once: does it hang on Gloo as the case did, fail, or does a rehearsal show it?

Gloo ends some disagreements by an error where NCCL hangs: that is as good, if the same is said of
the calls. Others it lets pass. A rehearsal knows all, so it is asked where Gloo says other things.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from unhang.analysis import diagnose
from unhang.errors import UnhangError
from unhang.ingest import load
from unhang.isolated import python_command
from unhang.rehearse.commandline import RehearsedJob
from unhang.rehearse.rehearsal import rehearsed
from unhang.rehearse.wishes import RehearsalWishes
from unhang.report import Report
from unhang.reproduce.playing import Judgement, judgement_of, judgements_of

MOST_TRIED: Final = 16
"""Ranks of a run here: each is a process with torch in it, of some 200 MB."""
_LIMIT_S: Final = 180.0
_STUCK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What a run of a reproducer showed.

    Attributes:
        how: "gloo" where it hangs there, "error" where Gloo ends it and the calls are judged alike,
            "rehearsal"; "" where none gave the verdict of the case.
        said: The last verdict, in its words.
    """

    how: str
    said: str


def has_torch() -> bool:
    """Whether this interpreter can run one."""
    return find_spec("torch") is not None


def tried(script: Path, names: tuple[int, ...], wanted: Judgement) -> Trial:
    """Run a script.

    Args:
        script: It.
        names: Which rank of the job each of its ranks is.
        wanted: The verdict that it is to get.
    """
    report = _on_gloo(script, len(names))
    if report is not None and wanted in judgements_of(report, names):
        ended = any(finding.family == "failure" for finding in report.findings)
        if ended or judgement_of(report, names) == wanted:
            return Trial("error" if ended else "gloo", report.summary)
    try:
        job = RehearsedJob(sys.executable, str(script), ranks=len(names))
        with rehearsed(job, RehearsalWishes(limit_s=_LIMIT_S), ()) as (case, _, _place):
            report = diagnose(case)
            agrees = judgement_of(report, names) == wanted
            return Trial("rehearsal" if agrees else "", report.summary)
    except UnhangError as error:
        return Trial("", str(error))


def _on_gloo(script: Path, ranks: int) -> Report | None:
    """The verdict of a run under `unhang run`; None where it left no evidence."""
    with tempfile.TemporaryDirectory(prefix="unhang-reproduce-") as folder:
        case = Path(folder) / "case"
        watched = (
            "run", "--hang-after", str(_STUCK_S), "--grace", "1", "--on-hang", "kill",
            "--no-rank-logs", "--case", str(case), "--",
        )  # fmt: skip
        job = python_command(
            "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(script)
        )
        _run([*python_command("unhang", *watched), *job])
        if not case.is_dir():
            return None
        with contextlib.suppress(UnhangError):
            return diagnose(load([str(case)], world_size=ranks))
        return None


def _run(command: list[str]) -> None:
    """Run to its end, or end it with all that it started."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(  # noqa: S603 - a command line of ours
        command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
