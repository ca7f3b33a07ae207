"""Run the benchmarks and write docs/benchmarks.md.

A part of them replaces only its own sections; each section says on which machine it was measured.
With --print nothing is written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import drawing
from benchmarks.harness import INSTALLED, ROOT, page, read_sections, scratch, show

SCRIPTS = {
    "startup": "commands", "first_use": "commands", "diagnose": "large_jobs",
    "growth": "large_jobs", "shapes": "large_jobs", "verdict": "columns", "recorder": "recorder",
    "recorder_jobs": "gloo_calls", "stacks_merge": "columns", "stacks_live": "commands",
    "run_overhead": "commands", "hang_watch": "simulated", "hang_watch_auto": "simulated",
    "slow_ranks": "simulated", "hang_verdict": "live_hangs", "detection": "live_hangs",
    "two_nodes": "live_hangs", "logs": "commands", "fleet": "large_jobs",
}  # fmt: skip
"""Sections in the order of the page, and the script that measures each."""

PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`; parts of it by `python -m benchmarks startup diagnose …`.
Each section says where it was measured. Compare figures within a section only.
"""


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="BENCHMARK", help=", ".join(SCRIPTS))
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer runs")
    parser.add_argument("--print", action="store_true", help="write nothing")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help=f"default: {PAGE.name}")
    parser.add_argument(
        "--installed", action="store_true", help="build a wheel, install it, and measure that"
    )
    args = parser.parse_args(argv)
    if unknown := set(args.names) - set(SCRIPTS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    with scratch() as place:
        if args.installed:
            from benchmarks.commands import environment

            os.environ[INSTALLED] = str(environment(place))
        _run(args.names or list(SCRIPTS), None if args.print else args.output, quick=args.quick)
    if args.output == PAGE and not args.print:
        drawing.draw_growth(PAGE)
    return 0


def _run(names: Sequence[str], output: Path | None, *, quick: bool) -> None:
    sections = read_sections(output) if output else {}
    head = output.read_text(encoding="utf-8").partition("<!-- ")[0] if output and sections else HEAD
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        measured = import_module(f"benchmarks.{SCRIPTS[name]}").SECTIONS[name]
        sections[name] = show(measured(quick=quick))
        print(sections[name], flush=True)
        if output:
            output.write_text(page(sections, list(SCRIPTS), head), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
