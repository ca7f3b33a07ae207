"""The last line of a run that had an incident: tracebacks have pushed the verdict far up."""

from __future__ import annotations

from pathlib import Path

from unhang.run.incident.verdict import Verdict
from unhang.wording import printable

_MOST = 240


def short_path(path: Path | None) -> str:
    """A path as people like to see it: from here, where it is below."""
    try:
        return str(path.relative_to(Path.cwd())) if path else ""
    except (ValueError, OSError):
        return str(path)


def closing_line(verdict: Verdict, code: int) -> str:
    """The verdict in one line, its place and its case.

    Args:
        verdict: Of the last incident.
        code: Exit code of the command.

    Returns:
        "" where there is no case to point to.
    """
    if verdict.case is None:
        return ""
    what = f"{verdict.status.upper()}  {printable(verdict.summary, _MOST)}"
    if not verdict.status:
        what = "there is no verdict"
    before = "the command succeeded, after: " if code == 0 else ""
    place = f"{printable(verdict.place, _MOST)}; " if verdict.place else ""
    return f"{before}{what} ({place}case: {short_path(verdict.case)})"
