"""The server's own pages: the list of cases, SQL, a comparison, the history. No script in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.context.recalled import incidents_of
from unhang.context.tallies import CHANCE, History, Tally
from unhang.reports.html import asset, hash_of, text_of
from unhang.run.metrics import family, live_metrics
from unhang.run.watching.now import JobNow
from unhang.wording import fold_ranks, printable

if TYPE_CHECKING:
    from unhang.context.recalled import Past

__all__ = [
    "comparison_page",
    "console_page",
    "history_page",
    "list_page",
    "live_page",
    "live_policy",
    "metrics",
    "paste_page",
    "policy",
    "refusal_page",
    "saved_page",
]

_EXAMPLE = "SELECT op, count(*) AS calls FROM calls GROUP BY op ORDER BY calls DESC"
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>unhang: {title}</title>
<style>{style}</style></head>
<body><main>
<nav><a href="/">cases</a> · <a href="/live">live</a> · <a href="/paste">paste</a> ·
<a href="/history">history</a></nav>
<h1>{title}</h1>
{body}
</main></body>
</html>
"""


def policy() -> str:
    """What these pages may do: look like they do, and send their forms to this server."""
    style = hash_of(asset("page.css"))
    return (
        f"default-src 'none'; style-src '{style}'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


def live_policy() -> str:
    """The same, and for the live page its script and this server."""
    return f"{policy()}; script-src '{hash_of(asset('live.js'))}'; connect-src 'self'"


def live_page() -> str:
    """What runs on this node; its script fills it."""
    body = (
        '<p role="status"><span id="line">no connection yet</span></p>',
        '<div id="verdicts" role="status"></div>',
        '<p><button type="button" id="stacks">stacks now</button> ',
        '<button type="button" id="dump">dump now</button> ',
        '</p><p id="said" class="told" role="status"></p>',
        '<pre id="stacks-said" role="status" tabindex="0" aria-label="Stacks" hidden></pre>',
        '<p id="none">No armed rank runs here: start the job with <code>unhang run</code>.</p>',
        '<div id="jobs" class="wide" tabindex="0" role="region" aria-label="Jobs"></div>',
        '<p class="soft">The rank with fewest calls need not be at fault<span id="promise">: ',
        "the verdict comes by itself when the job hangs</span>.</p>",
        f"<script>{asset('live.js')}</script>",
    )
    return _page("live", body)


def _page(title: str, lines: Iterable[str]) -> str:
    return _PAGE.format(title=text_of(title), style=asset("page.css"), body="\n".join(lines))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> Iterator[str]:
    """A table of cells that are markup already."""
    yield '<div class="wide" tabindex="0" role="region" aria-label="Table">'
    yield f'<table class="{kind}"><thead><tr>'
    yield "".join(f'<th scope="col">{text_of(name)}</th>' for name in head)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"


def list_page(pasts: Mapping[str, Past], failed: Mapping[Path, str]) -> str:
    """All cases, newest first, each with its verdict; two of them can be compared."""
    return _page("cases", _list_lines(pasts, failed))


def _list_lines(pasts: Mapping[str, Past], failed: Mapping[Path, str]) -> Iterator[str]:
    ordered = sorted(pasts.items(), key=lambda item: -item[1].time_s)
    yield '<form action="/compare" method="get">'
    head = ("a", "b", "when (UTC)", "status", "verdict", "hosts", "")
    yield from _table(head, (_case_row(key, past) for key, past in ordered), "cases")
    if len(pasts) > 1:
        yield '<p><button type="submit">compare a with b</button></p>'
    yield "</form>"
    if not pasts:
        yield "<p>There is no case yet: they come with <code>unhang run</code> and "
        yield "<code>unhang collect</code>. Load this page again to see new ones.</p>"
    if failed:
        yield "<h2>Not readable</h2><ul>"
        for path, why in failed.items():
            yield f"<li>{text_of(path.name)}: {text_of(printable(why, 200))}</li>"
        yield "</ul>"


def _case_row(key: str, past: Past) -> tuple[str, ...]:
    label = text_of(past.path.name)
    return (
        f'<input type="radio" name="a" value="{key}" required aria-label="a: {label}">',
        f'<input type="radio" name="b" value="{key}" required aria-label="b: {label}">',
        _time(past.time_s),
        f'<span class="status {text_of(past.status)}">{text_of(past.status)}</span>',
        f'<a href="/case/{key}/">{text_of(printable(past.summary, 110))}</a>',
        text_of(", ".join(past.culprit_hosts[:4])),
        f'<a href="/case/{key}/report.json">JSON</a> <a href="/case/{key}/sql">SQL</a>',
    )


def _time(time_s: float) -> str:
    try:
        moment = datetime.fromtimestamp(time_s, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def console_page(
    key: str, sql: str, names: Sequence[str], rows: Sequence[Sequence[object]], said: str
) -> str:
    """A statement and what it gave.

    Args:
        key: Of the case.
        sql: What was asked, or "".
        names: Columns.
        rows: Of the answer.
        said: Why there is none, or what was cut.
    """
    return _page("SQL", _console_lines(key, sql, names, rows, said))


def _console_lines(
    key: str, sql: str, names: Sequence[str], rows: Sequence[Sequence[object]], said: str
) -> Iterator[str]:
    yield f'<p><a href="/case/{key}/">the case</a></p>'
    yield f'<form action="/case/{key}/sql" method="post"><p><label>One reading statement:<br>'
    yield f'<textarea name="sql" rows="5" cols="90">{text_of(sql or _EXAMPLE)}</textarea></label>'
    yield '</p><p><button type="submit">ask</button></p></form>'
    if said:
        yield f'<p role="status">{text_of(said)}</p>'
    if names:
        cells = ([text_of(printable(str(value), 300)) for value in row] for row in rows)
        yield from _table(names, cells)


def comparison_page(first: tuple[str, Past], second: tuple[str, Past]) -> str:
    """Two incidents, each with its key, side by side, and what they share."""
    links = (f'<a href="/case/{key}/">{text_of(p.path.name)}</a>' for key, p in (first, second))
    return _page("two incidents", _comparison_lines(links, first[1], second[1]))


def saved_page(past: Past) -> str:
    """What is left of an incident of which only the report was kept."""
    return _page("a saved report", _saved_lines(past))


def _saved_lines(past: Past) -> Iterator[str]:
    yield '<p role="status">Only the report of this case is here, not its evidence.</p>'
    rows = ((label, _cell(getattr(past, name))) for name, label in _COMPARED.items())
    yield from _table(("", text_of(past.path.name)), [("when (UTC)", _time(past.time_s)), *rows])


def paste_page(said: str) -> str:
    """A form for any text; `said` is why the last one has no verdict."""
    return _page("judge a text", _paste_lines(said))


def _paste_lines(said: str) -> Iterator[str]:
    if said:
        yield f'<p role="status">{text_of(said)}</p>'
    yield '<form action="/paste" method="post"><p><label>A log, stacks of any tool, what ncclras '
    yield "printed, or an issue that holds all of them:<br>"
    yield '<textarea name="text" rows="20" cols="90" required autofocus></textarea></label></p>'
    yield '<p><button type="submit">judge</button></p></form>'
    yield '<p class="soft">unhang judges it on this machine, and does not keep it.</p>'


def refusal_page(why: str) -> str:
    """A sentence, with the way back."""
    return _page("not here", [f'<p role="status">{text_of(why)}</p>'])


_COMPARED = {
    "status": "status",
    "summary": "verdict",
    "code": "code",
    "slug": "kind",
    "confidence": "confidence",
    "op": "call",
    "culprits": "culprits",
    "culprit_hosts": "hosts of culprits",
    "places": "lines",
    "parts": "GPUs and links",
    "world_size": "ranks",
    "job_id": "job",
}


def _comparison_lines(links: Iterable[str], first: Past, second: Past) -> Iterator[str]:
    rows = (("case", *links, ""), *_compared(first, second))
    yield from _table(("", "a", "b", ""), rows, "compared")
    shared = sorted(set(first.culprit_hosts) & set(second.culprit_hosts))
    lines = sorted(set(first.places) & set(second.places))
    both = [*(f"host {name}" for name in shared), *lines]
    yield f"<p>Blamed in both: {text_of(', '.join(both)) if both else 'nothing'}.</p>"


def _compared(first: Past, second: Past) -> Iterator[tuple[str, ...]]:
    yield ("when (UTC)", _time(first.time_s), _time(second.time_s), "")
    for name, label in _COMPARED.items():
        one, other = getattr(first, name), getattr(second, name)
        same = "same" if one == other and one else ""
        yield (label, _cell(one), _cell(other), same)


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        numbers = [each for each in value if isinstance(each, int)]
        words = fold_ranks(numbers) if numbers else ", ".join(map(str, value[:6]))
        return text_of(words)
    return text_of(printable(str(value), 160))


def history_page(found: History) -> str:
    """What all cases have in common."""
    return _page("history", _history_lines(found))


def _history_lines(found: History) -> Iterator[str]:
    yield f"<p>{found.counted}.</p>"
    parts = (
        ("Hosts of culprits", found.hosts),
        ("GPUs and links", found.parts),
        ("Lines", found.places),
        ("Kinds", found.kinds),
    )
    for title, tallies in parts:
        if tallies:
            yield f"<h2>{title}</h2>"
            hosts = tallies is found.hosts
            head = ("", "times", *(("by chance",) if hosts else ()), "weeks")
            yield from _table(head, (_tally_row(tally, hosts=hosts) for tally in tallies))
    yield f'<p class="soft">{CHANCE}</p>'


def _tally_row(tally: Tally, *, hosts: bool) -> tuple[str, ...]:
    weeks = ", ".join(f"{week} {count}" for week, count in tally.weeks.items())
    chance = ("" if tally.chance is None else f"{tally.chance:.2g}",) if hosts else ()
    return (text_of(tally.name), f"{tally.count} of {tally.of}", *chance, text_of(weeks))


def metrics(pasts: Iterable[Past], unreadable: int, jobs: Sequence[JobNow] = ()) -> str:
    """Cases and running ranks for Prometheus, in its text format.

    A job without a rank that is alive has ended, whatever it has left: its series end with it.
    """
    running = [job for job in jobs if not job.ranks or any(rank.alive for rank in job.ranks)]
    lines = (*_case_metrics(pasts, unreadable), *live_metrics(running))
    return "".join(f"{line}\n" for line in lines)


def _case_metrics(pasts: Iterable[Past], unreadable: int) -> Iterator[str]:
    pasts = incidents_of(pasts)
    states = Counter(past.status for past in pasts)
    hosts = Counter(host for past in pasts for host in past.culprit_hosts)
    newest = max((past.time_s for past in pasts), default=0.0)
    statuses = ("healthy", "insufficient", "problem", "slow")
    yield from family(
        "unhang_cases",
        "Incidents by status: cases of one run of a job count once.",
        (({"status": status}, float(states[status])) for status in statuses),
    )
    meaning = "Cases that could not be read."
    yield from family("unhang_cases_unreadable", meaning, [({}, float(unreadable))])
    meaning = "When the newest incident was."
    yield from family("unhang_newest_case_timestamp_seconds", meaning, [({}, newest)])
    yield from family(
        "unhang_host_culprit_cases",
        "Incidents with a culprit on the host.",
        (({"host": host}, float(number)) for host, number in sorted(hosts.items())),
    )
