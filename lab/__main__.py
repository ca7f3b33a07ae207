"""Hang jobs on purpose: simulate them, run real ones, and score tools on them (`python -m lab`).

For those who work on unhang, from a checkout: nothing of the lab is in the wheel, and the product
never imports it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from unhang.cli.commands import CommandEntry, Parser, add_command
from unhang.cli.shared.standard import QUIET_END, discard_output
from unhang.errors import UnhangError

PROG = "python -m lab"

COMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry("simulate", "lab.simulate.command", "write the dumps of a simulated job"),
    CommandEntry("score", "lab.score.command", "how right are tools on known faults?"),
    CommandEntry("subsets", "lab.subsets.command", "judge real sets with dumps taken away"),
    CommandEntry("advice", "lab.advice.command", "run every command that reports advise"),
    CommandEntry("prove", "lab.prove.command", "judge every small program with every mistake"),
    CommandEntry("live", "lab.live.command", "run a real Gloo job with a fault and capture it"),
    CommandEntry("engines", "lab.engines.command", "let serving engines stand still"),
    CommandEntry("new-rule", "lab.rules.command", "write the skeleton of a log rule"),
    CommandEntry("activity", "lab.activity.command", "is it told rightly what processes do?"),
    CommandEntry("nccl", "lab.nccl.command", "run the real ProcessGroupNCCL without a GPU"),
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands of the lab."""
    parser = Parser(
        prog=PROG,
        description=(__doc__ or "").strip(),
        epilog=f"Run '{PROG} COMMAND --help' for a command's options and examples.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", prog=PROG, required=True)
    for entry in COMMANDS:
        add_command(commands, entry, load=True)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        args = build_parser().parse_args(argv)
        code = int(args.run_command(args))
        sys.stdout.flush()
    except UnhangError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"{PROG}: {error.message}{hint}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        discard_output()
        return QUIET_END
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
