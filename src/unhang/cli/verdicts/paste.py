"""Judge any text: a log, stacks of any tool, what NCCL's RAS printed, or an issue that holds all.

The text is taken apart, each part is read by its own reader, and all of them are judged together.
The verdict says which part it rests on, and what one thing to paste next.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.output import ReportOptions, add_report_arguments, emit, report_options
from unhang.errors import InputError, UsageError

if TYPE_CHECKING:
    from unhang.model import Note
    from unhang.pasted import Paste
    from unhang.report import Report

EXAMPLES = """unhang paste issue.md
unhang paste rank0-stack.txt rank1-stack.txt train.log
unhang paste what-the-user-sent/
py-spy dump --pid 4711 | unhang paste -
xclip -o | unhang paste - --format markdown
unhang paste issue.md --format json"""

STDIN = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang paste`."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="FILE",
        help="texts, folders or archives of them, globs, or - for stdin",
    )
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Take apart, judge, show."""
    return judge(args.paths, report_options(args))


def judge(names: Sequence[str], options: ReportOptions) -> int:
    """Judge texts by their names."""
    from unhang.pasted import paste_of

    return show(paste_of(*_texts(names)), options)


def instead(
    names: Sequence[str], lacks: str, options: ReportOptions, *, beside_logs: bool = False
) -> int | None:
    """Judge files that another command was given, where they hold what that does not read.

    Args:
        names: As they were given: files, and folders of texts.
        lacks: What the command reads and did not find.
        options: Where the verdict goes.
        beside_logs: Logs alone are no reason.

    Returns:
        The exit code; None where these files hold nothing else, or are no texts.
    """
    from unhang.errors import UnhangError
    from unhang.pasted import paste_of
    from unhang.pasted.texts import part_phrase

    if STDIN in names:
        return None
    try:
        paste = paste_of(*_texts(names))
    except UnhangError:
        return None
    if not (paste.case.samples or paste.case.ras if beside_logs else paste.holds_evidence):
        return None
    found = " and ".join(part_phrase(paste, kind) for kind in paste.alone)
    print(f"unhang: no {lacks} in {names[0]}: judged by {found}, as unhang paste", file=sys.stderr)
    return show(paste, options)


def show(paste: Paste, options: ReportOptions) -> int:
    """Judge what was read."""
    from dataclasses import replace

    from unhang.analysis import diagnose
    from unhang.model import Note
    from unhang.reports.content.paste_next import paste_next

    report = diagnose(paste.case)
    told = {"rests on": _rests_on(paste, report), "paste next": paste_next(paste.case, report)}
    lines = {name: text for name, text in told.items() if text}
    notes = tuple(Note("info", "paste", f"{name}: {text}") for name, text in lines.items())
    report = replace(report, notes=(*report.notes, *notes))
    below = "".join(f"{name:11}{text}\n" for name, text in lines.items())
    return emit(report, options, paste.case, below=below if options.is_prose else "")


def _texts(names: Sequence[str]) -> tuple[dict[str, bytes], list[Note]]:
    """What is named, by path, and what of a folder is not read."""
    from unhang.globs import expanded
    from unhang.ingest.discover.sniff import is_recorded
    from unhang.pasted import MOST_BYTES, read_pasted, texts_of_archive, texts_of_folder
    from unhang.wording import shell_word

    if names.count(STDIN) > 1:
        raise UsageError("standard input can be read once", "Give - once.")
    texts: dict[str, bytes] = {}
    notes: list[Note] = []
    for name in names:
        if name == STDIN:
            texts["standard input"] = sys.stdin.buffer.read(MOST_BYTES)
            continue
        for path in expanded(name, "Give files, folders, globs, or - for pasted text."):
            found = Path(path)
            inside = texts_of_folder(found) if found.is_dir() else texts_of_archive(found)
            if inside is not None:
                texts.update(inside[0])
                notes += inside[1]
                continue
            text = texts[str(path)] = read_pasted(str(path))
            if is_recorded(text):
                judged = f"unhang diagnose {shell_word(str(path))}"
                raise InputError(f"{path} is a recorder's dump, and no text", judged)
    return texts, notes


def _rests_on(paste: Paste, report: Report) -> str:
    """The part whose verdict alone is the same; all of them where none has it."""
    from unhang.analysis import diagnose
    from unhang.pasted.texts import part_phrase

    if len(paste.alone) == 1:
        return part_phrase(paste, next(iter(paste.alone)))
    same = [kind for kind, case in paste.alone.items() if _is_same(diagnose(case), report)]
    return " and ".join(part_phrase(paste, kind) for kind in same or paste.alone)


def _is_same(one: Report, other: Report) -> bool:
    """Whether the first cause, and who it names, are the same."""
    firsts = [next(iter(report.causes), None) for report in (one, other)]
    named = [(first.code, first.culprits) if first else None for first in firsts]
    return one.status == other.status and named[0] == named[1]
