"""Run a job without its GPUs and say whether all ranks' calls meet, before it goes to a cluster.

COMMAND is what starts the job: torchrun, python -m torch.distributed.run, or python with a script.
Every rank runs the script in a process of its own on this machine's CPU; .cuda() and device="cuda"
mean the CPU there. Values pass between ranks as in the job, so the script decides as it would
there. Use a small model and few steps: what is computed is computed here. docs/rehearse.md says
what a rehearsal cannot show.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.jobs import add_job_arguments, check_job_arguments, command_of
from unhang.cli.shared.output import DRAWINGS, add_report_arguments, emit, report_options
from unhang.errors import UsageError
from unhang.wording import printable

if TYPE_CHECKING:
    from unhang.rehearse.wishes import RehearsalWishes
    from unhang.report import Report

EXAMPLES = """unhang rehearse -- torchrun --nproc-per-node 4 train.py
unhang rehearse --ranks 8,64,1024 --steps 2 -- python train.py
unhang rehearse --shapes --steps 1 -- torchrun --nproc-per-node 8 train_70b.py
unhang rehearse --compare calls.json -- python train.py
unhang rehearse -o page.html --case rehearsed -- python train.py"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang rehearse`."""
    add_job_arguments(
        parser,
        "ranks (default: as COMMAND says, else 4). Several are rehearsed one by one. "
        "Above 64, some stand for all",
        "N[,N…]",
    )
    parser.add_argument(
        "--case",
        dest="kept",
        metavar="DIR",
        help="keep dumps and output of the ranks in this new directory (one in it for each size)",
    )
    parser.add_argument(
        "--save", metavar="FILE", help="keep what the ranks call in FILE, if all calls meet"
    )
    parser.add_argument(
        "--compare",
        metavar="FILE",
        help="say what ranks call more or less in each step than in FILE. --save wrote it",
    )
    parser.add_argument(
        "--shapes",
        action="store_true",
        help="for models that do not fit on this machine: tensors of floating point above 1 MiB "
        "take no memory, and have no values",
    )
    add_report_arguments(parser, DRAWINGS, case=False)


def run(args: argparse.Namespace) -> int:
    """Rehearse, judge, report."""
    from unhang.rehearse.commandline import job_of
    from unhang.rehearse.rehearsal import rehearsed

    check_job_arguments(args)
    command = command_of(args)
    options, sizes = report_options(args), _sizes(args.ranks)
    if (args.save or args.compare) and len(sizes) > 1:
        raise UsageError("--save and --compare take one size", "Give --ranks one number with them.")
    jobs = [job_of(command, ranks, args.nodes) for ranks in sizes]
    wishes = [_wishes(args, ranks if len(sizes) > 1 else None) for ranks in sizes]
    for ranks, job, wish in zip(sizes[:-1], jobs, wishes, strict=False):
        with rehearsed(job, wish, command) as (case, report, place):
            print(f"unhang: {ranks} ranks: {printable(report.summary)}", file=sys.stderr)
            if report.status != "healthy":
                return emit(report, options, case, place=place)
    with rehearsed(jobs[-1], wishes[-1], command) as (case, report, place):
        _say_changes(report)
        return emit(report, options, case, place=place)


def _wishes(args: argparse.Namespace, ranks: int | None) -> RehearsalWishes:
    """How one size is rehearsed; where there are several, each case has the name of its own."""
    from unhang.rehearse.schedules import read_schedule
    from unhang.rehearse.wishes import RehearsalWishes

    kept = Path(args.kept) if args.kept else None
    if kept and ranks:
        kept.mkdir(parents=True, exist_ok=True)
        kept /= f"{ranks}-ranks"
    since = read_schedule(Path(args.compare)) if args.compare else None
    save = Path(args.save) if args.save else None
    return RehearsalWishes(args.steps, args.limit, kept, since, save, shapes=args.shapes)


def _say_changes(report: Report) -> None:
    """What ranks call more or less than before, apart from the verdict, which it does not touch."""
    from unhang.rehearse.rehearsal import SCHEDULE_NOTES

    for note in report.notes:
        if note.source == SCHEDULE_NOTES:
            print(f"unhang: {printable(note.text)}", file=sys.stderr)


def _sizes(text: str | None) -> list[int | None]:
    """What --ranks says; as the command says where it says nothing."""
    if text is None:
        return [None]
    if not all(part.isascii() and part.isdecimal() and int(part) for part in text.split(",")):
        raise UsageError(
            f"--ranks {text!r} is not a list of numbers from 1 on", "For example: --ranks 8,64,1024"
        )
    return [int(part) for part in text.split(",")]
