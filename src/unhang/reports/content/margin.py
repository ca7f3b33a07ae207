"""What stands next to a verdict, in words: whose it is, the code there, and what was before."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timezone

from unhang.report import Before, Blamed, Excerpt, Finding, Identity, Report, Site, UnlikeSide
from unhang.reports.content.phrases import short_path
from unhang.wording import count_of, printable, rank_phrase

_BAR = " │ "
_MOST_COMMAND, _MOST_HOSTS = 100, 3
_MOST_AROUND = 3
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_NTH = {1: "once", 2: "twice"}
CHANGED = "the file is newer than the process: these may not be the running lines"


def one_line_each(finding: Finding) -> Iterator[str]:
    """The line at which the culprit stands, and that of one who waits."""
    for site in _shown(finding):
        for text in _lines(site.source, site.line, around=0):
            yield f"{text}  ({rank_phrase(site.ranks)})"


def code_lines(finding: Finding) -> Iterator[str]:
    """The same with the lines around them, each under its place."""
    for site in _shown(finding):
        yield f"{rank_phrase(site.ranks)} at {short_path(site.file)}:{site.line}"
        yield from _lines(site.source, site.line, around=_MOST_AROUND)
        if site.source and site.source.changed:
            yield CHANGED


def _shown(finding: Finding) -> Iterator[Site]:
    """Of each side the first place with code; a place that both share, once."""
    seen: set[tuple[str, int]] = set()
    for role in ("culprit", "victim"):
        sites = (site for site in finding.sites if site.role == role and site.source)
        for site in sites:
            if (site.file, site.line) not in seen:
                seen.add((site.file, site.line))
                yield site
                break


def _lines(source: Excerpt | None, line: int, around: int) -> Iterator[str]:
    """Numbered lines; what a terminal would obey is shown as it is written."""
    numbered = enumerate(source.lines if source else (), source.first if source else 0)
    wanted = [(number, text) for number, text in numbered if abs(number - line) <= around]
    width = len(str(wanted[-1][0])) if wanted else 0
    for number, text in wanted:
        mark = "> " if around and number == line else "  " if around else ""
        shown = text.strip() if not around else text.replace("\t", "    ")
        yield f"{mark}{number:>{width}}{_BAR}{printable(shown)}".rstrip()


def identity_lines(report: Report) -> tuple[str, ...]:
    """Whose incident it is: one line of the job, one of what was run; none where nothing tells."""
    told = report.identity
    if told is None:
        return ()
    lines = (_of_job(told, report), _of_run(told))
    return tuple(", ".join(filter(None, parts)) for parts in lines if any(parts))


def _of_job(told: Identity, report: Report) -> tuple[str, ...]:
    size = report.job.world_size
    hosts = [printable(host, 60) for host in told.hosts[:_MOST_HOSTS]]
    more = [f"{len(told.hosts) - len(hosts):,} more"] * (len(told.hosts) > len(hosts))
    where = f"on {', '.join((*hosts, *more))}" if hosts else ""
    return (
        f"job {printable(told.job, 60)}" if told.job else "",
        f"attempt {printable(told.attempt, 20)}" if told.attempt not in ("", "0") else "",
        " ".join(filter(None, (count_of(size, "rank") if size else "", where))),
        _moment(told.time_ns),
        f"after {_span(told.ran_s)}" if told.ran_s else "",
    )


def _of_run(told: Identity) -> tuple[str, ...]:
    program, *words = told.command or ("",)
    command = shlex.join([program.rpartition("/")[2], *words]) if program else ""
    return (
        printable(command, _MOST_COMMAND),
        f"revision {printable(told.revision, 60)}" if told.revision else "",
        *(printable(version, 40) for version in told.versions),
        f"case {printable(told.case, 80)}" if told.case else "",
    )


def _moment(time_ns: int) -> str:
    try:
        when = datetime.fromtimestamp(time_ns / 1e9, tz=timezone.utc) if time_ns > 0 else None
    except (ValueError, OverflowError, OSError):  # a clock that no calendar knows
        return ""
    return f"{when:%Y-%m-%d %H:%M:%S} UTC" if when else ""


def _span(seconds: float) -> str:
    for size, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= 2 * size:
            return count_of(int(seconds // size), name)
    return count_of(int(seconds), "second")


def difference_lines(report: Report) -> Iterator[str]:
    """What is not alike on all ranks: "NCCL_ALGO: Ring on ranks 0-6; not set on rank 7"."""
    for each in report.differences:
        sides = (f"{printable(side.value) or 'not set'} on {_whom(side)}" for side in each.sides)
        yield f"{printable(each.name, 60)}: {'; '.join(sides)}"


def _whom(side: UnlikeSide) -> str:
    ranks = [rank for rank in side.ranks if rank >= 0]
    return rank_phrase(ranks) if ranks else count_of(len(side.ranks), "node")


def before_words(report: Report) -> str:
    """That it was there before, where and when: "3 times at train.py:26…"; "" where it is new."""
    told = report.before
    if told is None or told.times <= 1:
        return ""
    hosts = [_blamed(each) for each in told.hosts[:_MOST_HOSTS]]
    return ", ".join(filter(None, (_times(told), *hosts, _last(told, report.identity))))


def _times(told: Before) -> str:
    return f"{count_of(told.times, 'time')} at {printable(told.place, 80)} with this one"


def _blamed(each: Blamed) -> str:
    how_often = _NTH.get(each.times, f"{each.times:,} times")
    chance = "" if each.chance is None else f" (by chance: {each.chance:.2g})"
    return f"{how_often} on {printable(each.host, 60)}{chance}"


def _last(told: Before, identity: Identity | None) -> str:
    since_s = (identity.time_ns - told.last_ns) / 1e9 if identity and identity.time_ns else 0.0
    return f"the last {_span(since_s)} before" if since_s > 0 and told.last_ns > 0 else ""
