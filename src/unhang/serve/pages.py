"""The server's own pages: the list of cases, SQL, a comparison, the history. No script in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.context.differing import changed_between
from unhang.context.recalled import incidents_of
from unhang.context.tallies import CHANCE, History, Tally
from unhang.reports.html import asset, hash_of, text_of
from unhang.run.metrics import family, live_metrics
from unhang.run.watching.now import JobNow
from unhang.serve.caselist import PAGE, SORTED_BY, CaseQuery, culprits_of
from unhang.wording import count_of, fold_ranks, printable

if TYPE_CHECKING:
    from unhang.context.recalled import Past

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
    """The same, and for the live page its script, its icon and this server."""
    own = f"script-src '{hash_of(asset('live.js'))}'; connect-src 'self'; img-src data:"
    return f"{policy()}; {own}"


def live_page() -> str:
    """What runs on this node; its script fills it."""
    body = (
        '<link rel="icon" id="icon" href="data:,">',
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
    return framed("live", body)


def framed(title: str, lines: Iterable[str]) -> str:
    """A page of ours around its lines."""
    return "\n".join(streamed(title, lines))


def streamed(title: str, lines: Iterable[str]) -> Iterator[str]:
    """The same in pieces, each as soon as it is there."""
    head, tail = _PAGE.split("{body}")
    yield head.format(title=text_of(title), style=asset("page.css"))
    yield from lines
    yield tail


def with_ways(page: str, key: str) -> str:
    """A case's own page with links to the list, to its JSON and to SQL over it."""
    own = f'<a href="/case/{key}/report.json">JSON</a> · <a href="/case/{key}/sql">SQL</a>'
    nav = f'<nav class="noprint"><a href="/">cases</a> · <a href="/live">live</a> · {own}</nav>'
    return page.replace("<main>\n", f"<main>\n{nav}\n", 1)


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> Iterator[str]:
    """A table of cells that are markup already, under plain heads."""
    yield from _marked_table([text_of(name) for name in head], rows, kind)


def _marked_table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> Iterator[str]:
    yield '<div class="wide" tabindex="0" role="region" aria-label="Table">'
    yield f'<table class="{kind}"><thead><tr>'
    yield "".join(f'<th scope="col">{name}</th>' for name in head)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"


def list_page(
    pasts: Mapping[str, Past],
    failed: Mapping[Path, str],
    asked: CaseQuery | None = None,
    coming: Iterable[tuple[str, Path, Past | str]] = (),
) -> Iterator[str]:
    """Cases with their verdicts, newest first or as asked; two of them can be compared.

    Args:
        pasts: Those whose verdict is known, by key.
        failed: Why others cannot be read.
        asked: Which are shown, and in which order.
        coming: Key, path and verdict (or why there is none) of those that are judged only now:
            they are asked for when all else has been given.
    """
    return streamed("cases", _list_lines(pasts, dict(failed), asked or CaseQuery(), coming))


def _list_lines(
    pasts: Mapping[str, Past],
    failed: dict[Path, str],
    asked: CaseQuery,
    coming: Iterable[tuple[str, Path, Past | str]],
) -> Iterator[str]:
    chosen = asked.chosen(pasts)
    shown = chosen[asked.page * PAGE :][:PAGE]
    if pasts:
        yield from _filter_lines(pasts, asked)
    yield '<form action="/compare" method="get">'
    if pasts:
        yield from _table_of_cases(shown, asked)
    late = yield from _judged_now(coming, asked, failed)
    if len(shown) + late > 1:
        yield '<p><button type="submit">compare a with b</button></p>'
    yield "</form>"
    yield from _pages(len(chosen), len(pasts), asked)
    if not (pasts or late):
        yield "<p>There is no case yet: they come with <code>unhang run</code> and "
        yield "<code>unhang collect</code>. Load this page again to see new ones.</p>"
    if failed:
        yield "<h2>Not readable</h2><ul>"
        for path, why in failed.items():
            yield f"<li>{text_of(path.name)}: {text_of(printable(why, 200))}</li>"
        yield "</ul>"


def _judged_now(
    coming: Iterable[tuple[str, Path, Past | str]], asked: CaseQuery, failed: dict[Path, str]
) -> Generator[str, None, int]:
    """Rows of cases without a saved report, one by one; returns how many there were."""
    count = 0
    for key, path, past in coming:
        if isinstance(past, str):
            failed[path] = past
        elif asked.fits(past):
            if not count:
                heads = "".join(f'<th scope="col">{name}</th>' for name in ("a", "b", *SORTED_BY))
                yield '<h2>Judged just now</h2><div class="wide" tabindex="0" role="region" '
                yield 'aria-label="Judged just now"><table class="cases"><thead><tr>'
                yield f'{heads}<th scope="col"></th></tr></thead><tbody>'
            count += 1
            yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in _case_row(key, past))}</tr>"
    if count:
        yield "</tbody></table></div>"
    return count


def _filter_lines(pasts: Mapping[str, Past], asked: CaseQuery) -> Iterator[str]:
    yield '<form action="/" method="get" class="bar"><label>find <input type="search" name="text" '
    yield f'size="30" placeholder="job, host, line, kind" value="{text_of(asked.text)}"></label>'
    yield '<label>status <select name="status"><option value="">any</option>'
    for status in sorted({past.status for past in pasts.values()}):
        chosen = " selected" if status == asked.status else ""
        yield f'<option value="{text_of(status)}"{chosen}>{text_of(status)}</option>'
    yield f'</select></label><input type="hidden" name="sort" value="{asked.sort}">'
    yield '<button type="submit">show</button></form>'


def _table_of_cases(shown: Sequence[tuple[str, Past]], asked: CaseQuery) -> Iterator[str]:
    """Heads of columns are links that sort by them."""
    heads = [
        f"{name} ▾" if name == asked.sort else
        f'<a href="{text_of(asked.link(sort=name, page=0))}">{name}</a>'
        for name in SORTED_BY
    ]  # fmt: skip
    heads[0] = f"{heads[0]} (UTC)"
    rows = (_case_row(key, past) for key, past in shown)
    yield from _marked_table(("a", "b", *heads, ""), rows, "cases")


def _pages(chosen: int, all_: int, asked: CaseQuery) -> Iterator[str]:
    """How many there are, and the way to those that are not on this page."""
    begin = asked.page * PAGE
    end = min(begin + PAGE, chosen)
    words = [f"{count_of(chosen, 'case')}" + (f" of {all_:,}" if chosen < all_ else "")]
    if chosen > PAGE:
        words.append(f"{begin + 1:,} to {end:,}" if begin < chosen else "none on this page")
    if asked.page:
        words.append(f'<a href="{text_of(asked.link(page=asked.page - 1))}">page before</a>')
    if end < chosen:
        words.append(f'<a href="{text_of(asked.link(page=asked.page + 1))}">next page</a>')
    if all_:
        yield f'<p class="soft">{", ".join(words)}</p>'


def _case_row(key: str, past: Past) -> tuple[str, ...]:
    label = text_of(past.path.name)
    return (
        f'<input type="radio" name="a" value="{key}" required aria-label="a: {label}">',
        f'<input type="radio" name="b" value="{key}" required aria-label="b: {label}">',
        _time(past.time_s),
        f'<span class="status {text_of(past.status)}">{text_of(past.status)}</span>',
        text_of(printable(past.job_id, 40)),
        text_of(printable(culprits_of(past), 30)),
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


def comparison_page(first: tuple[str, Past], second: tuple[str, Past]) -> str:
    """Two incidents, each with its key, side by side, and what they share."""
    links = (f'<a href="/case/{key}/">{text_of(p.path.name)}</a>' for key, p in (first, second))
    return framed("two incidents", _comparison_lines(links, first[1], second[1]))


def saved_page(past: Past) -> str:
    """What is left of an incident when only the report was kept."""
    return framed("a saved report", _saved_lines(past))


def _saved_lines(past: Past) -> Iterator[str]:
    yield '<p role="status">Only the report of this case is here, not its evidence.</p>'
    rows = ((label, _cell(getattr(past, name))) for name, label in _COMPARED.items())
    yield from table_of(("", text_of(past.path.name)), [("when (UTC)", _time(past.time_s)), *rows])


def paste_page(said: str) -> str:
    """A form for any text; `said` is why the last one has no verdict."""
    return framed("judge a text", _paste_lines(said))


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
    return framed("not here", [f'<p role="status">{text_of(why)}</p>'])


_MOST_UNLIKE = 60
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
    "command": "command",
    "revision": "revision",
    "versions": "versions",
    "hosts": "all hosts",
}


def _comparison_lines(links: Iterable[str], first: Past, second: Past) -> Iterator[str]:
    rows = (("case", *links, ""), *_compared(first, second))
    yield from table_of(("", "a", "b", ""), rows, "compared")
    unlike = [
        tuple(text_of(value or "not set") for value in row)
        for row in changed_between(first.path, second.path)
    ]
    if unlike:
        yield "<h2>Arguments, environment and nodes</h2>"
        yield from table_of(("differs", "a", "b"), unlike[:_MOST_UNLIKE], "compared")
        if len(unlike) > _MOST_UNLIKE:
            yield f'<p class="soft">and {len(unlike) - _MOST_UNLIKE:,} more</p>'
    shared = sorted(set(first.culprit_hosts) & set(second.culprit_hosts))
    lines = sorted(set(first.places) & set(second.places))
    both = [*(f"host {name}" for name in shared), *lines]
    yield f"<p>Blamed in both: {text_of(', '.join(both)) if both else 'nothing'}.</p>"


def _compared(first: Past, second: Past) -> Iterator[tuple[str, ...]]:
    """What changed stands first, then what is the same."""
    yield ("when (UTC)", _time(first.time_s), _time(second.time_s), "")
    rows = [(label, getattr(first, n), getattr(second, n)) for n, label in _COMPARED.items()]
    told = [row for row in rows if row[1] or row[2]]
    for label, one, other in sorted(told, key=lambda row: row[1] == row[2]):
        yield (label, _cell(one), _cell(other), "same" if one == other else "changed")


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        numbers = [each for each in value if isinstance(each, int)]
        words = fold_ranks(numbers) if numbers else ", ".join(map(str, value[:6]))
        return text_of(words)
    return text_of(printable(str(value), 160))


def history_page(found: History) -> str:
    """What all cases have in common."""
    return framed("history", _history_lines(found))


_MOST_WEEKS = 26
_BAR, _HIGH = 26, 90


def _history_lines(found: History) -> Iterator[str]:
    yield f"<p>{found.counted}.</p>"
    yield from _chart(found.weeks)
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
            yield from table_of(head, (_tally_row(tally, hosts=hosts) for tally in tallies))
    yield f'<p class="soft">{CHANCE}</p>'


def _chart(weeks: Mapping[str, int]) -> Iterator[str]:
    """Problems by week as bars, the last weeks in which there were some."""
    shown = list(weeks.items())[-_MOST_WEEKS:]
    if not shown:
        return
    most = max(count for _, count in shown)
    said = ", ".join(f"{week} {count}" for week, count in shown)
    width = len(shown) * _BAR + 10
    yield '<h2>Problems by week</h2><div class="wide" tabindex="0" role="region" '
    yield f'aria-label="Problems by week"><svg width="{width}" height="{_HIGH + 36}" role="img" '
    yield f'aria-label="{text_of(said)}">'
    for at, (week, count) in enumerate(shown):
        high = max(round(_HIGH * count / most), 2)
        x, y = at * _BAR + 6, _HIGH + 16 - high
        yield f'<g><title>{text_of(week)}: {count}</title><rect class="shade-7" x="{x}" y="{y}" '
        yield f'width="{_BAR - 6}" height="{high}"/><text x="{x + 3}" y="{y - 3}">{count}</text>'
        yield f'<text x="{x}" y="{_HIGH + 31}">{text_of(week[-3:])}</text></g>'
    yield "</svg></div>"
    if len(weeks) > len(shown):
        yield f'<p class="soft">The last {len(shown)} weeks with problems are drawn.</p>'


def _tally_row(tally: Tally, *, hosts: bool) -> tuple[str, ...]:
    """Its name is a link to the cases that have it."""
    weeks = ", ".join(f"{week} {count}" for week, count in tally.weeks.items())
    chance = ("" if tally.chance is None else f"{tally.chance:.2g}",) if hosts else ()
    link = text_of(CaseQuery(text=tally.sought).link())
    name = f'<a href="{link}">{text_of(tally.name)}</a>'
    return (name, f"{tally.count} of {tally.of}", *chance, text_of(weeks))


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
