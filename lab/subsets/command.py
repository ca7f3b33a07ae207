"""Judge NVIDIA's real sets of dumps whole and with dumps taken away, beside its own tool."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """\
python -m lab subsets                           the table, in minutes
python -m lab subsets --drawn 20                fewer of those without many dumps
python -m lab subsets --write docs/accuracy.md  put the table there
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--drawn",
        type=int,
        default=300,
        metavar="N",
        help="subsets of each set with four or more dumps lost (default: 300)",
    )
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument(
        "--limit", type=float, default=20.0, metavar="S", help="a peer's time (default: 20)"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this file")


def run(args: argparse.Namespace) -> int:
    """Judge, print the table; 1 if anybody innocent was named with high or medium confidence."""
    from lab.score.adapters import available_tools
    from lab.sections import in_page
    from lab.subsets.judging import as_markdown, rows_of, said_of, sets

    tools = available_tools()
    said = {name: {tool: said_of(name, tool, args.limit) for tool in tools} for name in sets()}
    rows = [
        row for name in sets() for row in rows_of(name, drawn=args.drawn, processes=args.processes)
    ]
    text = as_markdown(rows, said)
    print(text)
    if args.write:
        old = args.write.read_text(encoding="utf-8") if args.write.exists() else ""
        args.write.write_text(in_page(old, text), encoding="utf-8")
    return int(any(row.counts["innocent"] for row in rows))
