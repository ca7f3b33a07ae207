"""The last case of the same job that ended well: what a good run of it wrote.

The same job is the same command, word by word, in a case next to this one. It ended well where its
report says healthy, or where the command went on and left with exit code 0. It judges nothing, and
refuses cases that do not tell their command, or from which a secret was taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Final

from unhang.casedir.contents import MANIFEST, Contents, contents_of
from unhang.casedir.reports import FOLDER
from unhang.incoming import fitting, value_in

_MOST_CASES: Final = 64
"""Cases that are looked at: the newest."""
_MOST_REPORTS: Final = 16
_MOST_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class _Report:
    status: str


def case_of(path: Path) -> Path | None:
    """The case that a path names: itself, its logs, or one of them."""
    near = (path, *path.absolute().parents[:2])
    return next((each for each in near if (each / MANIFEST).is_file()), None)


def good_before(case: Path) -> Path | None:
    """The newest case next to a case that is of the same command, older, and ended well."""
    this = contents_of(case)
    if this is None or not this.command or not this.incident.time_ns:
        return None
    found: dict[Path, int] = {}
    for other in _beside(case):
        told = contents_of(other)
        if told is None or told.command != this.command:
            continue
        before = 0 < told.incident.time_ns < this.incident.time_ns
        if before and (other / "logs").is_dir() and _ended_well(other, told):
            found[other] = told.incident.time_ns
    return max(found, key=lambda other: found[other], default=None)


def _beside(case: Path) -> list[Path]:
    """The newest cases in the same folder."""
    try:
        here = case.resolve()
        others = [path for path in here.parent.iterdir() if path != here and _is_case(path)]
        return nlargest(_MOST_CASES, others, key=lambda path: path.stat().st_mtime)
    except OSError:
        return []


def _is_case(path: Path) -> bool:
    return not path.is_symlink() and (path / MANIFEST).is_file()


def _ended_well(case: Path, told: Contents) -> bool:
    """Whether the last verdict is that nothing is wrong, or the command left with exit code 0."""
    codes = [node.ending.exit_code for node in told.nodes if node.ending]
    if codes and len(codes) == len(told.nodes) and set(codes) == {0}:
        return True
    reports = [report for path in _reports(case) if (report := _read(path))]
    return bool(reports) and all(report.status == "healthy" for report in reports)


def _reports(case: Path) -> Iterator[Path]:
    yield case / "report.json"
    yield from sorted((case / FOLDER).glob("*.json"))[-_MOST_REPORTS:]


def _read(path: Path) -> _Report | None:
    """A report; None where it is not there or is something else."""
    return next(iter(fitting([value_in(path, _MOST_BYTES)], _Report)), None)
