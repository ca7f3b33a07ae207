"""Entry point: finds the command, imports only its module, turns errors into sentences.

It refuses to know anything about any command beyond its name, module and one line of help.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from unhang._version import __version__
from unhang.cli.commands import CommandEntry, Parser, add_command
from unhang.cli.shared.standard import (
    QUIET_END,
    discard_output,
    end_at_once,
    hold_streams,
    is_of_output,
)
from unhang.errors import OutputError, UnhangError
from unhang.wording import printable

__all__ = ["COMMANDS", "CommandEntry", "build_parser", "main"]

_VERDICTS, _EVIDENCE = "unhang.cli.verdicts", "unhang.cli.evidence"

COMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry(
        "diagnose", f"{_VERDICTS}.diagnose", "find why a job is stuck, from its dumps and logs"
    ),
    CommandEntry("entries", f"{_EVIDENCE}.entries", "show recorded calls, ranks side by side"),
    CommandEntry("query", f"{_EVIDENCE}.query", "query the tables of a case in SQL"),
    CommandEntry("explain", "unhang.cli.explain", "explain a finding code and what to do"),
    CommandEntry("run", "unhang.cli.run", "run a job, and diagnose it when it hangs"),
    CommandEntry("dump", f"{_EVIDENCE}.dump", "make the ranks of a job write dumps now"),
    CommandEntry("stacks", f"{_VERDICTS}.stacks", "show stacks of all ranks, with a verdict"),
    CommandEntry("collect", f"{_EVIDENCE}.collect", "collect evidence from all nodes of a job"),
    CommandEntry("reduce", f"{_EVIDENCE}.reduce", "reduce a node's dumps to about 1 KB a rank"),
    CommandEntry("doctor", f"{_VERDICTS}.doctor", "check nodes, network, GPUs and collectives"),
    CommandEntry("logs", f"{_VERDICTS}.logs", "find what failed first, from logs of all ranks"),
    CommandEntry("paste", f"{_VERDICTS}.paste", "judge any text: logs, stacks, RAS, an issue"),
    CommandEntry("core", f"{_VERDICTS}.core", "read core files: signal, stacks, meaning"),
    CommandEntry("trace", f"{_VERDICTS}.trace", "trace Python calls or system calls"),
    CommandEntry("rehearse", f"{_VERDICTS}.rehearse", "run a job without GPUs: do all calls meet?"),
    CommandEntry(
        "reproduce", f"{_EVIDENCE}.reproduce", "write the smallest script that hangs alike"
    ),
    CommandEntry("fix", f"{_VERDICTS}.fix", "propose a diff after which all calls meet"),
    CommandEntry("demo", "unhang.cli.demo", "hang a small job here and diagnose it"),
    CommandEntry("numerics", f"{_VERDICTS}.numerics", "find where numbers first differ"),
    CommandEntry("attach", "unhang.cli.attach", "debug a rank that stopped in a breakpoint"),
    CommandEntry("top", "unhang.cli.top", "show ranks, rates and verdicts, live in the terminal"),
    CommandEntry("serve", "unhang.cli.serve", "show cases in a browser"),
    CommandEntry("history", f"{_EVIDENCE}.history", "find what many incidents have in common"),
    CommandEntry("mcp", "unhang.cli.mcp", "serve verdicts to agents (Model Context Protocol)"),
    CommandEntry("completion", "unhang.cli.completion", "print a completion script for a shell"),
)

PROG = "unhang"

_READERS = frozenset({"diagnose", "entries", "explain", "logs", "paste", "query"})
"""Commands that only read and print: nothing of theirs needs Python to be taken apart."""

_MANY_RANKS = _READERS | {"collect", "reduce"}
_LOOKERS = _MANY_RANKS | {"core", "dump", "history", "mcp", "serve", "stacks"}
"""Commands that start no program of the user's, who set its threads."""

_MEMORY = "give the command more room: ulimit -v, or the memory of its container"
_YOUNG = 1 << 18
"""New objects before a search for cycles: of a large case nearly all stay, and few are in any."""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Build the parser; with `only`, import and configure just that command.

    Help and completion of everything pass None for the full tree.
    """
    parser = Parser(
        prog=PROG,
        description="Finds why a distributed PyTorch job is stuck: which rank, in which call, "
        "at which line, and what to do next.",
        epilog="Run 'unhang COMMAND --help' for a command's options and examples.",
    )
    parser.add_argument("--version", action="version", version=f"{PROG} {__version__}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog=PROG
    )
    for entry in COMMANDS:
        add_command(subparsers, entry, load=only in (None, entry.name))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (see docs/cli.md)."""
    if argv is not None:
        return _safe(list(argv))
    hold_streams()
    command = next(iter(sys.argv[1:]), "")
    if command in _MANY_RANKS:
        gc.set_threshold(_YOUNG)
    if command in _LOOKERS:  # numpy's threads are of no use, and a limit of processes ends them
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = _safe(sys.argv[1:])
    if command in _READERS:
        end_at_once(code)
    return code


def _safe(words: Sequence[str]) -> int:
    """Run a command and say what the system refused."""
    try:
        try:
            return _guarded(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: that is its good right.
        discard_output()
        return QUIET_END
    except OSError as error:
        return _failed(error)


def _guarded(words: Sequence[str]) -> int:
    """Run the chosen command; what a user can cause ends in a sentence, never in a traceback."""
    try:
        return _run(words)
    except UnhangError as error:
        complain(error.message, error.hint)
        return error.exit_code
    except Exception as error:
        if (lack := _lack_of_room(error)) is None:
            raise
        complain(*lack)
        return UnhangError.exit_code
    except KeyboardInterrupt:
        complain("interrupted")
        return 130


def _lack_of_room(error: BaseException) -> tuple[str, str] | None:
    """What to say, and the hint, where a limit of the system ended a command; else None.

    Of a group of exceptions, as asynchronous libraries raise them, every member has to be one.
    """
    if members := getattr(error, "exceptions", ()):
        lacks = [_lack_of_room(member) for member in members]
        return lacks[0] if all(lacks) else None
    if isinstance(error, MemoryError):
        return "there is not enough memory for this", _MEMORY
    if isinstance(error, ImportError) and (error.path or "").endswith(".so"):
        return f"a library cannot be loaded: {printable(str(error))}", _MEMORY
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "no thread can be started", "raise the limit of processes: ulimit -u"
    return None


def _run(words: Sequence[str]) -> int:
    if list(words) in (["--version"], ["-V"]):
        print(f"{PROG} {__version__}")
        return 0
    chosen = next((word for word in words if word == "-" or not word.startswith("-")), None)
    known = {entry.name for entry in COMMANDS}
    if chosen is not None and chosen not in known:
        from unhang.cli.shared.anything import command_for

        chosen = command_for(chosen, known)
        words = [chosen, *words]
    parser = build_parser(only=chosen if chosen in known else "")
    if not words:
        return _alone(parser)
    args = parser.parse_args(words)
    if not hasattr(args, "run_command"):
        parser.error("a command is needed")
    return int(args.run_command(args))


def _alone(parser: argparse.ArgumentParser) -> int:
    """Say what is here and which command helps; without anything, what commands there are."""
    from unhang.cli.shared.here import what_is_here

    found = what_is_here()
    if not found:
        parser.print_help()
        return 2
    for seen in found:
        print(f"{seen.what}\n  {seen.command}")
    print(f"\n{PROG} --help lists all commands.")
    return 0


def _failed(error: OSError) -> int:
    """Say what the system refused, and return the exit code for it."""
    reason = error.strerror or str(error)
    if not is_of_output(error):
        complain(f"{printable(str(error.filename))}: {reason}" if error.filename else reason)
        return UnhangError.exit_code
    discard_output()
    complain(
        f"the output cannot be written: {reason}", "send it elsewhere, or to a disk with free space"
    )
    return OutputError.exit_code


def complain(message: str, hint: str = "") -> None:
    """Print an error and its hint on stderr, without any markup."""
    print(f"{PROG}: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
