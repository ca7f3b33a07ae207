"""Open core files of ranks: the signal, every thread's stack, what they mean, folded over ranks.

The rank is read out of the core's own memory. Stacks come from pystack, else gdb.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.output import add_report_arguments, emit, report_options
from unhang.errors import InputError, UsageError

if TYPE_CHECKING:
    from unhang.cores import CoreReading

EXAMPLES = """unhang core core.4711
unhang core /var/crash/ --format json
unhang core core.4711 --exe /opt/env/bin/python3
unhang core core.4711 --full"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang core`."""
    parser.add_argument(
        "paths", nargs="+", metavar="FILE", help="core files, directories, or globs"
    )
    parser.add_argument("--exe", metavar="PROGRAM", help="the program that made the core")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="limit per core")
    parser.add_argument("--full", action="store_true", help="print all threads of each core")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read and judge the cores."""
    from unhang.cores import find_cores, judge_cores, read_core
    from unhang.globs import expanded

    if args.timeout <= 0:
        raise UsageError("--timeout must be above 0", "It is in seconds.")
    if args.exe and not Path(args.exe).is_file():
        raise InputError(f"{args.exe} is no program", "Give the interpreter that ran the rank.")
    hint = "Give core files, directories of them, or globs."
    named = [Path(path) for name in args.paths for path in expanded(name, hint)]
    paths = [core for path in named for core in find_cores(path)]
    readings = [read_core(path, args.exe, args.timeout) for path in paths]
    if args.full:
        _print_threads(readings)
    return emit(judge_cores(readings), report_options(args))


def _print_threads(readings: list[CoreReading]) -> None:
    from unhang.wording import printable

    for reading in readings:
        print(f"{reading.path}  pid {reading.facts.pid}")
        for thread in reading.sample.threads:
            print(f"  thread {thread.tid} {printable(thread.name)}")
            for frame in thread.frames:
                print(f"    {printable(frame.function)} at {printable(frame.file)}:{frame.line}")
        print()
