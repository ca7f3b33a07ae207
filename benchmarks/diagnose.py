"""`unhang diagnose` beside `torchfrtrace` and a bare read: whole processes over the same files.

Beyond the sizes that the other program reaches, ours is measured alone.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.figures import MIB, Cost, Section, measure, program, show
from benchmarks.jobs import Shape, write_dumps

__all__ = ["main"]

SIZES = (8, 64, 256, 1024, 16384)
LARGEST_OF_THE_OTHER = 1024
ENTRIES = 2000
RUNS = 9
RUNS_OF_THE_OTHER = 1  # it takes minutes at the largest size, and its spread is small beside that


def main(*, quick: bool = False) -> Section:
    """Measure each size; `quick` leaves out the largest two."""
    return Section(
        title="diagnose, beside torchfrtrace",
        text=(
            f"Generated dumps of a job with {ENTRIES:,} entries a rank and a stack of 20 frames "
            "each, one rank of which never joined. Wall and CPU time, peak memory of processes, "
            f"files in the page cache but for the largest size; medians of {RUNS} runs of `unhang "
            "diagnose`, 1 of the largest, of `torchfrtrace` and of `cat` (the bare read).\n\n"
            "![CPU time by number of ranks](images/diagnose.svg)"
        ),
        columns=(
            *("ranks", "input", "unhang", "CPU", "peak"),
            *("torchfrtrace", "CPU", "peak", "times faster", "by CPU", "bare read", "CPU"),
        ),
        rows=tuple(_rows(SIZES[:-2] if quick else SIZES)),
    )


def _rows(sizes: tuple[int, ...]) -> Iterator[tuple[str, ...]]:
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as scratch:
        place = Path(scratch)
        for ranks in sizes:
            yield _row(place / str(ranks), Shape(ranks, ENTRIES))


def _row(place: Path, shape: Shape) -> tuple[str, ...]:
    dumps = place / "dumps"
    with ProcessPoolExecutor(1) as writer:  # the peak of a program counts what started it
        size = writer.submit(write_dumps, dumps, shape).result()
    ours = _diagnose(dumps, runs=RUNS if shape.ranks <= LARGEST_OF_THE_OTHER else 1)
    theirs = _other(dumps, ours) if shape.ranks <= LARGEST_OF_THE_OTHER else ("",) * 5
    read = measure(["sh", "-c", 'ls "$0" | (cd "$0" && xargs cat)', str(dumps)], runs=1)
    cells = (
        *(f"{shape.ranks:,}", f"{size / MIB:.0f} MiB", *_cells(ours), *theirs),
        *(f"{read.wall_s:.2f} s", f"{read.cpu_s:.3f} s"),
    )
    shutil.rmtree(place)
    return cells


def _diagnose(dumps: Path, runs: int) -> Cost:
    """What a verdict costs."""
    cost = measure(program("diagnose", str(dumps)), runs=runs)
    if cost.exit_code != 1:
        raise RuntimeError(f"diagnose ended with {cost.exit_code} on a job with a fault")
    return cost


def _cells(cost: Cost) -> tuple[str, str, str]:
    return f"{cost.wall_s:.2f} s", f"{cost.cpu_s:.2f} s", f"{cost.peak_mib:,.0f} MiB"


def _other(directory: Path, ours: Cost) -> tuple[str, ...]:
    tool = shutil.which("torchfrtrace") or str(Path(sys.executable).with_name("torchfrtrace"))
    if not Path(tool).exists():
        return ("not installed", "", "", "", "")
    theirs = measure([tool, str(directory)], runs=RUNS_OF_THE_OTHER)
    by_wall, by_cpu = theirs.wall_s / ours.wall_s, theirs.cpu_s / ours.cpu_s
    return (*_cells(theirs), f"{by_wall:.0f}", f"{by_cpu:.0f}")


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
