"""Write the smallest script that hangs as a case did: what a maintainer asks for.

The calls around the divergence become a script for torchrun on the CPU (Gloo): same groups and
order. Calls, ranks and sizes go as long as the verdict stays (same kind, same ranks). The script is
run once before it is written; where there is no torch, it is written without that. Where Gloo ends
by an error what hangs on NCCL, the script is for a rehearsal alone: its header says so and the
exit code is 1. The case may come from unhang rehearse --case.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.case_paths import add_case_arguments, case_options, load_case
from unhang.errors import NoEvidenceError, OutputError
from unhang.wording import count_of, printable

if TYPE_CHECKING:
    from unhang.reproduce.reproducer import Reproducer

EXAMPLES = """unhang reproduce dumps/ -o repro.py
unhang reproduce unhang-cases/20260301-train -o repro.py
unhang reproduce dumps/ -o repro.py --no-try"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang reproduce`."""
    add_case_arguments(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the script to write; never replaces a file",
    )
    output.add_argument(
        "--no-try", action="store_true", help="write it without running it once (needs torch)"
    )


def run(args: argparse.Namespace) -> int:
    """Read, shrink, try, write."""
    path = Path(args.output)
    _check(path)
    from unhang.reproduce.reproducer import reproducer_of, text_of

    found = reproducer_of(load_case(case_options(args)))
    how = "" if args.no_try else _tried(found, path.name)
    _write(path, text_of(found, how, path.name))
    print(f"unhang: {printable(str(path))}: {_said(found, how)}", file=sys.stderr)
    return int(how == "rehearsal")


def _check(path: Path) -> None:
    """Say before the work that it could not be written."""
    if path.exists() or path.is_symlink():
        raise OutputError(f"{path} exists already", "Name another file with -o.")
    if not path.parent.is_dir():
        raise OutputError(
            f"there is no directory {path.parent}", "Name a file in a directory that exists."
        )


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}", "Name another file."
        ) from error


def _tried(found: Reproducer, name: str) -> str:
    """How it was seen to hang; "" where it could not be run."""
    from unhang.reproduce.reproducer import text_of
    from unhang.reproduce.trying import MOST_TRIED, has_torch, tried

    names = found.programs.names
    if not has_torch() or len(names) > MOST_TRIED:
        lacks = "torch is not installed here" if not has_torch() else f"it needs {len(names)} ranks"
        print(f"unhang: the script is not run: {lacks}", file=sys.stderr)
        return ""
    with tempfile.TemporaryDirectory(prefix="unhang-reproduce-") as folder:
        script = Path(folder) / name
        _write(script, text_of(found, "", name))
        trial = tried(script, names, found.wanted)
    if not trial.how:
        raise NoEvidenceError(
            f"the script does not hang in the same way, so it is not written: {trial.said}",
            "--no-try writes it anyway.",
        )
    return trial.how


def _said(found: Reproducer, how: str) -> str:
    run = {
        "gloo": "tried: it hangs in the same way",
        "error": "tried: Gloo ends it by an error, and the same is said of its calls",
        "rehearsal": "it does not hang on Gloo; a rehearsal of it says the same as the case",
        "": "not tried",
    }[how]
    programs = found.programs
    calls, ranks = count_of(programs.size, "call"), count_of(len(programs.names), "rank")
    return f"{calls} of {ranks}; {run}"
