"""What a command is to the parser: one line of a table, and a module that is loaded on demand.

`unhang` itself and commands that have commands of their own (`unhang lab`) share this. It knows
no command by name.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import NamedTuple, Protocol, cast

__all__ = ["Command", "CommandEntry", "add_command", "formatter"]


class CommandEntry(NamedTuple):
    """One line of a table of commands."""

    name: str
    module: str
    help: str


class Command(Protocol):
    """What a command's module offers.

    Its docstring is the description in `--help`; EXAMPLES (one command a line) is shown below the
    options.
    """

    EXAMPLES: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


def formatter(prog: str) -> argparse.HelpFormatter:
    """rich-argparse where somebody reads the help on a terminal, plain argparse in a pipe.

    Imported when help is printed, not when a parser is made: rich costs more than most commands.
    """
    if not sys.stdout.isatty():
        return argparse.RawDescriptionHelpFormatter(prog)
    from rich_argparse import RawDescriptionRichHelpFormatter

    return RawDescriptionRichHelpFormatter(prog)


def add_command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    entry: CommandEntry,
    *,
    load: bool,
) -> None:
    """Add one command; its module is imported and asked for its arguments only if `load`."""
    if not load:
        subparsers.add_parser(entry.name, help=entry.help, add_help=False)
        return
    module = cast("Command", import_module(entry.module))
    sub = subparsers.add_parser(
        entry.name,
        help=entry.help,
        description=(module.__doc__ or "").strip(),
        epilog="examples:\n" + "\n".join(f"  {line}" for line in module.EXAMPLES.splitlines()),
        formatter_class=formatter,
    )
    module.configure(sub)
    sub.set_defaults(run_command=module.run)
