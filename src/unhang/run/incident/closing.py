"""The last lines of a run that had incidents: tracebacks have pushed the verdicts far up."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from unhang.run.incident.verdict import Verdict
from unhang.wording import printable

_MOST = 240
_FATAL: Final = {
    128 + each: each.name
    for each in (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL)
}
"""Exit codes of a command by the signal that ended it: those that end no job in order."""


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


def first_line(first: Verdict | None, last: Verdict) -> str:
    """The verdict of the first incident, where another one followed: a restart may hide the cause.

    Returns:
        "" where it is the same one, was a guess, or turned out to be a pause.
    """
    if first is None or first.case == last.case:
        return ""
    if first.status != "problem" or first.confidence == "low" or first.action == "wait":
        return ""
    return f"first: {closing_line(first, 1)}"


def ending_line(code: int) -> str:
    """What ended a command that no verdict explains, as a shell would say it.

    Returns:
        "" where it ended by itself, or by a signal that asks for it.
    """
    if code not in _FATAL:
        return ""
    said = f"{_FATAL[code]} ended the command; no rank was seen to hang or to fail before"
    if code == 128 + signal.SIGKILL:
        said += ". The kernel sends it for lack of memory: see dmesg"
    return said
