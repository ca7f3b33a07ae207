"""The report on a terminal: what matters in the first ten lines, the whole on one screen.

Nothing is read as markup, colours come only when asked for, and without Unicode everything is
plain ASCII.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from unhang.case import Case
from unhang.report import Report
from unhang.reports.look import Look
from unhang.reports.paint import paint, to_ascii
from unhang.reports.story import Chapter, Section, Story, tell

__all__ = ["render"]

_STATUS_STYLES = {
    "problem": "bold red",
    "slow": "bold yellow",
    "insufficient": "bold yellow",
    "healthy": "bold green",
}
_LABEL_STYLES = {"culprit": "bold red", "next": "bold green"}
_RANK_STYLES = {"culprit": "red", "silent": "red", "unreadable": "red", "waiting": "yellow"}
_LABEL_WIDTH = 9


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the report as text; `case` adds nothing to it."""
    del case
    look = look or Look()
    story = tell(report)
    return paint(_page(story if look.unicode else to_ascii(story)), look)


def _page(story: Story) -> RenderableType:
    parts: list[RenderableType] = [_verdict(story)]
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


def _verdict(story: Story) -> Text:
    status = Text(story.status.upper(), style=_STATUS_STYLES[story.status])
    return Text.assemble(status, "  ", (story.verdict, "bold"))


def _chapter_head(chapter: Chapter) -> Text:
    head = Text.assemble(
        "\n",
        (f"{chapter.code} {chapter.slug}", "bold cyan"),
        (f"  {chapter.role}, {chapter.confidence} confidence", "dim"),
    )
    return head.append(f"\n{chapter.summary}") if chapter.summary else head


def _head(title: str, detail: str = "") -> Text:
    return Text.assemble("\n", (title, "bold"), (f"  {detail}" if detail else "", "dim"))


def _sections(chapter: Chapter) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=_LABEL_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    for section in chapter.sections:
        style = _LABEL_STYLES.get(section.label, "dim")
        for number, item in enumerate(section.items):
            label = Text(f"  {section.label}" if number == 0 else "", style=style)
            table.add_row(label, _item(section, number, item))
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
