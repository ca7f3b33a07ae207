"""Hold every small program with every single deviation against the analysis (`make prove`)."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path

from lab.prove.sweep import Tally

__all__ = ["EXAMPLES", "configure", "run"]

EXAMPLES = """\
python -m lab prove                             all of it, an hour or so
python -m lab prove --every 500 --long 0        a sample, in seconds
python -m lab prove --write docs/accuracy.md    put the table there
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="one of N steps of up to three calls only"
    )
    parser.add_argument(
        "--long",
        type=int,
        default=20,
        metavar="N",
        help="steps of four to six calls to draw for each set of groups (default: 20)",
    )
    parser.add_argument("--seed", type=int, default=0, help="which sample (default: 0)")
    parser.add_argument(
        "--show", type=int, default=5, metavar="N", help="wrong verdicts to show (default: 5)"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this file")


def run(args: argparse.Namespace) -> int:
    """Run, print the table; 1 if any verdict was wrong."""
    from lab.prove.plan import chunks
    from lab.prove.sweep import judge_worlds, worlds_of
    from lab.prove.table import as_markdown, described, in_file

    tally = Tally()
    try:
        for shape, programs in chunks(every=args.every, long_steps=args.long, seed=args.seed):
            judge_worlds(worlds_of(shape, programs), tally)
            if sys.stderr.isatty():
                print(f"\r{tally.counts['programs']:,} programs", end="", file=sys.stderr)
    except KeyboardInterrupt:
        print("Stopped: this is what was judged until then.", file=sys.stderr)
    text = as_markdown(tally.counts)
    print(text)
    for fault in islice(tally.faults, args.show):
        print(described(fault))
    if args.write:
        old = args.write.read_text(encoding="utf-8") if args.write.exists() else ""
        args.write.write_text(in_file(old, text), encoding="utf-8")
    return int(bool(tally.faults))
