"""The report as Markdown, to be pasted into an issue or a chat.

Foreign text can form no markup, mention no user, refer to no issue: what GitHub would turn into a
link ("#41", "@team") is broken up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from unhang.case import Case
from unhang.report import Report
from unhang.reports.content.story import Chapter, Section, Story, tell
from unhang.reports.look import Look

_MARKS = re.compile(r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)")
_LINKS = re.compile(r"[#@](?=\w)|\bhttps?(?=://)|\bwww(?=\.)")
_LEADING = re.compile(r"^(?:[-+#]|\d+(?=[.)]))")
_TICKS = re.compile(r"`+")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the report as GitHub's Markdown; `case` and `look` change nothing."""
    del case, look
    return "\n".join(_lines(tell(report))) + "\n"


def escape(text: str) -> str:
    """Make a text mean nothing but itself in Markdown."""
    marked = _MARKS.sub(lambda m: _ENTITIES.get(m[0], "\\" + m[0]), text)
    unlinked = _LINKS.sub(lambda m: f"{m[0]}<!-- -->", marked)
    return _LEADING.sub(lambda m: m[0] + "\\" if m[0].isdigit() else "\\" + m[0], unlinked)


def _lines(story: Story) -> Iterator[str]:
    yield f"### {story.status.upper()}: {escape(story.verdict)}"
    if story.whose:
        yield from ("", f"<sub>{'<br>'.join(map(escape, story.whose))}</sub>")
    if story.before:
        yield from ("", f"Seen before: {escape(story.before)}")
    for chapter in story.chapters:
        yield from _chapter(chapter)
    if story.others:
        yield from ("", "**Also found**", "")
        yield from (f"- {escape(line)}" for line in story.others)
    if story.ranks:
        yield from ("", f"**Ranks** ({escape(story.rank_head)})", "", "| status | ranks | |")
        yield "|---|---|---|"
        yield from (f"| {r.status} | {escape(r.ranks)} | {escape(r.text)} |" for r in story.ranks)
    if story.notes:
        yield from _details("Notes", (f"- {level}: {escape(text)}" for level, text in story.notes))
    if story.facts:
        yield from ("", f"<sub>{escape(', '.join(story.facts))}</sub>")


def _chapter(chapter: Chapter) -> Iterator[str]:
    head = f"**{chapter.code} {chapter.slug}** ({chapter.role}, {chapter.confidence} confidence)"
    yield from ("", head)
    if chapter.summary:
        yield from ("", escape(chapter.summary))
    yield ""
    for section in chapter.sections:
        if section.label == "stack":
            yield from _details("Stack, innermost first", _numbered(section.items))
        elif section.label == "source":
            yield from ("- **source**", "", *_code(section.items), "")
        elif section.label == "page":  # our own address, and no text from outside
            yield from (f"- **page**: <{address}>" for address in section.items)
        else:
            yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    first, *rest = section.items
    if section.steps and rest:
        yield f"- **{section.label}**"
        yield from (f"  {line}" for line in _numbered(section.items))
        return
    yield f"- **{section.label}**: {escape(first)}"
    yield from (f"  <br>{escape(item)}" for item in rest)


def _code(lines: Sequence[str]) -> Iterator[str]:
    """Lines as they are: in a block that they cannot end, whatever backticks are in them."""
    longest = max((len(run) for line in lines for run in _TICKS.findall(line)), default=0)
    fence = "`" * max(longest + 1, 3)
    yield from (fence, *lines, fence)


def _numbered(items: Iterable[str]) -> Iterator[str]:
    return (f"{number}. {escape(item)}" for number, item in enumerate(items, start=1))


def _details(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", f"<details><summary>{title}</summary>", "")
    yield from lines
    yield from ("", "</details>", "")
