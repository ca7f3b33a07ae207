"""Has a case judged by a process of its own (`judge.py`), isolated from the working directory.

Reading dumps and reasoning need numpy and memory, and the supervisor of a user's
job should hold neither; and if judging fails, the job must not notice.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from unhang.isolated import python_command
from unhang.run.incident.verdict import Verdict, taken

PATIENCE_S = 300.0
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""Numpy's threads are of no use to it, and a limit of processes would end it as it loads numpy."""


def judge(case: Path, look: Sequence[str], in_time: Callable[[], bool]) -> Verdict:
    """Have a case judged.

    Args:
        case: The case directory.
        look: Options for the text: `--width N`, `--color`, `--ascii`.
        in_time: False once the user is impatient: then it is given up.
    """
    command = python_command("unhang.run.incident.judge", str(case), *look)
    try:
        started = subprocess.Popen(  # noqa: S603 - our own module
            command,
            env={**os.environ, **_ONE_THREAD},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:  # a limit of processes or descriptors: the watch has to go on
        return Verdict(
            f"no verdict: the process that judges cannot be started: {error.strerror}; get it "
            f"with: unhang diagnose {case}\n",
            case=case,
        )
    with started as process:
        for _ in range(int(PATIENCE_S / 0.25)):
            try:
                out, err = process.communicate(timeout=0.25)
            except subprocess.TimeoutExpired:
                if not in_time():
                    break
                continue
            return _answer(case, out, err)
        process.kill()
    return Verdict(f"the verdict is not ready; get it with: unhang diagnose {case}", case=case)


def _answer(case: Path, out: bytes, err: bytes) -> Verdict:
    """What the process answered, or the last that it said where it could not."""
    try:
        return taken(out, case)
    except ValueError:
        last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no reason given"]
        return Verdict(f"no verdict: {last[0]}\n", case=case)
