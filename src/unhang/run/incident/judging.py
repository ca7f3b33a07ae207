"""Judges a case in a process of its own, isolated from the working directory (`unhang.isolated`).

Reading dumps and reasoning need numpy and memory, neither of which the supervisor of somebody's
job should hold; and if judging fails, the job must not notice. It writes report.json, report.txt
and report.html into the case, and answers with a `Verdict` on its standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unhang._version import __version__
from unhang.casedir.manifest import save_file
from unhang.casedir.place import place_in
from unhang.errors import UnhangError
from unhang.isolated import python_command
from unhang.run.incident.verdict import Verdict, sent, taken, verdict_of
from unhang.telltale import REMOVED

if TYPE_CHECKING:
    from unhang.case import Case
    from unhang.report import Report

__all__ = ["judge"]

PATIENCE_S = 300.0


def judge(case: Path, look: Sequence[str], in_time: Callable[[], bool]) -> Verdict:
    """Have a case judged.

    Args:
        case: The case directory.
        look: Options for the text: `--width N`, `--color`, `--ascii`.
        in_time: False once somebody is impatient: then it is given up.
    """
    command = python_command("unhang.run.incident.judging", str(case), *look)
    with subprocess.Popen(  # noqa: S603 - our own module
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        for _ in range(int(PATIENCE_S / 0.25)):
            try:
                out, err = process.communicate(timeout=0.25)
            except subprocess.TimeoutExpired:
                if not in_time():
                    break
                continue
            return _answer(case, out, err)
        process.kill()
    return Verdict(f"the verdict was not waited for: unhang diagnose {case}", case=case)


def _answer(case: Path, out: bytes, err: bytes) -> Verdict:
    """What the process answered, or the last that it said where it could not."""
    try:
        return taken(out, case)
    except ValueError:
        last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no reason given"]
        return Verdict(f"no verdict: {last[0]}\n", case=case)


# ------------------------------------------------------------------ the process


def main(words: Sequence[str] | None = None) -> int:
    """Judge the case that the command line names."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    parser = argparse.ArgumentParser(prog="unhang.run.incident.judging", description=__doc__)
    parser.add_argument("case", type=Path)
    parser.add_argument("--width", type=int, default=80)
    parser.add_argument("--color", action="store_true")
    parser.add_argument("--ascii", action="store_true")
    args = parser.parse_args(words)
    answer = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # whatever else is printed is no answer
    try:
        verdict = _judged(args)
    except UnhangError as error:
        verdict = Verdict(f"no verdict: {error.message}\n")
    with answer:
        answer.write(sent(verdict))
    return 0


def _judged(args: argparse.Namespace) -> Verdict:
    """Read the case, judge it, and save the report in it."""
    from unhang import reports
    from unhang.analysis import diagnose
    from unhang.ingest import load

    folder: Path = args.case
    case = load([folder])
    report = replace(diagnose(case), tool_version=__version__)
    place = replace(place_in(folder), command=_command_of(folder))
    report = reports.with_steps(report, case, place)
    _save(folder, report, case)
    shown = reports.Look(args.width, args.color, not args.ascii, full=False)
    return verdict_of(report, reports.render("text", report, case, shown), _looked_at(folder))


def _looked_at(case: Path) -> list[tuple[int, int]] | None:
    """First and last of the ranks that nodes have reported; None where nothing tells."""
    try:
        manifest = json.loads((case / "manifest.json").read_text(encoding="utf-8"))
        return [(int(first), int(last)) for first, last in manifest["looked_at"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _command_of(folder: Path) -> tuple[str, ...]:
    """The job's command as our own manifest has it; none where a secret was taken out of it."""
    try:
        words = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["job"]["command"]
        told = tuple(str(word) for word in words)
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return () if any(REMOVED in word for word in told) else told


def _save(folder: Path, report: Report, case: Case) -> None:
    """Write the report in every format; a full disk costs the files, not the verdict."""
    from unhang import reports
    from unhang.analysis.picture import picture_of

    for name, form in (("report.json", "json"), ("report.txt", "text"), ("report.html", "html")):
        picture = picture_of(case, report) if form in reports.PICTURED else None
        try:
            page = reports.render(form, report, case, picture=picture)
            save_file(folder / name, page.encode())
        except OSError as error:
            print(f"{name} was not written: {error.strerror}", file=sys.stderr)  # noqa: T201 - same


if __name__ == "__main__":
    sys.exit(main())
