"""What a command is to the parser: one line of a table, and a module that is loaded on demand.

`unhang` itself and commands that have commands of their own (`python -m lab`) share this. It knows
no command by name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn, Protocol, cast

_UNKNOWN: Final = "unrecognized arguments: "
"""How argparse says so."""


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

    def error(self, message: str) -> NoReturn:
        """As argparse, with the options that are meant where one is misspelt."""
        from difflib import get_close_matches

        words = message.removeprefix(_UNKNOWN).split() if message.startswith(_UNKNOWN) else []
        options = [option for option in self._options() if option.startswith("--")]
        near = [
            found[0]
            for word in words
            if (found := get_close_matches(word.partition("=")[0], options, n=1))
        ]
        super().error(f"{message}\ndid you mean {', '.join(near)}?" if near else message)

    def _options(self) -> Iterator[str]:
        """All options of this parser and of its commands, as far as these were loaded."""
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - no other way
                for parser in action.choices.values():
                    yield from (name for each in parser._actions for name in each.option_strings)  # noqa: SLF001

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
