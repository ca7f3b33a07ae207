from __future__ import annotations

import re
from pathlib import Path

import pytest

from unhang.catalogue import DOCS, all_kinds, url_of
from unhang.cli.main import main
from unhang.kinds import FAMILIES, KINDS, Kind
from unhang.report import Finding
from unhang.reports.content.kind_pages import by_family, find, page_of

ALL = list(all_kinds().values())
PAGES = Path(__file__).parents[3] / "docs" / "codes"
SECTIONS = (
    "What it means",
    "What it rests on",
    "Example",
    "A near miss",
    "What else it could be",
    "What to do",
)


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


@pytest.mark.parametrize("kind", ALL, ids=lambda k: k.code)
def test_every_code_can_be_explained(kind: Kind) -> None:
    """By code, number and slug, with meaning and advice."""
    for name in (kind.code, kind.code.lower(), kind.code[2:], kind.slug, f" {kind.slug} "):
        assert find(name) == kind
    page = page_of(kind)
    assert page.startswith(f"# {kind.code} {kind.slug}\n\n{kind.meaning}\n")
    assert "## What to do" in page


def test_all_codes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With and without --list, one a line, below what their family is."""
    assert main(["explain"]) == 0
    first = capsys.readouterr().out
    assert main(["explain", "--list"]) == 0
    assert capsys.readouterr().out == first
    blocks = [block.splitlines() for block in first.rstrip("\n").split("\n\n")]
    assert [block[0] for block in blocks] == [f"{name}: {what}" for name, what in FAMILIES.items()]
    listed = [[line.split()[0] for line in block[1:]] for block in blocks]
    assert listed == [[kind.code for kind in kinds] for _, kinds in by_family()]
    assert sorted(code for codes in listed for code in codes) == sorted(kind.code for kind in ALL)


def test_a_page_is_printed_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets the Markdown, and below it the page's address."""
    assert main(["explain", "wait-cycle"]) == 0
    page = re.sub(r"(?m)^<!-- .* -->\n", "", (PAGES / "UH301.md").read_text()).rstrip()
    assert capsys.readouterr().out == f"{page}\n\n{DOCS}/codes/UH301.md\n"


@pytest.mark.parametrize("kind", ALL, ids=lambda k: k.code)
def test_every_address_leads_somewhere(kind: Kind) -> None:
    """To a file of docs/, and to a heading in it as GitHub names it."""
    name, _, mark = url_of(kind).removeprefix(f"{DOCS}/").partition("#")
    text = (PAGES.parent / name).read_text()
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert not mark or mark in {head.lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    ("place", "base"),
    [
        ("https://wiki.example/unhang/", "https://wiki.example/unhang"),
        ("file:///etc", DOCS),
        ("https://a.example/<script>", DOCS),
    ],
)
def test_pages_may_lie_elsewhere(monkeypatch: pytest.MonkeyPatch, place: str, base: str) -> None:
    """One variable moves them all; what is no address moves nothing."""
    monkeypatch.setenv("UNHANG_DOCS", place)
    assert Finding("f1", "UH301", "cause", "low", "").url == f"{base}/codes/UH301.md"
