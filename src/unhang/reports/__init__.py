"""Drawing a verdict: each format is a function of the Report (and, where it helps, the Case).

    render(report, case=None, look=Look()) -> str

Those of `PICTURED` also take the picture of the case, which the analysis draws up.

Renderers open no files, know no command line and decide nothing. What a report says to a person,
and in which order, is put together once in `story`; text, Markdown and HTML only lay it out.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from unhang.case import Case
from unhang.report import SHOWN, Report
from unhang.reports.content.next_steps import with_steps
from unhang.reports.look import Look

if TYPE_CHECKING:
    from unhang.picture import Picture

__all__ = ["FORMATS", "PICTURED", "Look", "Renderer", "render", "with_steps"]


class Renderer(Protocol):
    """What a format's module offers as `render`."""

    def __call__(self, report: Report, case: Case | None = None, look: Look = ...) -> str:
        """Return the whole document."""


FORMATS: dict[str, str] = {
    "text": "unhang.reports.text",
    "json": "unhang.reports.json",
    "markdown": "unhang.reports.markdown",
    "html": "unhang.reports.html",
    "brief-json": "unhang.reports.briefjson",
    "jsonl": "unhang.reports.jsonlines",
    "github": "unhang.reports.ci.github",
    "sarif": "unhang.reports.ci.sarif",
    "junit": "unhang.reports.ci.junit",
    "dot": "unhang.reports.dot",
    "perfetto": "unhang.reports.perfetto",
}
"""Format -> module; a module is imported when its format is asked for."""


PICTURED = frozenset({"html", "dot", "perfetto"})
"""Formats that draw more than words."""


def render(
    name: str,
    report: Report,
    case: Case | None = None,
    look: Look | None = None,
    picture: Picture | None = None,
) -> str:
    """Draw a report in the named format (a key of `FORMATS`)."""
    module = import_module(FORMATS[name])
    if name in PICTURED:
        return str(module.render(report, case, look or Look(), picture))
    return cast("Renderer", module.render)(report, case, look or Look())


def _notebook(report: Report) -> str:
    from unhang.reports.content.notebook import render as in_notebook

    return in_notebook(report)


SHOWN["text"] = lambda report: render("text", report, None, Look(full=False)).rstrip("\n")
SHOWN["html"] = _notebook
