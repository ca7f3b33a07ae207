"""What a case says next to its evidence: code where ranks stand, whose job it is, what was before.

All of it is read from the case and the cases next to it, as hostile as any other input: what has
not the shape is left out. No path in a case is opened.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import nlargest
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct, field

from unhang.casedir.contents import contents_of
from unhang.context.differing import differences_of, files_of, read_json
from unhang.context.recalled import Past, facts_of, incidents_of, is_same_root, is_same_run
from unhang.context.storms import stopped
from unhang.context.tallies import history_of
from unhang.incoming import fitting
from unhang.report import Before, Blamed, Excerpt, Finding, Identity, Report, Site, to_json
from unhang.stacks.ownership import same_file

_MOST_LINES, _MOST_LINE = 7, 200


class _Excerpt(Struct, frozen=True):
    file: str
    line: int
    first: int
    lines: list[str]
    changed: bool = False
    digest: str = ""


class _Saved(Struct, frozen=True):
    excerpts: list[object] = field(default_factory=list)


T = TypeVar("T")


def with_surroundings(report: Report, case: Path, history: Sequence[Path] = ()) -> Report:
    """A report with what its case says apart from the evidence.

    Args:
        report: Of the case.
        case: Its directory.
        history: Directories of earlier cases, next to the one that holds it.
    """
    report = replace(
        _with_code(report, case),
        identity=_identity(case),
        differences=differences_of(case, report.ranks),
    )
    return _with_history(report, case, history)


def _with_code(report: Report, case: Path) -> Report:
    """The sites of a report with the code that was saved of them when the incident was."""
    saved = list(_saved(case))
    if not saved:
        return report
    return replace(report, findings=tuple(_with_source(each, saved) for each in report.findings))


def _with_source(finding: Finding, saved: list[_Excerpt]) -> Finding:
    sites = tuple(replace(site, source=_source_of(site, saved)) for site in finding.sites)
    return replace(finding, sites=sites)


def _source_of(site: Site, saved: list[_Excerpt]) -> Excerpt | None:
    """The code at a site; None where none was saved, or nodes have different code there."""
    found = {
        Excerpt(
            each.first, tuple(line[:_MOST_LINE] for line in each.lines), each.changed, each.digest
        )
        for each in saved
        if each.line == site.line
        and (same_file(each.file, site.file) or same_file(site.file, each.file))
    }
    return found.pop() if len(found) == 1 else None


def _saved(case: Path) -> Iterator[_Excerpt]:
    for path in files_of(case, "source-*.json", "*/source.json"):
        for each in fitting([read_json(path)], _Saved):
            for excerpt in fitting(each.excerpts, _Excerpt):
                inside = 0 < excerpt.first <= excerpt.line < excerpt.first + len(excerpt.lines)
                if inside and len(excerpt.lines) <= _MOST_LINES:
                    yield excerpt


def _told(path: Path, shape: type[T]) -> T | None:
    """What a file of a case says; None where it is not there or is something else."""
    return next(iter(fitting([read_json(path)], shape)), None)


# ------------------------------------------------------------------ whose it is


class _Surroundings(Struct, frozen=True):
    python: str = ""
    torch: str = ""
    revision: str = ""


def _identity(case: Path) -> Identity | None:
    """What the manifest says, and the surroundings of the first node that tells them."""
    told = contents_of(case)
    if told is None:
        return None
    paths = files_of(case, "node-*.json", "*/node.json")
    nodes = [node for path in paths if (node := _told(path, _Surroundings)) is not None]
    node = _Surroundings(*(_first(nodes, name) for name in ("python", "torch", "revision")))
    named = {"torch": node.torch, "Python": node.python}
    return Identity(
        job=told.job.job or "",
        attempt=told.attempt,
        hosts=told.hosts,
        time_ns=told.incident.time_ns,
        ran_s=told.incident.ran_s,
        command=tuple(told.job.command or ()),
        revision=node.revision,
        case=case.resolve().name,
        versions=tuple(f"{name} {version}" for name, version in named.items() if version),
    )


def _first(nodes: Iterable[_Surroundings], name: str) -> str:
    return next((value for node in nodes if (value := getattr(node, name))), "")


# ------------------------------------------------------------------ what was before

_MOST_CASES: Final = 256
_MOST_S: Final = 1.5
"""So long reports are read: a case on a slow disk costs the history, not the verdict."""
_NS: Final = 10**9


def _with_history(report: Report, case: Path, history: Sequence[Path]) -> Report:
    """Earlier incidents whose first cause is of the same kind and at the same line."""
    try:
        this = facts_of(case, to_json(report))
    except (ValueError, OSError):  # half a character in it, or the case has gone
        return report
    if not report.causes or not this.places:
        return report
    now_s = report.identity.time_ns / _NS if report.identity else 0.0
    this = replace(this, time_s=now_s or this.time_s)
    earlier = _earlier(case, history, this.time_s)
    looked_at = incidents_of(past for past in earlier if not is_same_run(past, this))
    same = [past for past in looked_at if is_same_root(past, this)]
    if not same:
        return report
    before = _before(same, this, len(looked_at))
    decision = stopped(report.decision, this, same, before.place)
    return replace(report, before=before, decision=decision)


def _before(same: Sequence[Past], this: Past, looked_at: int) -> Before:
    hosts = [tally for tally in history_of([*same, this]).hosts if tally.count > 1]
    return Before(
        times=len(same) + 1,
        place=this.places[0].replace("\\", "/").rpartition("/")[2],
        hosts=tuple(Blamed(tally.name, tally.count, tally.chance) for tally in hosts),
        last_ns=int(max(past.time_s for past in same) * _NS),
        looked_at=looked_at,
    )


def _earlier(case: Path, history: Sequence[Path], before_s: float) -> Iterator[Past]:
    """The newest cases by their saved reports, as many as can be read in a moment."""
    here, deadline = case.resolve(), time.monotonic() + _MOST_S
    found: dict[Path, float] = {}
    for folder in (here.parent, *history):
        with suppress(OSError):
            for path in folder.iterdir():
                if (path / "report.json").is_file() and path.resolve() != here:
                    found[path.resolve()] = path.stat().st_mtime
    for path in nlargest(_MOST_CASES, found, key=lambda each: found[each]):
        if time.monotonic() > deadline:
            return
        with suppress(ValueError, OSError):
            past = facts_of(path, read_json(path / "report.json"))
            if past.time_s < before_s:
                yield past
