"""The verdict as a cell of a notebook shows it: the short form, without script or style sheet.

Notebooks leave out scripts of pages that are not trusted, and their own style applies.
"""

from __future__ import annotations

from html import escape
from typing import Final

from unhang.report import Report
from unhang.reports.content.brief import brief_of
from unhang.wording import printable

_INK: Final = {"problem": "#b4232a", "healthy": "#1a6b33"}
_OTHER_INK: Final = "#7a5200"


def render(report: Report) -> str:
    """Return markup of a few lines."""
    brief = brief_of(report)
    rows = [(label, "<br>".join(map(_text, items))) for label, items in brief.rows]
    if brief.confidence:
        rows.append(("confidence", _text(brief.confidence)))
    rows += [
        ("next", f"<code>{_text(step.command)}</code> {_text(step.why)}") for step in brief.next
    ]
    cells = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{_text(label)}</th>'
        f'<td style="text-align:left">{words}</td></tr>'
        for label, words in rows
    )
    ink = _INK.get(brief.status, _OTHER_INK)
    status = f'<b style="color:{ink}">{_text(brief.status.upper())}</b>'
    return f"<div><p>{status} {_text(brief.verdict)}</p><table>{cells}</table></div>"


def _text(value: str) -> str:
    return escape(printable(value), quote=True)
