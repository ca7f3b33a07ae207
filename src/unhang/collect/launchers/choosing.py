"""The launchers that there are, and the one that the command line names.

To teach unhang another: a module next to this one, and its line in `CHOICES`.
"""

from __future__ import annotations

import argparse
import shlex

from unhang.collect.launchers import Choice, Launcher, flux, hosts, kubernetes, mpi, pbs, ray, slurm
from unhang.collect.launchers.local import Local
from unhang.errors import UsageError

CHOICES: tuple[Choice, ...] = (
    slurm.CHOICE,
    flux.CHOICE,
    pbs.CHOICE,
    hosts.CHOICE,
    kubernetes.CHOICE,
    mpi.CHOICE,
    ray.CHOICE,
)
"""In the order in which help shows them."""


def add_choices(group: argparse._ArgumentGroup) -> None:
    """Add the options by which a launcher is chosen, and what it may receive."""
    one_of = group.add_mutually_exclusive_group()
    for choice in CHOICES:
        for option in choice.by:
            one_of.add_argument(option.name, metavar=option.metavar, help=option.help)
    for option in (option for choice in CHOICES for option in choice.further):
        names = [name for name in (option.short, option.name) if name]
        group.add_argument(*names, default=option.default, metavar=option.metavar, help=option.help)
    group.add_argument(
        "--launcher-options",
        default="",
        metavar="WORDS",
        help=f"further options of {_programs()}, in quotes: '-p 2222 -i key'",
    )


def is_chosen(args: argparse.Namespace) -> bool:
    """Whether the arguments name other nodes."""
    return any(choice.is_named(args) for choice in CHOICES)


def launcher_of(args: argparse.Namespace) -> Launcher:
    """The launcher that the arguments name; this node without any.

    Raises:
        UsageError: They contradict each other, or name nothing.
    """
    words = _words(args.launcher_options)
    named = next((choice for choice in CHOICES if choice.is_named(args)), None)
    _refuse_strays(args, named)
    if words and (named is None or not named.passes_to):
        raise UsageError(f"--launcher-options is for {_programs()}", "Leave it out.")
    return named.make(args, words) if named else Local()


def _programs() -> str:
    """Those that take further options: "flux exec, srun or ssh"."""
    *others, last = dict.fromkeys(choice.passes_to for choice in CHOICES if choice.passes_to)
    return f"{', '.join(others)} or {last}"


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"--launcher-options: {str(error).lower()}", "Check the quotes."
        ) from error


def _refuse_strays(args: argparse.Namespace, named: Choice | None) -> None:
    """An option of one launcher, where another was chosen or none, would be passed over."""
    for choice in CHOICES:
        for option in choice.further if choice is not named else ():
            if option.value(args) != option.default:
                by = " and ".join(other.name for other in choice.by)
                raise UsageError(f"{option.name} is for {by}", "Leave it out, or name the nodes.")
