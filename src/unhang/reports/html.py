"""The report as one HTML page that works offline: no request leaves it, no script is needed.

Everything foreign is escaped by the template engine. With the case at hand, and plotly installed,
the page also draws the last calls of the ranks over time.
"""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from unhang.case import Case
from unhang.errors import MissingExtraError
from unhang.report import Report
from unhang.reports.look import Look
from unhang.reports.story import tell
from unhang.reports.timeline import Lanes, lanes

__all__ = ["render"]

_KINDS = {  # kind -> name in the legend, colour
    "finished": ("finished", "#4c78a8"),
    "tick": ("finished, end not recorded", "#9aa9bb"),
    "waiting": ("not finished", "#d64545"),
}
_LANE_PX, _FRAME_PX = 22, 120


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the page; `look` changes nothing.

    Raises:
        MissingExtraError: If jinja2 is not installed.
    """
    del look
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("The HTML report", "html") from error
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = files("unhang.reports").joinpath("assets/report.html.j2").read_text(encoding="utf-8")
    drawn = lanes(case, report) if case is not None and find_spec("plotly") else None
    page = environment.from_string(source).render(
        story=tell(report),
        report=report,
        left_out=drawn.left_out if drawn else "",
        figure=_embedded(_figure(drawn)) if drawn else "",
        plotly=_plotly() if drawn else "",
    )
    return page + "\n"


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _embedded(value: object) -> str:
    """Write JSON that no HTML parser can mistake for markup."""
    text = json.dumps(value)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _figure(drawn: Lanes) -> dict[str, Any]:
    """Return the data and layout for plotly: a bar trace for each kind of call."""
    return {
        "data": [trace for kind in _KINDS if (trace := _trace(drawn, kind))],
        "layout": {
            "barmode": "overlay",
            "bargap": 0.3,
            "height": _FRAME_PX + _LANE_PX * len(drawn.ranks),
            "margin": {"l": 70, "r": 10, "t": 10, "b": 45},
            "xaxis": {"title": {"text": "seconds before the last sign of life"}},
            "yaxis": {
                "title": {"text": "rank"},
                "tickvals": list(range(len(drawn.ranks))),
                "ticktext": [str(rank) for rank in drawn.ranks],
                "autorange": "reversed",
            },
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
        },
    }


def _trace(drawn: Lanes, kind: str) -> dict[str, Any]:
    rows = [row for row, of in enumerate(drawn.kind) if of == kind]
    if not rows:
        return {}
    name, colour = _KINDS[kind]
    common = {
        "name": name,
        "y": [drawn.lane[row] for row in rows],
        "hovertext": [_plain(drawn.words[row]) for row in rows],
        "hoverinfo": "text",
    }
    if kind == "tick":
        marker = {"symbol": "line-ns-open", "size": 10, "color": colour}
        begins = [drawn.begin_s[row] for row in rows]
        return common | {"type": "scatter", "mode": "markers", "x": begins, "marker": marker}
    return common | {
        "type": "bar",
        "orientation": "h",
        "base": [drawn.begin_s[row] for row in rows],
        "x": [drawn.length_s[row] for row in rows],
        "marker": {"color": colour},
    }


def _plain(words: str) -> str:
    """Take the marks away: plotly reads a little HTML in what it shows."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
