"""Arguments of commands that rehearse a job: how many ranks, how long, and what starts it."""

from __future__ import annotations

import argparse

from unhang.errors import UsageError


def add_job_arguments(parser: argparse.ArgumentParser, ranks: str, metavar: str = "N") -> None:
    """Add them; `ranks` is the help of --ranks."""
    parser.add_argument("--ranks", metavar=metavar, help=ranks)
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
        "job", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command that starts it"
    )


def check_job_arguments(args: argparse.Namespace) -> None:
    """Refuse numbers out of range.

    Raises:
        UsageError: One is.
    """
    if args.nodes is not None and args.nodes < 1:
        raise UsageError(f"--nodes {args.nodes} is out of range")
    if args.steps < 0 or args.limit <= 0:
        raise UsageError("--steps and --limit are numbers above 0")


def command_of(args: argparse.Namespace) -> list[str]:
    """The command that starts the job."""
    words: list[str] = args.job
    return words[1:] if words[:1] == ["--"] else words
