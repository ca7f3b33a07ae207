"""The report on a terminal: what matters in a dozen lines, or all of it.

Nothing is read as markup, colours come only when asked for, and without Unicode everything is
plain ASCII.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from unhang.case import Case
from unhang.report import Report, Step
from unhang.reports.content.brief import Brief, brief_of
from unhang.reports.content.story import Chapter, Section, Story, tell
from unhang.reports.look import Look
from unhang.reports.paint import paint, to_ascii

_STATUS_STYLES = {
    "problem": "bold red",
    "slow": "bold yellow",
    "insufficient": "bold yellow",
    "healthy": "bold green",
}
_LABEL_STYLES = {"culprit": "bold red", "next": "bold green"}
_RANK_STYLES = {"culprit": "red", "silent": "red", "unreadable": "red", "waiting": "yellow"}
_LABEL_WIDTH = len("  confidence")
_INDENT = _LABEL_WIDTH + 1


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the report as text; `case` adds nothing to it."""
    del case
    look = look or Look()
    if not look.full:
        brief = brief_of(report)
        return paint(_short_page(brief if look.unicode else to_ascii(brief), look.width), look)
    story = tell(report)
    return paint(_page(story if look.unicode else to_ascii(story)), look)


def _short_page(brief: Brief, width: int) -> RenderableType:
    table = _labelled()
    for label, items in brief.rows:
        _add(table, label, [Text(item) for item in items])
    label = "confidence" if brief.confidence else "seen"
    _add(table, label, [Text(item) for item in _sure(brief)])
    parts: list[RenderableType] = [_verdict(brief.status, brief.verdict), *_dim(brief.whose)]
    if table.row_count:
        parts += [Text(""), table]
    parts += _commands(brief.next, width)
    return Group(*parts, Text(f"\n{brief.more}", style="dim"))


def _sure(brief: Brief) -> list[str]:
    """How sure it is, why no surer, and what it rests on; a line where there is no doubt."""
    if brief.doubt:
        return [f"{brief.confidence}: {brief.doubt}", brief.basis]
    parts = [part for part in (brief.confidence, brief.basis) if part]
    return [", ".join(parts)] if parts else []


def _commands(steps: Sequence[Step], width: int) -> Iterator[Text]:
    """A line a command, however long: broken in two it could not be copied."""
    for number, step in enumerate(steps):
        label = Text(("  next" if number == 0 else "").ljust(_INDENT), _LABEL_STYLES["next"])
        why = f"  # {step.why}"
        fits = _INDENT + len(step.command) + len(why) <= width
        yield _line(label, Text(step.command, "bold"), Text(why if fits else "", "dim"))
        if not fits:
            yield _line(Text(" " * _INDENT), Text(why.strip(), "dim"))


def _line(*parts: Text) -> Text:
    line = Text(no_wrap=True, overflow="ignore")
    for part in parts:
        line.append_text(part)
    return line


def _page(story: Story) -> RenderableType:
    parts: list[RenderableType] = [_verdict(story.status, story.verdict), *_dim(story.whose)]
    if story.before:
        parts.append(Text(f"Seen before: {story.before}"))
    for chapter in story.chapters:
        parts += [_chapter_head(chapter), _sections(chapter)]
    if story.others:
        parts += [_head("Also found"), _bullets(story.others)]
    if story.ranks:
        parts += [_head("Ranks", story.rank_head), _ranks(story)]
    if story.notes:
        parts += [_head("Notes"), _bullets([f"{level}: {text}" for level, text in story.notes])]
    if story.facts:
        parts.append(Text("\n" + ", ".join(story.facts), style="dim"))
    return Group(*parts)


def _dim(lines: Sequence[str]) -> Iterator[Text]:
    return (Text(line, "dim") for line in lines)


def _verdict(status: str, verdict: str) -> Text:
    word = Text(status.upper(), style=_STATUS_STYLES[status])
    return Text.assemble(word, "  ", (verdict, "bold"))


def _chapter_head(chapter: Chapter) -> Text:
    head = Text.assemble(
        "\n",
        (f"{chapter.code} {chapter.slug}", "bold cyan"),
        (f"  {chapter.role}, {chapter.confidence} confidence", "dim"),
    )
    return head.append(f"\n{chapter.summary}") if chapter.summary else head


def _head(title: str, detail: str = "") -> Text:
    return Text.assemble("\n", (title, "bold"), (f"  {detail}" if detail else "", "dim"))


def _labelled() -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=_LABEL_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _add(table: Table, name: str, items: Sequence[RenderableType]) -> None:
    """Add a row an item, the label on the line of the first."""
    for number, item in enumerate(items):
        label = Text(f"  {name}" if number == 0 else "", style=_LABEL_STYLES.get(name, "dim"))
        table.add_row(label, item)


def _sections(chapter: Chapter) -> Table:
    table = _labelled()
    for section in chapter.sections:
        items = [_item(section, number, item) for number, item in enumerate(section.items)]
        _add(table, section.label, items)
    return table


def _item(section: Section, number: int, item: str) -> RenderableType:
    if not section.steps or len(section.items) == 1:
        return Text(item)
    return _hanging(f"{number + 1}.", item)


def _hanging(mark: str, item: str) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark), Text(item))
    return grid


def _bullets(lines: list[str] | tuple[str, ...]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=3, no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(Text("  -"), Text(line))
    return grid


def _ranks(story: Story) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=30)
    grid.add_column(overflow="fold")
    for row in story.ranks:
        style = _RANK_STYLES.get(row.status, "")
        grid.add_row(Text(f"  {row.status}", style=style), Text(row.ranks), Text(row.text))
    return grid
