"""Find what many incidents have in common: hosts, GPUs, links, lines and kinds, by week.

DIR holds cases, as `unhang run` and `unhang collect` make them. A case without a report is judged.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from unhang.cli.shared.case_paths import CASES
from unhang.cli.shared.output import add_look_arguments, look_of, look_options
from unhang.wording import printable

if TYPE_CHECKING:
    from unhang.context.tallies import History, Tally
    from unhang.reports import Look

EXAMPLES = """unhang history
unhang history /shared/unhang-cases --format json"""

_TITLES = {
    "hosts": "Hosts of culprits",
    "parts": "GPUs and links",
    "places": "Lines",
    "kinds": "Kinds",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang history`."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="DIR", help=f"cases; default: ./{CASES}"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=("text", "json"), default="text")
    add_look_arguments(output)


def run(args: argparse.Namespace) -> int:
    """Read all cases, count, print."""
    from unhang.context.recalled import Past, cases_in
    from unhang.context.tallies import history_of
    from unhang.report import to_json
    from unhang.serve.past import tried

    pasts, failed = [], 0
    for case in cases_in(args.paths or [CASES]):
        found = tried(case)
        if isinstance(found, Past):
            pasts.append(found)
        else:
            failed += 1
            print(f"unhang: {printable(str(case))}: {printable(found, 200)}", file=sys.stderr)
    history = history_of(pasts)
    if args.format == "json":
        print(json.dumps(to_json(history), indent=1))
    else:
        sys.stdout.writelines(_pages(history, look_of(look_options(args), sys.stdout, os.environ)))
    if not pasts and not failed:
        print(
            "unhang: no case lies there: unhang run and unhang collect write them", file=sys.stderr
        )
    return 0 if pasts else 3


def _pages(found: History, look: Look) -> Iterator[str]:
    from unhang.cli.shared.listing import draw_table
    from unhang.context.tallies import CHANCE

    yield f"{found.counted}\n"
    for name, title in _TITLES.items():
        tallies: tuple[Tally, ...] = getattr(found, name)
        if not tallies:
            continue
        yield f"\n{title}\n"
        head = ["", "times", "by chance", "weeks"]
        yield draw_table(head, [_row(tally) for tally in tallies], look)
    if any(tally.chance is not None for tally in found.hosts):
        yield f"\n{fill(CHANCE, look.width)}\n"


def _row(tally: Tally) -> tuple[str, str, str, str]:
    weeks = ", ".join(f"{week} {count}" for week, count in list(tally.weeks.items())[-4:])
    return (
        printable(tally.name, 80),
        f"{tally.count} of {tally.of}",
        "" if tally.chance is None else f"{tally.chance:.2g}",
        weeks,
    )
