"""What other jobs than the plain one cost: more calls, more stacks, JSON, tables, lists of members.

Whole processes over the same files, each size beside a bare read of them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.figures import MIB, Section, measure, program, show
from benchmarks.jobs import Shape, write_dumps

__all__ = ["main"]

SHAPES = (
    ("100 calls a rank", Shape(64, 100)),
    ("2,000 calls a rank", Shape(64, 2_000)),
    ("20,000 calls a rank", Shape(64, 20_000)),
    ("2,000 stacks", Shape(64, 2_000, places=2_000)),
    ("stacks of 100 frames", Shape(64, 2_000, depth=100)),
    ("2,000 stacks of 100 frames", Shape(64, 2_000, places=2_000, depth=100)),
    ("JSON", Shape(256, 2_000, as_json=True)),
)
LARGE = Shape(1_024, 2_000)
LISTS = Shape(16_384, 2_000, active_only=True)


def main(*, quick: bool = False) -> Section:
    """Measure each shape; `quick` leaves out the large ones."""
    return Section(
        title="Other jobs, and tables",
        text=(
            "As above, jobs of other shapes: 5 stacks of 20 frames unless the row says otherwise. "
            "`--db` and `--parquet` also write the case as tables. The last row's dumps hold "
            "unfinished calls only, and each lists all ranks as text. Medians of 3 runs."
        ),
        columns=(
            *("dumps", "ranks", "input", "unhang", "CPU", "peak"),
            *("input by CPU", "bare read", "CPU"),
        ),
        rows=tuple(_rows(quick=quick)),
    )


def _rows(*, quick: bool) -> Iterator[tuple[str, ...]]:
    for name, shape in SHAPES:
        yield from _measured(shape, {name: ()})
    if quick:
        return
    tables = {"2,000 calls a rank": (), "the same, --db": ("--db", "out.duckdb"),
              "the same, --parquet": ("--parquet", "out")}  # fmt: skip
    yield from _measured(LARGE, tables)
    yield from _measured(LISTS, {"unfinished calls only": ()})


def _measured(shape: Shape, ways: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as scratch:
        dumps = Path(scratch, "dumps")
        with ProcessPoolExecutor(1) as writer:  # the peak of a program counts what started it
            size = writer.submit(write_dumps, dumps, shape).result()
        read = measure(["sh", "-c", 'ls "$0" | (cd "$0" && xargs cat)', str(dumps)])
        for name, option in ways.items():
            words = [*option[:1], *(str(Path(scratch, word)) for word in option[1:])]
            words += ["--force"] if option else []  # since it is run several times
            cost = measure(program("diagnose", str(dumps), *words))
            if cost.exit_code != 1:
                raise RuntimeError(f"diagnose ended with {cost.exit_code} on a job with a fault")
            yield (
                *(name, f"{shape.ranks:,}", f"{size / MIB:,.0f} MiB"),
                *(f"{cost.wall_s:.2f} s", f"{cost.cpu_s:.2f} s", f"{cost.peak_mib:,.0f} MiB"),
                f"{size / 1e6 / cost.cpu_s:,.0f} MB/s",
                *(f"{read.wall_s:.2f} s", f"{read.cpu_s:.2f} s"),
            )


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
