"""A terminal with what a command printed, as an SVG: text that scales, is searched and copied.

It is drawn from the lines alone, so that it is true as long as they are.
"""

from __future__ import annotations

from html import escape
from typing import Final

_CHAR: Final = 8.43
"""Width of a character of a monospaced font of 14 px, in px."""
_LINE: Final = 19
_MARGIN: Final = 18
_BAR: Final = 34
_COLORS: Final = {"PROBLEM": "#ff7b72", "$": "#7ee787", "#": "#8b949e"}
_LABELS: Final = ("culprit", "waiting", "why", "action", "confidence", "next")


def terminal(lines: list[str], title: str) -> str:
    """Lines as they stand in a terminal, below a bar with a title.

    Args:
        lines: What is shown, without escape sequences; the first one is usually a prompt.
        title: Of the window, read to those who do not see the picture.
    """
    width = round(2 * _MARGIN + _CHAR * max(map(len, lines)))
    height = _BAR + 2 * _MARGIN + _LINE * len(lines)
    dots = "".join(
        f'<circle cx="{20 + 20 * n}" cy="17" r="6" fill="{color}"/>'
        for n, color in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    rows = "\n".join(
        f'<text x="{_MARGIN}" y="{_BAR + _MARGIN + _LINE * n + 12}" xml:space="preserve">'
        f"{_painted(line)}</text>"
        for n, line in enumerate(lines)
        if line.strip()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        f"{dots}\n"
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        f'font-size="14" fill="#e6edf3">\n{rows}\n</g>\n</svg>\n'
    )


def _painted(line: str) -> str:
    """A line with its first word in color: the prompt, the status, a label."""
    start = len(line) - len(line.lstrip())
    word = line.split(maxsplit=1)[0]
    color = _COLORS.get(word, "#79c0ff" if word in _LABELS else "")
    if word == "#":
        return f'<tspan fill="{color}">{escape(line)}</tspan>'
    if not color:
        return escape(line)
    head, rest = line[: start + len(word)], line[start + len(word) :]
    return f'<tspan fill="{color}" font-weight="bold">{escape(head)}</tspan>{escape(rest)}'
