"""Hold every small program with every single deviation against the analysis (`make prove`)."""

from __future__ import annotations

import argparse
import math
import sys
import time
from itertools import islice
from pathlib import Path

EXAMPLES = """\
python -m lab prove                             all of it, an hour or so of a core
python -m lab prove --minutes 20 --processes 2  as many as there is time for
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
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="workers (default: 1)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        metavar="N",
        help="stop after so long (default: never)",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this file")


def run(args: argparse.Namespace) -> int:
    """Run, print the table; 1 if any verdict was wrong."""
    from lab.prove.plan import chunks
    from lab.prove.sweep import Tally, judged_by
    from lab.prove.table import as_markdown, described
    from lab.sections import in_page

    pieces = chunks(every=args.every, long_steps=args.long, seed=args.seed)
    tally, done = Tally(), 0
    until = time.monotonic() + (args.minutes * 60 if args.minutes else math.inf)
    try:
        for done, part in enumerate(judged_by(pieces, args.processes), start=1):
            tally.add(part)
            print(f"{done} of {len(pieces)} parts, {tally.told()}", file=sys.stderr, flush=True)
            if time.monotonic() > until:
                break
    except KeyboardInterrupt:
        print("Stopped: this is what was judged until then.", file=sys.stderr)
    text = as_markdown(tally.counts, args.every, (done, len(pieces)))
    print(text)
    for fault in islice(tally.faults, args.show):
        print(described(fault))
    if args.write:
        old = args.write.read_text(encoding="utf-8") if args.write.exists() else ""
        args.write.write_text(in_page(old, text), encoding="utf-8")
    return int(bool(tally.faults))
