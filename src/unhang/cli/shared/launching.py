"""How commands name the nodes that they are about: one set of options, one launcher.

`collect`, `stacks` and `dump` share them. Each launcher uses the cluster's own tool; see
docs/collect.md.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.errors import OutputError, UsageError
from unhang.wording import printable

if TYPE_CHECKING:
    from unhang.collect.gather import Gathered, GatherPlan
    from unhang.collect.launchers import Launcher

__all__ = [
    "add_launcher_arguments",
    "gather_with_progress",
    "launcher_of",
    "plan_of",
    "tell_failures",
    "wants_launcher",
]

_CHOICES = ("slurm", "hosts", "hostfile", "kubectl", "mpi", "ray")
_MOST_AT_ONCE = 1_024


def add_launcher_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the job runs and how to get there."""
    group = parser.add_argument_group("where the job runs (default: this node)")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--slurm", metavar="JOBID", help="all nodes of a SLURM job")
    where.add_argument("--hosts", metavar="LIST", help="by ssh: node01,node[02-16],user@host")
    where.add_argument("--hostfile", metavar="FILE", help="by ssh, from a host file (as MPI's)")
    where.add_argument("--kubectl", metavar="SELECTOR", help="pods with these labels")
    where.add_argument("--mpi", metavar="FILE", help="by mpirun, from a host file")
    where.add_argument("--ray", metavar="ADDRESS", help="all nodes of a Ray cluster")
    group.add_argument(
        "--via",
        default="ssh",
        metavar="HOW",
        help="for --hosts and --hostfile: ssh, pdsh, or a command with {host} (default: ssh)",
    )
    group.add_argument("-n", "--namespace", default="", metavar="NAME", help="for --kubectl")
    group.add_argument("--container", default="", metavar="NAME", help="for --kubectl")
    group.add_argument(
        "--launcher-options",
        default="",
        metavar="WORDS",
        help="further options of ssh or srun, in quotes: '-p 2222 -i key'",
    )
    group.add_argument("--python", default="", metavar="PROGRAM", help="interpreter on the nodes")
    group.add_argument(
        "--ship",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="send the collector along (default), or use the unhang that is on the nodes",
    )
    group.add_argument(
        "--node-timeout",
        type=float,
        default=120.0,
        metavar="S",
        help="for each node (default: 120)",
    )
    group.add_argument(
        "--at-once", type=int, default=32, metavar="N", help="most nodes at a time (default: 32)"
    )


def wants_launcher(args: argparse.Namespace) -> bool:
    """Whether the arguments name other nodes."""
    return any(getattr(args, name) is not None for name in _CHOICES)


def launcher_of(args: argparse.Namespace) -> Launcher:
    """The launcher that the arguments name; this node without any.

    Raises:
        UsageError: They contradict each other, name nothing, or a number makes no sense.
    """
    options = _checked(args)
    if args.slurm is not None:
        from unhang.collect.launchers.slurm import Slurm

        return Slurm(args.slurm, options)
    if args.hosts is not None or args.hostfile is not None:
        return _by_hosts(args, options)
    if options:
        raise UsageError("--launcher-options is for ssh and srun", "Leave it out.")
    if args.kubectl is not None:
        from unhang.collect.launchers.kubernetes import Kubernetes

        return Kubernetes(args.kubectl, args.namespace, args.container)
    if args.mpi is not None:
        from unhang.collect.launchers.mpi import Mpi

        return Mpi(Path(args.mpi))
    if args.ray is not None:
        from unhang.collect.launchers.ray import Ray

        return Ray(args.ray)
    from unhang.collect.launchers.local import Local

    return Local()


def _checked(args: argparse.Namespace) -> tuple[str, ...]:
    """Check what concerns every launcher; returns --launcher-options as words."""
    if not 1 <= args.at_once <= _MOST_AT_ONCE:
        raise UsageError(f"--at-once {args.at_once} is out of bounds", f"1 to {_MOST_AT_ONCE}.")
    if args.node_timeout <= 0:
        raise UsageError(f"--node-timeout {args.node_timeout:g} is no time", "Seconds, above 0.")
    if args.via != "ssh" and args.hosts is None and args.hostfile is None:
        raise UsageError("--via says how to reach hosts", "Name them: --hosts node01,node02")
    try:
        options = tuple(shlex.split(args.launcher_options))
    except ValueError as error:
        raise UsageError(
            f"--launcher-options: {str(error).lower()}", "Check the quotes."
        ) from error
    return options


def _by_hosts(args: argparse.Namespace, options: tuple[str, ...]) -> Launcher:
    from unhang.collect.launchers.ssh import Pdsh, Ssh
    from unhang.collect.launchers.template import Template
    from unhang.collect.launchers.tools import hosts_of, read_host_file

    found = hosts_of(args.hosts) if args.hosts is not None else read_host_file(Path(args.hostfile))
    if args.via == "ssh":
        return Ssh(tuple(found), options)
    if options:
        raise UsageError("--launcher-options is for ssh and srun", "Leave it out.")
    return Pdsh(tuple(found)) if args.via == "pdsh" else Template(tuple(found), args.via)


def plan_of(
    args: argparse.Namespace, launcher: Launcher, orders: dict[str, object], run: str = ""
) -> GatherPlan:
    """How to collect, from arguments that `launcher_of` has checked."""
    from unhang.collect.gather import GatherPlan

    local = launcher.name == "local"
    return GatherPlan(
        orders=orders,
        run=run or f"{time.strftime('%H%M%S')}-{secrets.token_hex(3)}",
        python=args.python or (sys.executable if local else ""),
        ship=args.ship and not local,
        timeout_s=args.node_timeout,
        at_once=args.at_once,
    )


def gather_with_progress(
    launcher: Launcher, nodes: Sequence[str], plan: GatherPlan, case: Path
) -> Gathered:
    """Collect from nodes, with a progress bar where somebody watches.

    Raises:
        OutputError: The case cannot be written.
    """
    from unhang.cli.shared.progress import reading_progress
    from unhang.collect.gather import gather

    finished: set[str] = set()
    with reading_progress(what="nodes") as show:

        def one_more(node: str, _: str) -> None:
            finished.add(node)
            if show is not None:
                show(len(finished), len(nodes))

        try:
            return gather(launcher, nodes, plan, case, one_more)
        except OSError as error:
            raise OutputError(
                f"the case {case} cannot be written: {error.strerror}",
                "Make room, or name another place with --case.",
            ) from error


def tell_failures(gathered: Gathered, nodes: Sequence[str]) -> None:
    """Say on stderr what did not come, and from how many."""
    for node, why in sorted(gathered.failed.items()):
        print(f"unhang: nothing came of {printable(node)}: {printable(why)}", file=sys.stderr)
    if gathered.failed:
        print(f"unhang: {len(gathered.whole)} of {len(nodes)} nodes answered", file=sys.stderr)
