"""What a command is to the parser: one line of a table, and a module that is loaded on demand.

`unhang` itself and commands that have commands of their own (`python -m lab`) share this. It knows
no command by name.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

__all__ = ["Command", "CommandEntry", "Parser", "add_command"]


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


class Parser(argparse.ArgumentParser):
    """A parser that is cheap to make.

    argparse makes a formatter for every argument, to check it. Here these are plain and of fixed
    width; what finds out the terminal's width, or imports rich, is made when help is printed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - argparse's own
        kwargs["formatter_class"] = partial(argparse.RawDescriptionHelpFormatter, width=80)
        super().__init__(*args, **kwargs)

    def _print_message(self, message: str, file: Any = None) -> None:  # noqa: ANN401 - argparse's own
        """Unlike argparse, which takes help that could not be written for delivered."""
        if message:
            (file or sys.stderr).write(message)

    def format_help(self) -> str:
        """rich-argparse on a terminal, plain argparse in a pipe."""
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        if sys.stdout.isatty():
            from rich_argparse import RawDescriptionRichHelpFormatter

            self.formatter_class = RawDescriptionRichHelpFormatter
        return super().format_help()


def add_command(
    subparsers: argparse._SubParsersAction[Any],
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
    )
    module.configure(sub)
    sub.set_defaults(run_command=module.run)
