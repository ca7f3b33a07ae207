from __future__ import annotations

import re
from pathlib import Path

import pytest

from unhang.cli.main import main
from unhang.cli.shared.pages import CodePage, entries, find, page_of
from unhang.kinds import KINDS

ENTRIES = list(entries())
PAGES = Path(__file__).parents[3] / "docs" / "codes"
SECTIONS = (
    "What it means",
    "What it rests on",
    "Example",
    "A near miss",
    "What else it could be",
    "What to do",
)


def test_codes_and_slugs_are_unique() -> None:
    """One code, one slug, over all tables."""
    assert len({entry.code for entry in ENTRIES}) == len(ENTRIES)
    assert len({entry.slug for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_code_of_the_analysis_has_a_whole_page(code: str) -> None:
    """Head, meaning as in the catalogue, and every section with something in it."""
    text = (PAGES / f"{code}.md").read_text()
    assert text.startswith(f"# {code} {KINDS[code].slug}\n\n{KINDS[code].meaning}\n")
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert tuple(heads) == SECTIONS
    for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        assert part.strip()


def test_there_is_no_page_without_a_code() -> None:
    """A page of a code that does not exist would never be read."""
    assert {path.stem for path in PAGES.glob("UH*.md")} == set(KINDS)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.code)
def test_every_code_can_be_explained(entry: CodePage) -> None:
    """By code, number and slug, with meaning and advice."""
    for name in (entry.code, entry.code.lower(), entry.code[2:], entry.slug, f" {entry.slug} "):
        assert find(name) == entry
    page = page_of(entry)
    assert page.startswith(f"# {entry.code} {entry.slug}\n\n{entry.meaning}\n")
    assert "## What to do" in page


def test_all_codes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With and without --list, one a line."""
    assert main(["explain"]) == 0
    first = capsys.readouterr().out
    assert main(["explain", "--list"]) == 0
    assert capsys.readouterr().out == first
    assert [line.split()[0] for line in first.splitlines()] == [entry.code for entry in ENTRIES]


def test_a_page_is_printed_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets the Markdown."""
    assert main(["explain", "wait-cycle"]) == 0
    assert capsys.readouterr().out == (PAGES / "UH301.md").read_text()
