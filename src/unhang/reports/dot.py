"""Who waits for whom as a DOT graph (Graphviz): the same nodes and links as on the page."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.case import Case
from unhang.picture import Knot, Picture
from unhang.report import Report
from unhang.reports.content.phrases import short_path
from unhang.reports.look import Look
from unhang.wording import printable

_FILL = {"culprit": "#f4a3a3", "silent": "#f4d3d3", "unreadable": "#f4d3d3", "waiting": "#fbe3a5"}


def render(
    report: Report,
    case: Case | None = None,
    look: Look | None = None,
    picture: Picture | None = None,
) -> str:
    """Return the graph; without a picture it has no node."""
    del case, look
    return "\n".join(_lines(report, picture or Picture())) + "\n"


def _lines(report: Report, picture: Picture) -> Iterator[str]:
    yield "digraph waits {"
    yield f"  label={_quoted(report.summary)}; labelloc=t; rankdir=BT;"
    yield "  node [fontname=sans, shape=box];"
    for number, knot in enumerate(picture.nodes):
        yield f"  n{number} [{_look_of(knot)}];"
    for link in picture.links:
        dashed = "" if link.known else ", style=dashed"
        yield f"  n{link.source} -> n{link.target} [label={_quoted(link.why)}{dashed}];"
    yield "}"


def _look_of(knot: Knot) -> str:
    if knot.kind == "call":
        where = f"\n{short_path(knot.place)}" if knot.place else ""
        return f"label={_quoted(knot.label + where)}, shape=ellipse"
    colour = f', style=filled, fillcolor="{_FILL[knot.status]}"' if knot.status in _FILL else ""
    text = f"{knot.label}\n{knot.status}"
    return f"label={_quoted(text)}{colour}"


def _quoted(text: str) -> str:
    """A string of the language: lines stay lines, nothing else is special."""
    lines = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + "\\n".join(lines) + '"'
