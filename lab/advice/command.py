"""Run every command that the reports of the corpus advise, as it is printed.

All cases of the simulated parts are made and judged, and so are the real dumps and the captured
hangs; whatever stands under `next` is run. What fails is told by the shape of its command.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.advice.trying import Tried

EXAMPLES = """python -m lab advice
python -m lab advice --largest 8 --every 20"""

_CAPTURED = Path(__file__).parents[2] / "examples"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `python -m lab advice`."""
    parser.add_argument("--largest", type=int, default=64, metavar="N", help="ranks; default: 64")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th case only")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default: 2)")


def run(args: argparse.Namespace) -> int:
    """Try all of it; exit code 1 if anything fails."""
    tried = list(_all(args))
    shapes = Counter(each.shape for each in tried)
    for shape, count in shapes.most_common():
        print(f"{count:6,}  {shape}")
    failed = [each for each in tried if each.failure]
    for each in failed:
        where = "of the held-out part" if each.case.startswith("held-out") else each.case
        print(f"failed: {each.command}\n  {where}: {each.failure}")
    cases = len({each.case for each in tried})
    print(
        f"{len(tried):,} commands of {cases:,} reports, {len(shapes)} shapes: {len(failed)} failed"
    )
    return int(bool(failed))


def _all(args: argparse.Namespace) -> Iterator[Tried]:
    from lab.advice.trying import try_archive, try_folder, try_spec
    from lab.score.captures import real_cases
    from lab.simulate.corpus import cases

    for place in sorted(path.parent for path in _CAPTURED.glob("*/truth.json")):
        yield from try_folder(place.name, place)
    specs = [s for part in ("tuned", "held-out") for s in cases(part) if s.ranks <= args.largest]
    archives = [path for path, _ in real_cases()]
    with get_context("spawn").Pool(args.processes) as pool:
        for found in pool.imap(try_archive, archives[:: args.every], chunksize=4):
            yield from found
        for found in pool.imap(try_spec, specs[:: args.every], chunksize=4):
            yield from found
