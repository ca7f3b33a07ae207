"""Show the recorded calls: ranks side by side, aligned by group and sequence number.

Ranks whose calls look the same share a column. "*" marks calls that are not finished, "-" calls
that a rank's dump lacks, and a blank what lies before its window.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unhang.cli.shared.case_paths import add_case_arguments, case_options, load_case
from unhang.cli.shared.output import add_look_arguments, look_of, look_options
from unhang.errors import UsageError
from unhang.wording import fold_ranks, parse_ranks, printable

if TYPE_CHECKING:
    from unhang.case import Case
    from unhang.reports import Look
    from unhang.reports.call_table import Block, Pick

EXAMPLES = """unhang entries dumps/
unhang entries dumps/ --ranks 0-3,7 --group tp --last 5
unhang entries dumps/ --last 3 --stacks
unhang entries dumps/ --format csv"""

TABLE_LAST = 20
_WIDEST_CELL = 30


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang entries`."""
    add_case_arguments(parser)
    picking = parser.add_argument_group("picking")
    picking.add_argument("--ranks", metavar="LIST", help="like 0-3,7 or 0-56:8; default: all")
    picking.add_argument("--group", metavar="NAME", help="name or description; default: all")
    picking.add_argument(
        "--last",
        type=int,
        metavar="N",
        help=f"last N numbers of each group, 0 for all; default: {TABLE_LAST} in a table, else all",
    )
    picking.add_argument("--stacks", action="store_true", help="show the stack of each call")
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=("table", "json", "csv"), default="table")
    add_look_arguments(output)


def run(args: argparse.Namespace) -> int:
    """Read, pick, print."""
    if args.last is not None and args.last < 0:
        raise UsageError(f"--last {args.last} is not a number of calls", "0 shows all.")
    from unhang.reports.call_table import Pick

    ranks = parse_ranks(args.ranks) if args.ranks is not None else frozenset[int]()
    default = TABLE_LAST if args.format == "table" else 0
    last = default if args.last is None else args.last
    pick = Pick(ranks, args.group or "", last, args.stacks)
    look = look_of(look_options(args), sys.stdout, os.environ)
    case = load_case(case_options(args))
    _check(case, pick)
    if args.format == "table":
        sys.stdout.writelines(_table_pages(case, pick, look))
    else:
        sys.stdout.writelines(_records(case, pick, args.format))
    return 0


def _check(case: Case, pick: Pick) -> None:
    """Refuse ranks and groups that the case does not know, naming those that it does."""
    strangers = pick.ranks - set(case.ranks_with_dump)
    if strangers:
        raise UsageError(
            f"there is no dump of rank {fold_ranks(strangers)}",
            f"Ranks with a dump: {fold_ranks(case.ranks_with_dump) or 'none'}",
        )
    names = dict.fromkeys(name for g in case.groups for name in (g.name, g.description) if name)
    if pick.group and pick.group not in names:
        known = ", ".join(printable(name, 40) for name in list(names)[:20])
        raise UsageError(
            f"there is no group '{printable(pick.group, 60)}'", f"Groups: {known or 'none'}"
        )


def _records(case: Case, pick: Pick, kind: str) -> Iterator[str]:
    from unhang.cli.shared.listing import csv_lines, json_lines
    from unhang.reports.call_table import call_records, pick_rows

    records = call_records(case, pick_rows(case, pick), stacks=pick.stacks)
    if kind == "json":
        yield from json_lines(records)
        return
    first = next(records, None)
    if first is not None:
        yield from csv_lines(list(first), ([*r.values()] for r in (first, *records)))


def _table_pages(case: Case, pick: Pick, look: Look) -> Iterator[str]:
    """Yield a page for as many columns of a block as fit side by side."""
    from unhang.reports.call_table import collect_blocks, pick_rows, stack_lines

    empty = True
    for block in collect_blocks(case, pick):
        empty = False
        yield _block_head(block)
        yield from _block_pages(block, look)
    if empty:
        yield "No calls were recorded.\n"
    elif pick.stacks:
        yield "Stacks, innermost first\n"
        for line in stack_lines(case, pick_rows(case, pick)):
            yield f"  {line}\n"


def _block_head(block: Block) -> str:
    group = block.group
    kind = ", sends and receives: the n-th of each rank" if block.p2p else ""
    left = f" ({block.left_out:,} earlier: --last 0)" if block.left_out else ""
    return (
        f"{printable(group.label, 80)}, ranks {fold_ranks(group.members)}"
        f"{' (inferred)' if group.inferred else ''}{kind}{left}\n"
    )


def _block_pages(block: Block, look: Look) -> Iterator[str]:
    from unhang.cli.shared.listing import draw_table

    start = 0
    while start < len(block.columns):
        stop = _fitting(block, start, look.width)
        names = ["#", *(fold_ranks(ranks, 6) for ranks in block.columns[start:stop])]
        rows = [(row.seq, *row.cells[start:stop]) for row in block.rows]
        yield draw_table(names, rows, look) + "\n"
        start = stop


def _fitting(block: Block, start: int, width: int) -> int:
    """End of the columns from `start` on that fit into the page; at least one."""
    used, stop = len(str(block.rows[-1].seq)) + 2, start
    while stop < len(block.columns):
        head = len(fold_ranks(block.columns[stop], 6))
        cells = max((len(row.cells[stop]) for row in block.rows), default=0)
        used += min(max(head, cells), _WIDEST_CELL) + 2
        if used > width and stop > start:
            break
        stop += 1
    return stop
