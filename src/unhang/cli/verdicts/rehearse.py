"""Run a job without its GPUs and say whether all ranks' calls meet, before it goes to a cluster.

COMMAND is what starts the job: torchrun, python -m torch.distributed.run, or python with a script.
Every rank runs the script in a process of its own on this machine's CPU; .cuda() and device="cuda"
mean the CPU there. Values pass between ranks as in the job, so the script decides as it would
there. Use a small model and few steps: what is computed is computed here. docs/rehearse.md says
what a rehearsal cannot show.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unhang.cli.shared.output import DRAWINGS, add_report_arguments, emit, report_options
from unhang.errors import UsageError

EXAMPLES = """unhang rehearse -- torchrun --nproc-per-node 4 train.py
unhang rehearse --ranks 8 --steps 2 -- python train.py --layers 2
unhang rehearse -o page.html --case rehearsed -- torchrun --nproc-per-node 4 train.py"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang rehearse`."""
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="ranks (default: as COMMAND says, else 4)"
    )
    parser.add_argument(
        "--nodes", type=int, metavar="M", help="number of nodes to spread them over"
    )
    parser.add_argument(
        "--steps", type=int, default=0, metavar="N",
        help="end each rank after N steps of its optimizer (default: the script's own end)",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=float, default=600, metavar="SECONDS",
        help="end the rehearsal after SECONDS (default: 600)",
    )  # fmt: skip
    parser.add_argument(
        "--case",
        dest="kept",
        metavar="DIR",
        help="keep dumps and output of the ranks in this new directory",
    )
    parser.add_argument(
        "job", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command that starts it"
    )
    add_report_arguments(parser, DRAWINGS, case=False)


def run(args: argparse.Namespace) -> int:
    """Rehearse, judge, report."""
    from unhang.rehearse.commandline import job_of
    from unhang.rehearse.rehearsal import RehearsalWishes, rehearsed

    command = args.job[1:] if args.job[:1] == ["--"] else args.job
    for option, value in (("--ranks", args.ranks), ("--nodes", args.nodes)):
        if value is not None and value < 1:
            raise UsageError(f"{option} {value} is out of range")
    if args.steps < 0 or args.limit <= 0:
        raise UsageError("--steps and --limit are numbers above 0")
    options = report_options(args)
    wishes = RehearsalWishes(args.steps, args.limit, Path(args.kept) if args.kept else None)
    with rehearsed(job_of(command, args.ranks, args.nodes), wishes, command) as (
        case,
        report,
        place,
    ):
        return emit(report, options, case, place=place)
