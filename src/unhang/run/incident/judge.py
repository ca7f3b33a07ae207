"""The process that judges a case for the supervisor, and answers with a `Verdict`.

It writes report.json, report.txt and report.html into the case; the answer is one line of JSON on
its standard output, on which nothing else is printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unhang import reports
from unhang._version import __version__
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.case import Case
from unhang.casedir.contents import Contents, contents_of
from unhang.casedir.manifest import save_file
from unhang.casedir.place import place_in
from unhang.context.around import with_surroundings
from unhang.errors import UnhangError
from unhang.ingest import load
from unhang.report import Report
from unhang.run.incident.verdict import Verdict, sent, verdict_of


def main(words: Sequence[str] | None = None) -> int:
    """Judge the case that the command line names."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    parser = argparse.ArgumentParser(prog="unhang.run.incident.judge", description=__doc__)
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
    folder: Path = args.case
    case = load([folder])
    report = replace(diagnose(case), tool_version=__version__)
    told = contents_of(folder) or Contents()
    place = replace(place_in(folder), command=told.command)
    report = with_surroundings(reports.with_steps(report, case, place), folder)
    _save(folder, report, case)
    look = reports.Look(args.width, args.color, not args.ascii, full=False)
    here = replace(place_in(_from_here(folder)), command=told.command)
    shown = reports.with_steps(report, case, here)
    return verdict_of(report, reports.render("text", shown, case, look), told.looked_at)


def _from_here(folder: Path) -> Path:
    """The case as a command that is typed here may name it; files of it are read anywhere."""
    try:
        return folder.relative_to(Path.cwd())
    except (ValueError, OSError):
        return folder


def _save(folder: Path, report: Report, case: Case) -> None:
    """Write the report in every format; a full disk costs the files, not the verdict."""
    for name, form in (("report.json", "json"), ("report.txt", "text"), ("report.html", "html")):
        picture = picture_of(case, report) if form in reports.PICTURED else None
        try:
            page = reports.render(form, report, case, picture=picture)
            save_file(folder / name, page.encode())
        except OSError as error:
            print(f"{name} was not written: {error.strerror}", file=sys.stderr)  # noqa: T201 - read by the supervisor


if __name__ == "__main__":
    sys.exit(main())
