"""Incidents that lie in directories, each by its saved report, or judged again where it has none.

`Verdicts` looks at them again and again: for cases that come, and for those of jobs that run now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unhang.context.recalled import Past, cases_in, facts_of
from unhang.errors import UnhangError
from unhang.incoming import value_of
from unhang.report import Report
from unhang.reports.json import sayable_json

if TYPE_CHECKING:
    from unhang.run.watching.now import JobNow

_MOST_REPORT = 64 << 20
_MOST_KEPT = 4_096
_NS = 1_000_000_000


def tried(case: Path) -> Past | str:
    """What a case came to, or why that is not known."""
    try:
        return past_of(case)
    except (UnhangError, ValueError, OSError) as error:
        return str(error)


def past_of(case: Path) -> Past:
    """What a case came to, by the report in it or by judging it.

    Raises:
        ValueError: Its report is none.
        InputError: It cannot be read.
        OSError: The same.
    """
    saved = case / "report.json"
    if saved.is_file() and saved.stat().st_size <= _MOST_REPORT:
        return facts_of(case, value_of(saved.read_bytes()))
    from unhang.analysis import diagnose
    from unhang.ingest import load

    return facts_of_report(case, diagnose(load([case])))


def facts_of_report(case: Path, report: Report | Any) -> Past:  # noqa: ANN401 - JSON
    """The facts of one report.

    Raises:
        ValueError: It has not the shape of a report.
    """
    return facts_of(case, sayable_json(report))


@lru_cache(maxsize=_MOST_KEPT)
def past_at(path: Path, changed: int) -> Past | str:
    """What a case came to, or why that is not known; again only when it has changed."""
    del changed
    return tried(path)


def changed_ns(path: Path) -> int:
    """When a case or its report was last written."""
    times = [path.stat().st_mtime_ns]
    with suppress(OSError):
        times.append((path / "report.json").stat().st_mtime_ns)
    return max(times)


def _key_of(path: Path) -> str:
    """A short name that tells no path."""
    return hashlib.sha256(str(path.absolute()).encode("utf-8", "replace")).hexdigest()[:16]


class Verdicts:
    """Looks at the cases under some paths again and again."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._before = _judged_at(self.paths())

    def paths(self) -> dict[str, Path]:
        """Cases by a short name; those of now."""
        found = cases_in(path for path in self._paths if path.is_dir())
        return {_key_of(path): path for path in found}

    def read_ahead(self) -> None:
        """Read the reports before the list is asked for: that of 1,000 cases waited for them."""
        paths = self.paths()
        for key, changed in islice(_judged_at(paths).items(), _MOST_KEPT):
            past_at(paths[key], changed)

    def since(self, told: dict[str, int], jobs: Sequence[JobNow]) -> list[tuple[str, Past]]:
        """What is new since `told`, which grows by it, oldest first: who looks late sees all.

        Of cases that were there before this began, those of jobs that run now.
        """
        found: list[Past] = []
        paths = self.paths()
        for key, changed in _judged_at(paths).items():
            if told.get(key) == changed:
                continue
            past, told[key] = past_at(paths[key], changed), changed
            is_new = self._before.get(key) != changed
            if isinstance(past, Past) and (is_new or _is_of(past, jobs)):
                found.append(past)
        return [(_key_of(past.path), past) for past in sorted(found, key=attrgetter("time_s"))]


def _judged_at(paths: Mapping[str, Path]) -> dict[str, int]:
    """Cases that have a verdict, and when they changed; one that has just gone is none."""
    found: dict[str, int] = {}
    for key, path in paths.items():
        with suppress(OSError):
            if (path / "report.json").is_file():
                found[key] = changed_ns(path)
    return found


def _is_of(past: Past, jobs: Sequence[JobNow]) -> bool:
    """Whether it is an incident of a job that runs now, and not of an earlier one of its name."""
    return any(job.job == past.job_id and past.time_s * _NS >= job.began_ns > 0 for job in jobs)
