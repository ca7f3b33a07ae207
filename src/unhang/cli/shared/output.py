"""Where the verdict of every judging command goes: format, file, colours, exit code.

Commands call `add_report_arguments` and `emit`; they print nothing else on stdout. What a report
says is `unhang.reports`' business.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unhang._version import __version__
from unhang.errors import OutputError, UsageError
from unhang.wording import printable

if TYPE_CHECKING:
    from unhang.case import Case
    from unhang.casedir.place import Place
    from unhang.picture import Picture
    from unhang.report import Report
    from unhang.reports import Look

EXIT_HEALTHY, EXIT_PROBLEM, EXIT_INSUFFICIENT = 0, 1, 3

FORMATS = ("text", "json", "markdown", "html", "brief-json", "jsonl", "github", "sarif", "junit")
DRAWINGS = ("dot", "perfetto")
"""Formats of calls: for commands that read dumps."""

_BY_SUFFIX = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".md": "markdown",
    ".html": "html",
    ".htm": "html",
    ".sarif": "sarif",
    ".xml": "junit",
}
_INPUTS = ("paths", "log", "trace", "core", "report", "ras")
"""Arguments of commands that name files to read."""

_MOST_SAID = 240
_WIDTHS = range(40, 401)
_WIDTH_OF_A_PIPE, _WIDEST_OF_ITSELF = 80, 120


@dataclass(frozen=True, slots=True)
class LookOptions:
    """What was asked of the page's looks.

    Attributes:
        width: Columns; None for what the output has.
        no_color: No colours, whatever the output is.
        full: The whole report.
        output: The file that it goes to; None for stdout.
    """

    width: int | None
    no_color: bool
    full: bool = True
    output: str | None = None


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Where a verdict goes, and how it looks there.

    Attributes:
        format: One of `FORMATS` or `DRAWINGS`, or of the command's own.
        output: The file that -o names.
        look: Of a page for people.
        command: The command's name.
        case: The case that the report is also saved in.
        inputs: Files that were named to be read.
        fail_on: "any" or "cause", as for `exit_code`.
        history: Directories of earlier cases.
    """

    format: str
    output: str | None
    look: LookOptions
    command: str = ""
    case: Path | None = None
    inputs: tuple[str, ...] = ()
    fail_on: str = "any"
    history: tuple[Path, ...] = ()

    @property
    def is_prose(self) -> bool:
        """Whether a page of the command's own can follow the report."""
        return self.format in ("text", "markdown")


def look_options(args: argparse.Namespace) -> LookOptions:
    """What `add_look_arguments` has added, as a value."""
    full, output = getattr(args, "verbose", True), getattr(args, "output", None)
    return LookOptions(args.width, args.no_color, full, output)


def _directory(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"--history {path} is not a directory", "Name one in which cases lie.")
    return path


def report_options(args: argparse.Namespace) -> ReportOptions:
    """What `add_report_arguments` has added, as a value: made once, and handed on."""
    named = [getattr(args, name, None) for name in _INPUTS]
    return ReportOptions(
        format=args.format or _format_of_name(args.output),
        output=args.output,
        look=look_options(args),
        command=getattr(args, "command", ""),
        case=getattr(args, "case", None),
        inputs=tuple(str(path) for paths in named if isinstance(paths, list) for path in paths),
        fail_on=getattr(args, "fail_on", "any"),
        history=tuple(map(_directory, getattr(args, "history", ()))),
    )


def _format_of_name(output: str | None) -> str:
    return _BY_SUFFIX.get(Path(output).suffix.lower(), "text") if output else "text"


def add_report_arguments(
    parser: argparse.ArgumentParser, more: tuple[str, ...] = (), *, case: bool = True
) -> None:
    """Add --format, -o, --case, --width and --no-color; `report_options` reads them.

    Args:
        parser: The command's.
        more: Formats of this command alone, which it writes itself.
        case: Whether the verdict can be saved in a case, for `diagnose` to read.
    """
    group = parser.add_argument_group("output")
    group.add_argument(
        "--format",
        choices=(*FORMATS, *more),
        help="default: text, or by the ending of the name given with -o",
    )
    group.add_argument(
        "-o", "--output", metavar="FILE", help="write the report to FILE instead of the terminal"
    )
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print the whole report, not only the main parts",
    )
    if case:
        group.add_argument(
            "--case",
            type=_case_place,
            metavar="DIR",
            help="also save the report in this case, or a new one: unhang diagnose DIR reads it",
        )
    add_look_arguments(group)


def _case_place(text: str) -> Path:
    """The directory of --case, looked at before the command does its work."""
    from unhang.casedir.reports import check_place

    path = Path(text)
    check_place(path)
    return path


def add_look_arguments(group: argparse._ArgumentGroup) -> None:
    """Add --no-color and --width; `look_options` reads them."""
    group.add_argument("--no-color", action="store_true", help="also: set NO_COLOR")
    group.add_argument("--width", type=int, metavar="N", help="width of the text in columns")


def emit(
    report: Report,
    options: ReportOptions,
    case: Case | None = None,
    below: str = "",
    place: Place | None = None,
) -> int:
    """Draw the report where the options ask for it and return the command's exit code.

    Args:
        report: The verdict.
        options: Where it goes, and how it looks.
        case: For formats that show more than the verdict.
        below: A page of the command's own, after the report; of the same format.
        place: Where the evidence lies, for the commands that help next.

    Raises:
        UsageError: If the width is out of bounds.
        OutputError: If the file or the case cannot be written.
    """
    from unhang import reports
    from unhang.casedir.place import Place
    from unhang.context.around import with_surroundings

    if not report.tool_version:
        report = replace(report, tool_version=__version__)
    report = reports.with_steps(report, case, place or Place())
    if place is not None and place.folder:
        report = with_surroundings(report, Path(place.folder), options.history)
    keep(report, options)
    check_is_no_input(options.output, options.inputs)
    look, name = look_of(options.look, sys.stdout, os.environ), options.format
    page = reports.render(name, report, case, look, _picture(name, report, case))
    deliver(f"{page}\n{below}" if below else page, options.output)
    if options.output and Path(options.output).is_file():
        where = printable(options.output)
        said = f"{report.status.upper()}  {printable(report.summary, _MOST_SAID)}"
        print(f"unhang: {said} (written to {where})", file=sys.stderr)
    return exit_code(report, options.fail_on)


def _picture(name: str, report: Report, case: Case | None) -> Picture | None:
    """What the format draws in addition to words, if anything."""
    from unhang import reports

    if case is None or name not in reports.PICTURED:
        return None
    from unhang.analysis.picture import picture_of

    return picture_of(case, report, every=name == "perfetto")


def keep(report: Report, options: ReportOptions) -> None:
    """Save the report in the case that --case names, if it names one.

    Raises:
        UsageError: It is no longer a case.
        OutputError: It cannot be written.
    """
    if options.case is None:
        return
    from unhang import reports
    from unhang.casedir.reports import save_report

    path = save_report(options.case, options.command, reports.render("json", report), time.time())
    print(f"unhang: the report is in {printable(str(path))}", file=sys.stderr)


def exit_code(report: Report, fail_on: str = "any") -> int:
    """Return 0 (nothing wrong found), 1 (a problem) or 3 (not enough evidence).

    Args:
        report: The verdict.
        fail_on: With "cause", a job that is merely slow passes; with "any" it does not.
    """
    if report.status == "insufficient":
        return EXIT_INSUFFICIENT
    if report.status == "problem" or (report.status == "slow" and fail_on == "any"):
        return EXIT_PROBLEM
    return EXIT_HEALTHY


def look_of(options: LookOptions, stream: TextIO, environ: Mapping[str, str]) -> Look:
    """Find out what the page may use: a file gets no colours, a pipe 80 columns."""
    from unhang.reports import Look

    if options.width is not None and options.width not in _WIDTHS:
        raise UsageError(
            f"--width {options.width} is out of bounds",
            f"Use {_WIDTHS.start} to {_WIDTHS.stop - 1} columns.",
        )
    terminal = stream.isatty() and not options.output
    width = _WIDTH_OF_A_PIPE
    if terminal or "COLUMNS" in environ:
        width = min(shutil.get_terminal_size().columns, _WIDEST_OF_ITSELF)
    plain = options.no_color or environ.get("NO_COLOR") or environ.get("TERM") == "dumb"
    forced = bool(environ.get("FORCE_COLOR")) and not options.output
    encoding = "utf-8" if options.output else stream.encoding
    return Look(
        width=options.width or max(width, _WIDTHS.start),
        color=(terminal or forced) and not plain,
        unicode="utf" in encoding.lower(),
        full=options.full,
    )


def check_is_no_input(output: str | None, inputs: Iterable[str], *, below: bool = False) -> None:
    """Refuse to replace what was named to be read: evidence is lost only once.

    Args:
        output: What -o names, if anything; it need not be there.
        inputs: The files and directories that are read; what is no path is passed over.
        below: Whether a file within one of the directories is refused too.

    Raises:
        OutputError: The file is one of them.
    """
    if not output or not os.path.isfile(output):  # noqa: PTH113 - no error for odd names
        return
    target = Path(output).resolve()
    for each in inputs:
        path = Path(each).resolve()
        if path == target or (below and path in target.parents):
            raise OutputError(
                f"{output} exists and is input, from {each}",
                "Name another file with -o: unhang never replaces its input.",
            )


def deliver(text: str | bytes, path: str | None) -> None:
    """Write a document to a file that the user named, or a text to stdout.

    A file of that name is replaced, as asked. Replaced whole or not at all.
    """
    if path is None:
        sys.stdout.write(text if isinstance(text, str) else text.decode("utf-8", "replace"))
        sys.stdout.flush()
        return
    data = text.encode("utf-8") if isinstance(text, str) else text
    target = Path(path)
    try:
        if target.is_dir():
            raise OutputError(f"{path} is a directory", "Name a file in it.")
        _replace(target, data)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}",
            "Name another place with -o, or leave -o out to read it here.",
        ) from error


def _replace(target: Path, data: bytes) -> None:
    from unhang.casedir.reports import keep_private

    if target.exists() and not target.is_file():  # /dev/stdout, a FIFO: written, not replaced
        target.write_bytes(data)
        return
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        keep_private(part, target)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
