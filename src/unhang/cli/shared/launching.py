"""How commands name the nodes that they are about: one set of options, one launcher.

`collect`, `stacks`, `dump` and `doctor` share them. Each launcher uses the cluster's own tool; see
docs/collect.md and `unhang.collect.launchers`.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.collect.launchers.choosing import add_choices, is_chosen, launcher_of
from unhang.errors import OutputError, UsageError
from unhang.wording import printable

if TYPE_CHECKING:
    from unhang.collect.gather import Gathered, GatherPlan
    from unhang.collect.launchers import Launcher

__all__ = [
    "add_launcher_arguments",
    "checked_launcher",
    "gather_with_progress",
    "is_chosen",
    "plan_of",
    "refuse_mixture",
    "tell_failures",
]

_MOST_AT_ONCE = 1_024
_MOST_SHOWN = 60


def add_launcher_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the job runs and how to get there."""
    group = parser.add_argument_group("where the job runs (default: this node)")
    add_choices(group)
    group.add_argument("--python", default="", metavar="PROGRAM", help="interpreter on the nodes")
    group.add_argument(
        "--ship",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="send the collector to the nodes (default), or use the unhang installed there",
    )
    group.add_argument(
        "--node-timeout",
        type=float,
        default=120.0,
        metavar="S",
        help="for each node (default: 120)",
    )
    group.add_argument(
        "--at-once",
        type=int,
        default=32,
        metavar="N",
        help="nodes asked at the same time (default: 32)",
    )


def checked_launcher(args: argparse.Namespace) -> Launcher:
    """The launcher that the arguments name; this node without any.

    Raises:
        UsageError: They contradict each other, name nothing, or a number makes no sense.
    """
    if not 1 <= args.at_once <= _MOST_AT_ONCE:
        raise UsageError(f"--at-once {args.at_once} is out of bounds", f"1 to {_MOST_AT_ONCE}.")
    if args.node_timeout <= 0:
        raise UsageError(f"--node-timeout {args.node_timeout:g} is not a time", "Seconds, above 0.")
    return launcher_of(args)


def plan_of(args: argparse.Namespace, orders: dict[str, object], run: str = "") -> GatherPlan:
    """How to collect, from arguments that `checked_launcher` has checked."""
    from unhang.collect.gather import GatherPlan

    local = not is_chosen(args)
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
    """Collect from nodes, with a progress bar on a terminal.

    Raises:
        OutputError: The case cannot be written.
    """
    from unhang.cli.shared.reading_progress import reading_progress
    from unhang.collect.gather import gather

    finished: set[str] = set()
    with reading_progress(what="nodes") as show:

        def one_more(node: str, _: str) -> None:
            finished.add(node)
            if show is not None:
                show(len(finished), len(nodes))

        try:
            plan = replace(plan, cluster=launcher.cluster, namespace=launcher.namespace)
            return gather(launcher, nodes, plan, case, one_more)
        except OSError as error:
            raise OutputError(
                f"the case {case} cannot be written: {error.strerror}",
                "Make room, or name another place with --case.",
            ) from error


def refuse_mixture(gathered: Gathered, case: Path | None = None) -> None:
    """Show the jobs where several run on the nodes: what came of them is no evidence of one.

    Args:
        gathered: What came.
        case: Where it lies, if it was made for that: it is removed then.

    Raises:
        UsageError: They do.
    """
    if not gathered.are_mixed:
        return
    import shutil

    from unhang.wording import fold_ranks

    if case is not None:
        shutil.rmtree(case, ignore_errors=True)

    rows = [("job", "ranks", "node", "command")]
    for each in sorted(gathered.jobs, key=lambda job: (job.job, job.node)):
        of = f" of {each.world_size}" if each.world_size else ""
        ranks = f"{fold_ranks(each.ranks)}{of}"
        rows.append((each.job or "''", ranks, each.node, each.command[:_MOST_SHOWN]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True))
        print(printable(line.rstrip()), file=sys.stderr)
    raise UsageError("several jobs run there: none was collected", "Choose one with --job ID.")


def tell_failures(gathered: Gathered, nodes: Sequence[str]) -> None:
    """Say on stderr what did not come, and from how many."""
    for node, why in sorted(gathered.failed.items()):
        print(f"unhang: nothing came from {printable(node)}: {printable(why)}", file=sys.stderr)
    if gathered.failed:
        print(f"unhang: {len(gathered.whole)} of {len(nodes)} nodes answered", file=sys.stderr)
