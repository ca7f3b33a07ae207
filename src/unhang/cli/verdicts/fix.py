"""Propose a change of the script after which all ranks' calls meet, as a diff.

The job is rehearsed (see unhang rehearse). Some faults have a mechanical change of a few lines: a
collective under a rank's condition, two groups in crossed order, batches that do not come out even,
a send and a receive that wait for each other. It is shown only if a rehearsal of the changed script
is clean. No file is written: give the output to git apply.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.jobs import add_job_arguments, check_job_arguments, command_of
from unhang.cli.shared.output import exit_code
from unhang.errors import UsageError
from unhang.wording import printable

if TYPE_CHECKING:
    from unhang.fixing.proposing import Proposal

EXAMPLES = """unhang fix -- torchrun --nproc-per-node 4 train.py
unhang fix --ranks 8 --steps 2 -- python train.py > fix.diff
git apply fix.diff"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang fix`."""
    add_job_arguments(parser, "ranks (default: as COMMAND says, else 4)")


def run(args: argparse.Namespace) -> int:
    """Rehearse, change, rehearse again, show."""
    from unhang.fixing.proposing import difference, proposed
    from unhang.rehearse.commandline import job_of
    from unhang.rehearse.wishes import RehearsalWishes

    check_job_arguments(args)
    ranks = args.ranks
    if ranks is not None and not (ranks.isascii() and ranks.isdecimal() and int(ranks)):
        raise UsageError(f"--ranks {ranks!r} is not a number from 1 on", "For example: --ranks 8")
    command = command_of(args)
    job = job_of(command, int(ranks) if ranks else None, args.nodes)
    found = proposed(job, RehearsalWishes(args.steps, args.limit), command)
    _say(found)
    if found.patch:
        _show(difference(found.patch))
    return exit_code(found.report)


def _show(text: str) -> None:
    """The diff as it is, but for what a terminal would obey."""
    if sys.stdout.isatty():
        text = "\n".join(printable(line.expandtabs()) for line in text.split("\n"))
    sys.stdout.write(text)


def _say(found: Proposal) -> None:
    """The verdict, and what came of it, on stderr: the diff alone is output."""
    from unhang.fixing.proposing import base_of

    lines = [found.report.summary]
    if found.patch:
        lines += [f"proposed: {found.patch.why}", f"rehearsed with it: {found.proof}"]
        if (base := base_of(found.patch)) != Path.cwd():
            lines.append(f"Apply it in {base}.")
        lines.append("Check that the change means what you meant: a rehearsal checks calls alone.")
    else:
        lines += [f"no change is proposed: {reason}" for reason in found.reasons]
    for line in lines:
        print(f"unhang: {printable(line)}", file=sys.stderr)
