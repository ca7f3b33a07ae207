"""Make hangs on purpose: real jobs, simulated jobs, and the score of tools on them."""

from __future__ import annotations

import argparse

from unhang.cli.commands import CommandEntry, add_command
from unhang.errors import UsageError

EXAMPLES = """unhang lab live --list"""

SUBCOMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry("simulate", "unhang.cli.lab_simulate", "write the dumps of a simulated job"),
    CommandEntry("score", "unhang.cli.lab_score", "how right are tools on known faults?"),
    CommandEntry("live", "unhang.cli.lab_live", "run a real Gloo job with a fault and capture it"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `unhang lab`."""
    subparsers = parser.add_subparsers(dest="lab_command", metavar="COMMAND", title="commands")
    for entry in SUBCOMMANDS:
        add_command(subparsers, entry, load=True)


def run(_args: argparse.Namespace) -> int:
    """Complain: only the commands below do something."""
    names = ", ".join(entry.name for entry in SUBCOMMANDS)
    raise UsageError("unhang lab needs a command", f"one of: {names}; see: unhang lab --help")
