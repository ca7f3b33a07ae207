"""Incidents that lie in directories: what each came to, in the few facts that can be compared.

Facts are taken from reports as they were saved; nothing is judged here. Reports are input like any
other: what has not the shape of one is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from unhang.casedir.reports import is_case
from unhang.errors import InputError
from unhang.incoming import fit

_NS = 1_000_000_000
_SAME_S: Final = 600.0
"""Looks at one hang come within minutes; used where nothing tells how long the job had run."""
_SURER: Final = ("low", "medium", "high")


class _Rank(Struct, frozen=True):
    rank: int
    host: str = ""


class _Site(Struct, frozen=True):
    ranks: list[int]
    role: str
    file: str
    line: int
    function: str = ""


class _Subject(Struct, frozen=True):
    kind: str
    id: str
    role: str = "culprit"
    host: str | None = None


class _Found(Struct, frozen=True):
    code: str
    role: str
    confidence: str
    summary: str
    culprits: list[int] = field(default_factory=list)
    subjects: list[_Subject] = field(default_factory=list)
    sites: list[_Site] = field(default_factory=list)
    op: str | None = None
    slug: str = ""


class _Moment(Struct, frozen=True):
    newest_ns: int = 0
    job_id: str = ""
    attempt: str = ""


class _Whose(Struct, frozen=True):
    job: str = ""
    attempt: str = ""
    ran_s: float = 0.0
    command: list[str] = field(default_factory=list)
    revision: str = ""
    versions: list[str] = field(default_factory=list)


class _Span(Struct, frozen=True):
    last_ns: int = 0


class _Saved(Struct, frozen=True):
    status: str
    summary: str
    job: _Span = field(default_factory=_Span)
    incident: _Moment = field(default_factory=_Moment)
    identity: _Whose | None = None
    findings: list[_Found] = field(default_factory=list)
    ranks: list[_Rank] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Past:
    """One incident of the past.

    Attributes:
        time_s: When, wall clock; that of the directory where no evidence tells.
        code, slug, op: Of the first finding; "" where there is none.
        hosts: Of all ranks.
        culprit_hosts: Of the culprits of its first cause.
        places: Lines of the user's code at which culprits, or else victims, were seen.
        parts: GPUs and links that its findings blame, as "gpu node01/3".
        command, revision, versions: Of the job, where its case tells.
        ran_s: For how long its job had run, in seconds; 0 where nothing tells.
    """

    path: Path
    time_s: float
    job_id: str
    status: str
    summary: str
    code: str = ""
    slug: str = ""
    confidence: str = ""
    op: str = ""
    world_size: int = 0
    culprits: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    culprit_hosts: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    attempt: str = ""
    command: str = ""
    revision: str = ""
    versions: tuple[str, ...] = ()
    ran_s: float = 0.0


def is_same_run(one: Past, other: Past) -> bool:
    """Whether two cases are of one run of a job: two looks at it, or one of each node."""
    first, last = sorted((one, other), key=lambda past: past.time_s)
    same = (first.job_id, first.attempt) == (last.job_id, last.attempt)
    return same and last.job_id != "" and last.time_s - first.time_s <= max(last.ran_s, _SAME_S)


def is_same_root(past: Past, this: Past) -> bool:
    """Whether two incidents are of one kind, and have a line in common.

    A repository may lie elsewhere the next time: the file and its folder count.
    """
    ends = {"/".join(place.split("/")[-2:]) for place in this.places}
    shares = any("/".join(place.split("/")[-2:]) in ends for place in past.places)
    return past.code == this.code and shares


def incidents_of(pasts: Iterable[Past]) -> list[Past]:
    """One of the cases of each run, the most telling, with the hosts of all.

    A run hangs once, however often and from wherever it is looked at.
    """
    runs: dict[tuple[str, str], list[list[Past]]] = defaultdict(list)
    for past in sorted(pasts, key=lambda past: past.time_s):
        known = runs[past.job_id, past.attempt]
        if known and is_same_run(known[-1][-1], past):
            known[-1].append(past)
        else:
            known.append([past])
    return [_told_best(looks) for known in runs.values() for looks in known]


def _told_best(looks: Sequence[Past]) -> Past:
    best = max(looks, key=lambda past: (past.status == "problem", _sureness(past), past.time_s))
    hosts = {host for past in looks for host in past.hosts}
    return replace(best, hosts=tuple(sorted(hosts))) if len(looks) > 1 else best


def _sureness(past: Past) -> int:
    return _SURER.index(past.confidence) if past.confidence in _SURER else -1


def cases_in(paths: Iterable[Path]) -> list[Path]:
    """The cases that paths name: a case itself, or all that lie in a directory; newest first.

    Raises:
        InputError: A path does not exist.
    """
    found: dict[Path, float] = {}
    for path in paths:
        if not path.is_dir():
            raise InputError(
                f"{path} is not a directory", "Name cases, or the directory they are in."
            )
        inside = list(_below(path))
        lone = _is_one(path) or (not inside and any(path.iterdir()))
        for each in [path] if lone else inside:
            found[each] = each.stat().st_mtime
    return sorted(found, key=lambda path: (-found[path], path.name))


def _below(path: Path, levels: int = 2) -> Iterator[Path]:
    """Cases in a directory, and in its directories that are none: one a job, or one a month."""
    for each in sorted(path.iterdir()):
        if each.is_dir() and _is_one(each):
            yield each
        elif levels > 1 and each.is_dir() and not each.is_symlink():
            with suppress(OSError):
                yield from _below(each, levels - 1)


def _is_one(path: Path) -> bool:
    return is_case(path) or (path / "report.json").is_file()


def facts_of(case: Path, report: object) -> Past:
    """The facts of one report.

    Args:
        case: Where it lies.
        report: It, as JSON.

    Raises:
        ValueError: It has not the shape of a report.
    """
    saved = fit(report, _Saved)
    first = next(iter([*(f for f in saved.findings if f.role == "cause"), *saved.findings]), None)
    host_of = {each.rank: each.host for each in saved.ranks if each.host}
    whose = saved.identity or _Whose()
    moment = (saved.incident.newest_ns or saved.job.last_ns) / _NS
    past = Past(
        path=case,
        time_s=moment if moment > 0 else case.stat().st_mtime,
        job_id=saved.incident.job_id or whose.job,
        attempt=saved.incident.attempt or whose.attempt,
        ran_s=whose.ran_s,
        command=" ".join(whose.command),
        revision=whose.revision,
        versions=tuple(whose.versions),
        status=saved.status,
        summary=saved.summary,
        world_size=len(saved.ranks),
        hosts=tuple(sorted(set(host_of.values()))),
    )
    if first is None:
        return past
    blamed = {host_of[rank] for rank in first.culprits if rank in host_of}
    blamed |= {s.id for s in first.subjects if s.kind == "host" and s.role == "culprit"}
    return replace(
        past,
        code=first.code,
        slug=first.slug,
        confidence=first.confidence,
        op=first.op or "",
        culprits=tuple(first.culprits),
        culprit_hosts=tuple(sorted(blamed)) if first.role == "cause" else (),
        places=tuple(dict.fromkeys(_places(first))),
        parts=tuple(dict.fromkeys(_parts(first))),
    )


def _places(found: _Found) -> Iterator[str]:
    role = "culprit" if any(site.role == "culprit" for site in found.sites) else "victim"
    for site in found.sites:
        if site.role == role:
            yield f"{site.file}:{site.line}"


def _parts(found: _Found) -> Iterator[str]:
    for each in found.subjects:
        if each.kind in ("gpu", "link") and each.role == "culprit":
            yield f"{each.kind} {f'{each.host}/' if each.host else ''}{each.id}"
