"""Run the benchmarks and write docs/benchmarks.md.

A part of them replaces only its own sections; each section says on which machine it was measured.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import chart
from benchmarks.figures import INSTALLED, ROOT, show
from benchmarks.first_use import environment

__all__ = ["MODULES", "main"]

MODULES = (
    "startup", "first_use", "diagnose", "growth", "shapes", "verdict", "recorder", "recorder_jobs",
    "stacks_merge", "stacks_live", "run_overhead", "hang_watch", "hang_watch_auto", "slow_ranks",
    "hang_verdict", "detection", "logs", "fleet",
)  # fmt: skip
PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`; parts of it by `python -m benchmarks.run_all startup diagnose …`.
Each section says where it was measured. Compare figures within a section only.
"""
_SECTION = re.compile(r"<!-- (\w+) -->\n(.*?)(?=<!-- |\Z)", re.DOTALL)


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="BENCHMARK", help=", ".join(MODULES))
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer runs")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help=f"default: {PAGE.name}")
    parser.add_argument(
        "--installed", action="store_true", help="build a wheel, install it, and measure that"
    )
    args = parser.parse_args(argv)
    if unknown := set(args.modules) - set(MODULES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as scratch:
        if args.installed:
            os.environ[INSTALLED] = str(environment(Path(scratch)))
        _run(args.modules or MODULES, args.output, quick=args.quick)
    if args.output == PAGE:
        chart.main()
    return 0


def _run(modules: Sequence[str], output: Path, *, quick: bool) -> None:
    sections = read_sections(output)
    head = output.read_text(encoding="utf-8").partition("<!-- ")[0].rstrip() if sections else HEAD
    for name in modules:
        print(f"{name} …", file=sys.stderr, flush=True)
        sections[name] = show(import_module(f"benchmarks.{name}").main(quick=quick))
        print(sections[name], flush=True)
        output.write_text(page(sections, head), encoding="utf-8")


def read_sections(path: Path) -> dict[str, str]:
    """The sections of an earlier page; none where there is no page."""
    if not path.exists():
        return {}
    return dict(_SECTION.findall(path.read_text(encoding="utf-8")))


def page(sections: dict[str, str], head: str = HEAD) -> str:
    """The whole page, sections in the order of the table."""
    parts = [f"<!-- {name} -->\n{sections[name].strip()}\n" for name in MODULES if name in sections]
    return "\n".join([head.rstrip() + "\n", *parts])


if __name__ == "__main__":
    sys.exit(main())
