"""The report as one HTML page that works offline: verdict first, then pictures of the hang.

The page is one file. Nothing is fetched, and its content security policy allows no other script
than its own, by hash, and no request. What a reader must know stands in the markup; pictures are
drawn by the script from the data inside the page (`facts`). Everything foreign is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from markdown_it import MarkdownIt

from unhang.case import Case
from unhang.model import LogEvent
from unhang.picture import Picture, Rate
from unhang.report import Report, Step
from unhang.reports import markdown
from unhang.reports.content.axes import axis_of
from unhang.reports.content.brief import Brief, brief_of
from unhang.reports.content.kind_pages import find, page_of
from unhang.reports.content.story import Chapter, Story, tell
from unhang.reports.embedding import embedded, facts_of, shows_lateness
from unhang.reports.look import Look
from unhang.wording import printable

_MOST_LINES = 12
_LONG_WORD = re.compile(r"(?<!\S)(?!https?://)\S{81,}")
_LINK = re.compile(r"</?a\b[^>]*>")
"""From the page of one kind to that of another: the file of it is not here."""
_CODE = re.compile(r"^UH\d+\b")
_HEAD, _TAIL = 50, 25
_MOST_IN_TEAMS = 128
"""Of more ranks, small cells by group do not fit a screen."""
_SPANS = {0: "all", 600_000: "10 min", 60_000: "1 min", 10_000: "10 s", 1_000: "1 s"}
"""Choices of what the time axis shows, in ms before the end."""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
<script type="application/json" id="facts">{facts}</script>
<script>{script}</script>
</body>
</html>
"""


def render(
    report: Report,
    case: Case | None = None,
    look: Look | None = None,
    picture: Picture | None = None,
) -> str:
    """Return the page.

    Args:
        report: The verdict.
        case: For the lines of logs.
        look: Changes nothing.
        picture: What is drawn; without it the page has the verdict and the map of ranks.
    """
    del look
    drawn = picture or Picture()
    facts = embedded(facts_of(report, drawn, markdown.render(report)))
    style, script = asset("page.css"), asset("page.js")
    return _PAGE.format(
        policy=_policy(style, script),
        title=f"unhang: {text_of(report.summary)}",
        style=style,
        body="\n".join(_body(report, case, drawn)),
        facts=facts,
        script=script,
    )


def asset(name: str) -> str:
    """A file of the page: its style, its script."""
    return files("unhang.reports").joinpath(f"assets/{name}").read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing but this style and this script, by what they are."""
    return (
        f"default-src 'none'; style-src '{hash_of(style)}'; script-src '{hash_of(script)}'; "
        "form-action 'none'; base-uri 'none'"
    )


def hash_of(text: str) -> str:
    """How a content security policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def text_of(value: object) -> str:
    """Text that is no more than that, in an element or an attribute."""
    return escape(printable(str(value)), quote=True)


def _short(value: str) -> str:
    """Text whose longest words are cut in their middle, with the whole of them at hover."""
    words, found = printable(value), []
    done = 0
    for long in _LONG_WORD.finditer(words):
        found.append(text_of(words[done : long.start()]))
        cut = f"{long[0][:_HEAD]}…{long[0][-_TAIL:]}"
        found.append(f'<span title="{text_of(long[0])}">{text_of(cut)}</span>')
        done = long.end()
    return "".join([*found, text_of(words[done:])])


def _body(report: Report, case: Case | None, picture: Picture) -> Iterator[str]:
    story = tell(report)
    yield from _head(brief_of(report), report)
    yield from _overview(report, picture, story)
    yield from _pictures(report, picture)
    yield from _log_lines(case)
    yield from _findings(story)
    yield from _rest(report, story)


def _head(brief: Brief, report: Report) -> Iterator[str]:
    blamed = report.findings[0].culprits if report.findings and report.ranks else ()
    if blamed:
        yield f'<a class="skip noprint" href="#rank={blamed[0]}">Go to rank {blamed[0]}</a>'
    yield f'<header><div class="bar"><span class="status {brief.status}">{brief.status}</span>'
    yield f'<span class="soft">{_CODE.sub(_to_its_page, text_of(brief.basis), 1)}</span>'
    yield '<button type="button" class="noprint" data-copy="ticket">Copy as ticket</button></div>'
    yield f"<h1>{_short(brief.verdict)}</h1>"
    if brief.whose:
        yield f'<p class="soft whose">{"<br>".join(map(_short, brief.whose))}</p>'
    if brief.rows:
        yield '<dl class="rows">'
        for label, items in brief.rows:
            yield _row(label, items)
        if brief.confidence:
            sure = ": ".join(filter(None, (brief.confidence, brief.doubt)))
            yield f'<dt>confidence</dt><dd class="confidence">{_short(sure)}</dd>'
        yield "</dl>"
    if report.next:
        yield '<ul class="steps" aria-label="What to run next">'
        yield from map(_step, report.next)
        yield "</ul>"
    yield "</header>"


def _row(label: str, items: Sequence[str]) -> str:
    """A label with its lines; those of code keep their blanks."""
    words = "<br>".join(map(_short, items))
    if label == "source":
        words = f"<pre>{chr(10).join(map(text_of, items))}</pre>"
    return f'<dt>{text_of(label)}</dt><dd class="{text_of(label)}">{words}</dd>'


def _step(step: Step) -> str:
    command = text_of(step.command)
    return (
        f'<li><code>{command}</code><button type="button" data-copy="{command}" '
        f'aria-label="Copy: {command}">copy</button>'
        f'<span class="soft">{text_of(step.why)}</span></li>'
    )


def _overview(report: Report, picture: Picture, story: Story) -> Iterator[str]:
    """Ranks, and who waits for whom or who comes late: next to each other where there is room."""
    beside = [*(_waits(picture) or _late(report, picture))]
    yield f'<div class="{"pair" if report.ranks and beside else "alone"}">'
    yield from _map(report, picture, story)
    yield from beside
    yield "</div>"


def _waits(picture: Picture) -> Sequence[str]:
    if not picture.nodes:
        return ()
    return (
        "<section><h2>Who waits for whom</h2>",
        '<div class="bar noprint"><button type="button" id="all-waits" hidden>all of it</button>',
        '<span id="waits-left" class="soft"></span></div>',
        '<div id="waits" class="wide" tabindex="0" role="region" aria-label="Waiting"></div>',
        "</section>",
    )


def _late(report: Report, picture: Picture) -> Sequence[str]:
    if picture.heat is None or not shows_lateness(report, picture):
        return ()
    return (
        f"<section><h2>Ranks that are late in {text_of(picture.heat.group)}</h2>",
        f'<p class="soft">{_clock_words(picture)}</p>',
        '<div id="heat" class="wide" tabindex="0" role="region" aria-label="Lateness"></div>',
        "</section>",
    )


def _map(report: Report, picture: Picture, story: Story) -> Iterator[str]:
    if not report.ranks:
        return
    chosen = _first_axis(report, picture)
    yield f'<section><h2>Ranks <span class="soft">{text_of(story.rank_head)}</span></h2>'
    yield '<div class="bar noprint"><label>by <select id="axis"><option value="host">host</option>'
    for number, team in enumerate(picture.teams):
        selected = " selected" if number == chosen else ""
        yield f'<option value="team:{number}"{selected}>{text_of(_axis_name(team.name))}</option>'
    yield "</select></label>"
    yield '<label>find <input type="search" id="find" size="9" placeholder="47 or 40-47"></label>'
    yield '<button type="button" id="clear" disabled>show all</button></div>'
    yield from _replay(picture)
    yield '<div id="map" class="wide" role="listbox" aria-multiselectable="true" '
    yield 'aria-label="Ranks: choose some to see these alone"></div>'
    yield '<div class="bar legend" id="legend"></div>'
    yield '<div id="about" class="about soft noprint"></div>'
    yield '<div id="chosen" class="soft noprint" role="status"></div></section>'


def _replay(picture: Picture) -> Iterator[str]:
    """A slider over moments; its last place is the verdict's own map."""
    if picture.replay is None:
        return
    last = len(picture.replay.since_ms)
    yield '<div class="bar noprint"><button type="button" id="play">replay</button>'
    yield f'<input type="range" id="moment" min="0" max="{last}" value="{last}" '
    yield f'aria-label="Moment, from {text_of(picture.replay.good)} to the standstill">'
    yield '<span id="when" class="soft">now</span></div>'


def _first_axis(report: Report, picture: Picture) -> int:
    """The groups of the verdict, where no host tells how ranks lie; -1 for hosts."""
    few = len(report.ranks) <= _MOST_IN_TEAMS and not any(each.host for each in report.ranks)
    first = report.findings[0].group if report.findings and few else None
    names = [team.name for team in picture.teams]
    return names.index(first.description) if first and first.description in names else -1


def _axis_name(name: str) -> str:
    """What groups of a description are, where it has one of the usual words for that."""
    kind = axis_of(name)
    return f"{kind} groups: {name}" if kind else name


def _pictures(report: Report, picture: Picture) -> Iterator[str]:
    if picture.lanes:
        yield "<h2>Calls side by side</h2>"
        yield from _calls_head(picture)
        yield '<div id="calls" class="wide" tabindex="0" role="region" aria-label="Calls"></div>'
    if picture.stacks:
        yield "<h2>Where the ranks are</h2>"
        yield '<p class="soft">Outermost frames at the top; the width shows how many ranks.</p>'
        yield '<div id="stacks" class="wide" tabindex="0" role="region" aria-label="Stacks"></div>'
    if picture.nodes:
        yield from _late(report, picture)
    yield from _rates(picture.rates)


def _rates(rates: Sequence[Rate]) -> Iterator[str]:
    """A table of bandwidths, where the recorder has timed calls."""
    if not rates:
        return
    yield "<h2>How fast data moved</h2>"
    yield '<p class="soft">Of collectives that all members timed on the device: the shortest of '
    yield "their times, and bus bandwidth as nccl-tests counts it; medians.</p>"
    yield '<div class="wide" tabindex="0" role="region" aria-label="Bandwidths"><table><thead><tr>'
    names = ("group", "operation", "size", "calls", "ms", "GB/s", "slowest group")
    yield "".join(f'<th scope="col">{name}</th>' for name in names) + "</tr></thead><tbody>"
    for rate in rates:
        slowest = f"{rate.slowest}: {rate.slowest_gb_s:g} GB/s" if rate.slowest else ""
        cells = (rate.group, rate.op, _size(rate.size), f"{rate.calls:,}", f"{rate.ms:g}")
        row = (*cells, f"{rate.bus_gb_s:g}", slowest)
        yield f"<tr>{''.join(f'<td>{text_of(cell)}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1024:.0f} KiB"


def _calls_head(picture: Picture) -> Iterator[str]:
    left_out = " ".join(picture.left_out)
    yield '<div class="bar noprint"><label>show <select id="how">'
    yield '<option value="aligned">side by side</option>'
    if picture.bars:
        yield '<option value="time">in time</option>'
    yield "</select></label>"
    yield '<label><span class="sr">time span</span><select id="span" hidden>'
    for span, words in _SPANS.items():
        yield f'<option value="{span}">{words}</option>'
    yield '</select></label><button type="button" id="all-calls">all of them</button>'
    yield f'<span class="soft">{text_of(left_out)}</span></div>'
    yield '<p id="clocks" class="soft" hidden>Blue: finished; yellow with an edge: waits; red: '
    yield f"failed. {text_of(_clock_words(picture))}</p>"


def _clock_words(picture: Picture) -> str:
    heat = picture.heat
    if heat is None or not heat.clocks:
        return "Times come from each rank's own host; their clocks could not be aligned."
    apart = max(heat.clocks) - min(heat.clocks)
    return (
        f"Clocks were set by calls that all finished at one moment: {apart:.1f} ms apart at most."
    )


def _log_lines(case: Case | None) -> Iterator[str]:
    """The first failures that logs tell."""
    events = [event for event in case.log_events if event.role == "cause"] if case else []
    if not events:
        return
    events.sort(key=lambda event: event.order)
    yield '<h2>First failures in the logs</h2><div class="wide" tabindex="0" role="region" '
    yield 'aria-label="Lines of logs"><table><thead><tr><th scope="col">rank</th>'
    yield '<th scope="col">line</th><th scope="col">where</th></tr></thead><tbody>'
    yield from map(_log_line, events[:_MOST_LINES])
    yield "</tbody></table></div>"
    if len(events) > _MOST_LINES:
        yield f'<p class="soft">and {len(events) - _MOST_LINES:,} more</p>'


def _log_line(event: LogEvent) -> str:
    rank = event.rank if event.rank >= 0 else ""
    return (
        f'<tr><td>{rank}</td><td title="{text_of(event.text)}">'
        f"{text_of(printable(event.text, 120))}</td><td>{_short(event.source)}</td></tr>"
    )


def _findings(story: Story) -> Iterator[str]:
    if story.chapters:
        yield "<h2>In full</h2>"
    for chapter in story.chapters:
        yield from _chapter(chapter)
    yield from _explained(story)
    if story.others:
        yield "<h3>Also found</h3>"
        yield from _list(story.others)


def _explained(story: Story) -> Iterator[str]:
    """What `unhang explain` says of each kind that is told in full: links lead to no network."""
    kinds = {chapter.code: chapter.slug for chapter in story.chapters}
    for code, slug in kinds.items():
        if (kind := find(code)) is not None:
            yield f"<details><summary>{text_of(code)} {text_of(slug)}: what it means, what else it "
            yield f'could be</summary><div class="kind" id="{text_of(code)}">'
            yield f"{_marked_up(page_of(kind))}</div></details>"


def _marked_up(page: str) -> str:
    """A page of ours below the headings of this one; the keyboard reaches blocks of code."""
    text = MarkdownIt("commonmark", {"html": False}).render(page.partition("\n")[2])
    text = text.replace("<pre>", '<pre tabindex="0">').replace("h2>", "h4>")
    return _LINK.sub("", text)


def _to_its_page(code: re.Match[str]) -> str:
    return f'<a href="#{code[0]}">{code[0]}</a>'


def _chapter(chapter: Chapter) -> Iterator[str]:
    kind = f"{chapter.code} {chapter.slug}"
    yield f'<section id="{text_of(chapter.id)}"><h3>{text_of(kind)} <span class="soft">'
    yield f"{text_of(chapter.role)}, {text_of(chapter.confidence)} confidence</span></h3>"
    if chapter.summary:
        yield f"<p>{_short(chapter.summary)}</p>"
    yield '<dl class="rows">'
    for section in chapter.sections:
        yield _row(section.label, section.items)
    yield "</dl></section>"


def _list(lines: Iterable[str]) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{_short(line)}</li>" for line in lines)
    yield "</ul>"


def _rest(report: Report, story: Story) -> Iterator[str]:
    if story.notes:
        yield "<h2>Notes</h2>"
        yield from _list(f"{level}: {text}" for level, text in story.notes)
    yield '<details id="raw"><summary>The report as JSON</summary>'
    yield '<pre id="json" tabindex="0" aria-label="The report as JSON"></pre></details>'
    yield f"<footer>{text_of(', '.join(story.facts))}<br>"
    yield f"unhang {text_of(report.tool_version)}, {text_of(report.schema)}</footer>"
