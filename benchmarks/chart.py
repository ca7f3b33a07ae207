"""Draw what a verdict costs as a picture: ranks to the right, seconds of CPU time upwards.

    python -m benchmarks.chart

The figures are those of the table in docs/benchmarks.md, so that picture and table cannot disagree.
Both axes are logarithmic: a program whose cost grows with the ranks is a straight line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, log10

from benchmarks.figures import ROOT

__all__ = ["draw", "main", "series_of"]

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "images" / "diagnose.svg"
SHOWN = {"torchfrtrace": "#c2410c", "unhang": "#1d4ed8", "bare read": "#64748b"}
"""Programs by the heading of the column before their CPU time, and their colours."""

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 120, 24, 48

Point = tuple[float, float]


def main() -> None:
    """Draw the picture of the page."""
    PICTURE.write_text(draw(series_of(PAGE.read_text(encoding="utf-8"))), encoding="utf-8")


def series_of(page: str) -> dict[str, list[Point]]:
    """Ranks and CPU seconds of each program, from the page's section `diagnose`."""
    section = page.partition("<!-- diagnose -->")[2].partition("<!-- ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and not line.startswith("| ---")
    ]
    head, *body = rows
    found = {}
    for name in (name for name in SHOWN if name in head):
        column = head.index(name) + 1
        found[name] = [
            (_number(row[0]), _number(row[column])) for row in body if _number(row[column]) > 0
        ]
    return found


def _number(cell: str) -> float:
    match = re.match(r"[\d,]+(?:\.\d+)?", cell)
    return float(match[0].replace(",", "")) if match else 0.0


def draw(series: Mapping[str, Sequence[Point]]) -> str:
    """Draw lines of points, both above 0, as SVG."""
    ranks = sorted({x for points in series.values() for x, _ in points})
    seconds = [y for points in series.values() for _, y in points]
    low, high = floor(log10(min(seconds))), ceil(log10(max(seconds)))
    across, up = log10(ranks[0]), log10(ranks[-1])

    def place(point: Point) -> Point:
        right = (log10(point[0]) - across) / max(up - across, 1e-9)
        above = (log10(point[1]) - low) / max(high - low, 1)
        return (
            LEFT + right * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - above * (HEIGHT - TOP - BOTTOM),
        )

    lines = [line for name, points in series.items() for line in _line(name, map(place, points))]
    marks = [
        _level(10.0**power, place((ranks[0], 10.0**power))[1]) for power in range(low, high + 1)
    ]
    marks += [_text(place((x, 10.0**low))[0], HEIGHT - 26, f"{x:,.0f}", "middle") for x in ranks]
    middle = (LEFT + WIDTH - RIGHT) / 2
    marks += [_text(middle, HEIGHT - 8, "ranks, 2,000 calls each", "middle"),
              _text(8, 14, "CPU seconds of the whole process", "start")]  # fmt: skip
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#334155">'
    )
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    return "\n".join([head, ground, *marks, *lines, "</svg>", ""])


def _level(value: float, y: float) -> str:
    line = f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e2e8f0"/>'
    return line + _text(LEFT - 8, y + 4, f"{value:g} s", "end")


def _line(name: str, points: Iterable[Point]) -> Iterator[str]:
    placed, colour = list(points), SHOWN[name]
    if not placed:
        return
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    yield f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in placed:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    x, y = placed[-1]
    yield _text(x + 8, y + 4, name, "start", colour)


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#334155") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


if __name__ == "__main__":
    main()
