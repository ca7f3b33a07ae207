"""How much more a verdict costs when a job doubles, from the rows of the page's section `diagnose`.

Nothing is measured: `python -m benchmarks.run_all growth` works the figures out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log2

from benchmarks import chart
from benchmarks.figures import Section

__all__ = ["main", "per_doubling"]


def main(*, quick: bool = False) -> Section:
    """Work the figures out."""
    del quick
    series = chart.series_of(chart.PAGE.read_text(encoding="utf-8"))
    return Section(
        title="Growth per doubling",
        text=(
            "CPU time by number of ranks, from the figures of `diagnose` above: how many times as "
            "much for twice the ranks. 2 is linear; below it start-up still counts."
        ),
        columns=("ranks", *series),
        rows=tuple(_rows(series)),
    )


def _rows(series: dict[str, list[chart.Point]]) -> Iterator[tuple[str, ...]]:
    found = {name: per_doubling(points) for name, points in series.items()}
    for span in dict.fromkeys(span for each in found.values() for span in each):
        cells = (f"{each[span]:.2f}" if span in each else "" for each in found.values())
        yield f"{span[0]:,.0f} to {span[1]:,.0f}", *cells


def per_doubling(points: Sequence[chart.Point]) -> dict[tuple[float, float], float]:
    """Growth from each size to the next, as if every doubling between them cost alike."""
    return {
        (few, many): (most / least) ** (1 / log2(many / few))
        for (few, least), (many, most) in pairwise(points)
    }
