"""Judging again whenever the evidence has changed: a case that fills while a user watches it.

It is looked at from outside, by names, sizes and times of its files. What is half written is judged
once it has stood still for a look, or after some looks; what cannot be judged yet is waited for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from unhang.cli.shared.case_paths import CASES, newest_case
from unhang.cli.shared.output import exit_code
from unhang.errors import InputError, UsageError
from unhang.wording import printable

if TYPE_CHECKING:
    from unhang.report import Report

_LOOK_S = 0.5
_PATIENCE = 10
"""Looks after which evidence is judged that keeps changing."""

_INTERRUPTED = 130
_CLEAR = "\x1b[2J\x1b[H"

State: TypeAlias = frozenset[tuple[str, int, int]]
Judge: TypeAlias = "Callable[[], tuple[Report, Callable[[], int]]]"


@dataclass(slots=True)
class Lookout:
    """What is looked at, and what has been seen of it.

    Attributes:
        paths: As the user named them; empty for the newest case.
        beside: Further files that are read.
        complaint: Why it could not be judged when that was last tried.
    """

    paths: tuple[str, ...]
    beside: tuple[str, ...] = ()
    complaint: str = ""
    _judged: State | None = None
    _seen: State | None = None
    _looks: int = 0

    def now(self) -> list[str]:
        """The paths as of now; none where there is no case yet."""
        if self.paths:
            return list(self.paths)
        try:
            return [str(newest_case(CASES))]
        except UsageError:
            return []

    def has_news(self) -> bool:
        """Look once: is there something to judge that has not been?"""
        state = frozenset(_files([*self.now(), *self.beside]))
        if state == self._judged or not state:
            return False
        self._looks += 1
        settled = state == self._seen or self._looks >= _PATIENCE
        self._seen = state
        if settled:
            self._judged, self._looks = state, 0
        return settled


def _files(paths: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    for path in map(Path, paths):
        for each in [path, *(path.rglob("*") if path.is_dir() else ())]:
            try:
                state = each.stat()
            except OSError:  # it has gone since
                continue
            if not each.is_dir():
                yield str(each), state.st_size, state.st_mtime_ns


def _verdict_of(report: Report) -> object:
    """What makes a verdict another one: not its notes, and not what its evidence lies in."""
    found = tuple((f.code, f.role, f.confidence, f.culprits, f.summary) for f in report.findings)
    return report.status, report.summary, found


def follow(lookout: Lookout, judge: Judge, fail_on: str) -> int:
    """Judge and show until Ctrl-C; returns the exit code of the last verdict.

    Args:
        lookout: What to look at.
        judge: Reads and judges; gives the report, and what shows it.
        fail_on: As for `exit_code`.
    """
    if lookout.paths and not any(Path(path).exists() for path in lookout.paths):
        judge()  # says what is wrong with them
    code, last = _INTERRUPTED, object()
    terminal = sys.stdout.isatty()
    what = printable(", ".join(lookout.paths)) or f"the newest case under ./{CASES}"
    print(f"unhang: watching {what} until Ctrl-C", file=sys.stderr, flush=True)
    try:
        while True:
            found = _tried(lookout, judge) if lookout.has_news() else None
            if found is not None:
                report, show = found
                verdict, code = _verdict_of(report), exit_code(report, fail_on)
                if terminal or verdict != last:
                    sys.stdout.write(_CLEAR if terminal else "")
                    last = verdict
                    show()
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        return code


def _tried(lookout: Lookout, judge: Judge) -> tuple[Report, Callable[[], int]] | None:
    """Judge; what cannot be judged yet is said once."""
    try:
        return judge()
    except InputError as error:
        if error.message != lookout.complaint:
            told = printable(error.message)
            print(f"unhang: {told}: waiting for more", file=sys.stderr, flush=True)
        lookout.complaint = error.message
        return None
