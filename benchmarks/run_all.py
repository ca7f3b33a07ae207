"""Run the benchmarks and write docs/benchmarks.md.

A part of them replaces only its own sections; each section says on which machine it was measured.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from pathlib import Path

from benchmarks import chart
from benchmarks.figures import ROOT, show

__all__ = ["MODULES", "main"]

MODULES = (
    "startup", "diagnose", "verdict", "recorder", "recorder_jobs", "stacks_merge", "stacks_live",
    "run_overhead", "hang_watch", "hang_watch_auto", "slow_ranks", "hang_verdict", "detection",
    "logs", "fleet",
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
    args = parser.parse_args(argv)
    if unknown := set(args.modules) - set(MODULES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    sections = read_sections(args.output)
    for name in args.modules or MODULES:
        print(f"{name} …", file=sys.stderr, flush=True)
        sections[name] = show(import_module(f"benchmarks.{name}").main(quick=args.quick))
        print(sections[name], flush=True)
        args.output.write_text(page(sections), encoding="utf-8")
    if args.output == PAGE:
        chart.main()
    return 0


def read_sections(path: Path) -> dict[str, str]:
    """The sections of an earlier page; none where there is no page."""
    if not path.exists():
        return {}
    return dict(_SECTION.findall(path.read_text(encoding="utf-8")))


def page(sections: dict[str, str]) -> str:
    """The whole page, sections in the order of the table."""
    parts = [f"<!-- {name} -->\n{sections[name].strip()}\n" for name in MODULES if name in sections]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    sys.exit(main())
