"""Draws what was measured as SVG: shares of cases over a time, and bars. No library is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from typing import Final

__all__ = ["bars", "shares"]

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 44
COLOURS: Final = ("#1f6feb", "#d1570a", "#2a7f41", "#8250df")
_X, _Y = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


def shares(
    title: str, curves: Mapping[str, Sequence[float]], marks: Sequence[float], unit: str = "s"
) -> str:
    """Which share of the cases was over after how long.

    Args:
        title: Above the picture.
        curves: By name, a time of each case.
        marks: Times on the axis, which is logarithmic; the first and the last are its ends.
        unit: Of the times.
    """
    low, high = log10(marks[0]), log10(marks[-1])

    def x(value: float) -> float:
        place = (log10(max(value, marks[0])) - low) / (high - low)
        return LEFT + _X * min(place, 1.0)

    parts = [_percent(share) for share in (0, 25, 50, 75, 95, 100)]
    parts += [_tick(x(mark), f"{mark:g} {unit}") for mark in marks]
    for number, (name, values) in enumerate(curves.items()):
        ordered, colour = sorted(values), COLOURS[number]
        points = [f"{LEFT:.1f},{TOP + _Y:.1f}"]
        for at, value in enumerate(ordered):
            before, after = (TOP + _Y * (1 - n / len(ordered)) for n in (at, at + 1))
            points += [f"{x(value):.1f},{before:.1f}", f"{x(value):.1f},{after:.1f}"]
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" '
            'stroke-width="2"/>'
        )
        parts.append(_legend(number, f"{name} ({len(ordered)})", colour))
    return _page(title, parts)


def bars(title: str, names: Sequence[str], rows: Mapping[str, Sequence[int]]) -> str:
    """How many of each kind, on a logarithmic axis; a bar for each row, side by side.

    Args:
        title: Above the picture.
        names: Of the groups of bars.
        rows: By name, a number for each group.
    """
    most = log10(max(max(row, default=1) for row in rows.values()) or 1) + 0.3
    group = _X / len(names)
    wide = group * 0.8 / len(rows)
    parts = []
    for power in range(int(most) + 1):
        y = TOP + _Y * (1 - (power + 0.3) / (most + 0.3))
        parts.append(_line(y, f"{10**power:,}"))
    for at, name in enumerate(names):
        parts.append(_tick(LEFT + group * (at + 0.5), name))
    for number, (name, row) in enumerate(rows.items()):
        colour = COLOURS[number]
        for at, count in enumerate(row):
            high = _Y * (log10(count) + 0.3) / (most + 0.3) if count else 0.0
            left = LEFT + group * (at + 0.1) + wide * number
            parts.append(
                f'<rect x="{left:.1f}" y="{TOP + _Y - high:.1f}" width="{wide:.1f}" '
                f'height="{high:.1f}" fill="{colour}"/>'
                f'<text x="{left + wide / 2:.1f}" y="{TOP + _Y - high - 4:.1f}" '
                f'text-anchor="middle">{count}</text>'
            )
        parts.append(_legend(number, name, colour))
    return _page(title, parts)


def _percent(share: int) -> str:
    return _line(TOP + _Y * (1 - share / 100), f"{share} %")


def _line(y: float, text: str) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d7de"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    )


def _tick(x: float, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(text)}</text>'
    )


def _legend(number: int, text: str, colour: str) -> str:
    x, y = LEFT + 150 * number, HEIGHT - 8
    return (
        f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        f'<text x="{x + 15}" y="{y}">{escape(text)}</text>'
    )


def _page(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12" '
        'fill="#57606a">\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="{LEFT}" y="20" font-size="14" fill="#24292f">{escape(title)}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
