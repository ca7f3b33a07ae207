"""Texts follow docs/writing.md: its words are counted, and so are sentences that are too long.

Most texts are older than that page, so each area has a ceiling, which is lowered whenever texts are
mended; what is listed as clean has none of these words. `python tests/unit/test_words.py` prints
the counts, or with a path the places.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "unhang"
STYLE = ROOT / "docs" / "writing.md"
MOST_WORDS: Final = 40
TWENTY: Final = 20
QUOTES_THEM = {STYLE}
"""Pages that show these words to say what to write instead."""


class Ceiling(NamedTuple):
    """How many words of the list, and how many sentences that are too long, an area may have."""

    words: int
    long: int


CEILINGS: Final = {
    "docstrings": Ceiling(40, 33),
    "messages": Ceiling(12, 7),
    "help": Ceiling(4, 2),
    "rows": Ceiling(0, 1),
    "docs": Ceiling(6, 3),
}
"""May only fall."""

CLEAN: Final = (
    "README.md",
    "docs/glossary.md",
    "src/unhang/cli/main.py",
    "src/unhang/cli/commands.py",
    "src/unhang/analysis/words/decisions.py",
    "src/unhang/analysis/words/doubts.py",
    "src/unhang/analysis/rules/telling.py",
    "src/unhang/reports/content/brief.py",
    "src/unhang/reports/content/phrases.py",
    "src/unhang/reports/text.py",
)


def listed_words() -> tuple[str, ...]:
    """The left column of the table of words."""
    table = STYLE.read_text(encoding="utf-8").split("## Words")[1].split("\n## ")[0]
    cells = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)
    return tuple(cell for cell in cells if cell != "not this")


LISTED: Final = re.compile(rf"\b(?:{'|'.join(listed_words())})\b", re.IGNORECASE)
_BLOCKS: Final = re.compile(
    r"```.*?```|<!-- made:.*?<!-- end -->|(?<=\n\n)(?: {4}[^\n]*\n|\n(?= {4}))+"
    r"|`[^`\n]*`|(?<=\])\([^)\s]*\)",
    re.DOTALL,
)
_ENDS: Final = re.compile(
    r"(?<=[.!?])[)\"']*\s+|\n\s*\n|\n\s*(?:[-*#|>]|\d+\.|(?=unhang ))|\|"  # examples: a line each
)


def words_in(text: str) -> list[str]:
    """Words of the list in a text, in order."""
    return [found.lower() for found in LISTED.findall(" ".join(text.split()))]


def long_sentences(text: str) -> list[str]:
    """Sentences of more than `MOST_WORDS` words; an item, a cell or a paragraph ends one too."""
    sentences = (" ".join(part.split()) for part in _ENDS.split(text) if part)
    return [each for each in sentences if len(re.findall(r"[^\W_]+", each)) > MOST_WORDS]


def of_page(path: Path) -> Iterator[str]:
    """The prose of a page: no code, nothing that is generated."""
    if path not in QUOTES_THEM:
        yield _BLOCKS.sub("x", path.read_text(encoding="utf-8"))


def documented(tree: ast.Module) -> Iterator[ast.Constant]:
    """The nodes of docstrings, those of attributes and constants among them."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                yield each.value


def docstrings_of(path: Path) -> Iterator[str]:
    """The docstrings of a module."""
    for node in documented(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node.value, str):
            yield node.value


def messages_of(path: Path) -> Iterator[str]:
    """Other strings of a module; the holes of an f-string count as a word."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    apart = {id(node) for node in documented(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            apart |= {id(value) for value in node.values}
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "x" for v in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.value


def rows_of(path: Path) -> Iterator[str]:
    """What the rows of rules and kinds say, as the product reads them."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        yield row["meaning"]
        yield from [row["action"]] if "action" in row else row["actions"] + row["alternatives"]


def of_file(path: Path) -> Iterator[str]:
    """All texts of a file."""
    if path.suffix == ".md":
        yield from of_page(path)
    else:
        yield from docstrings_of(path)
        yield from messages_of(path)


def areas() -> dict[str, list[str]]:
    """The texts of each area; those of commands are their help."""
    found: dict[str, list[str]] = {area: [] for area in CEILINGS}
    for path in sorted(SRC.rglob("*.py")):
        if path.is_relative_to(SRC / "cli"):
            found["help"] += of_file(path)
        else:
            found["docstrings"] += docstrings_of(path)
            found["messages"] += messages_of(path)
    for path in (SRC / "logs" / "rules" / "rows.json", SRC / "kinds.json"):
        found["rows"] += rows_of(path)
    skills = sorted((ROOT / "skills").rglob("*.md"))
    for path in [ROOT / "README.md", *skills, *sorted((ROOT / "docs").rglob("*.md"))]:
        found["docs"] += of_page(path)
    return found


def counted() -> dict[str, Ceiling]:
    """What each area has now."""
    return {
        area: Ceiling(
            sum(len(words_in(text)) for text in texts),
            sum(len(long_sentences(text)) for text in texts),
        )
        for area, texts in areas().items()
    }


def test_areas_keep_below_their_ceilings() -> None:
    """A change that adds a word of the list, or a long sentence, has to mend another first."""
    over = {
        area: f"{have} instead of at most {CEILINGS[area]}"
        for area, have in counted().items()
        if have.words > CEILINGS[area].words or have.long > CEILINGS[area].long
    }
    assert over == {}, "see docs/writing.md; python tests/unit/test_words.py PATH shows places"


@pytest.mark.parametrize("name", CLEAN)
def test_clean_files_stay_clean(name: str) -> None:
    """No word of the list and no long sentence."""
    texts = list(of_file(ROOT / name))
    assert [word for text in texts for word in words_in(text)] == []
    assert [sentence for text in texts for sentence in long_sentences(text)] == []


def outputs_of(path: Path) -> Iterator[str]:
    """What a page shows that our commands print: parts that are made, and sessions in a shell."""
    text = path.read_text(encoding="utf-8")
    yield from re.findall(r"<!-- made:.*?<!-- end -->", text, re.DOTALL)
    for block in re.findall(r"```.*?```|(?<=\n\n)(?: {4}[^\n]*\n|\n(?= {4}))+", text, re.DOTALL):
        if re.search(r"^\s*\$ .*unhang", block, re.MULTILINE):
            yield block


def shown_outputs() -> list[str]:
    """The outputs of all pages, those of codes with their examples among them."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    slug = "gloo-nobody-came"  # older than the page, and slugs stay
    return [text.replace(slug, "") for page in pages for text in outputs_of(page)]


def test_outputs_that_pages_show_are_free_of_these_words() -> None:
    """They are printed by the commands themselves, for every code that has an example."""
    shown = shown_outputs()
    assert len(shown) >= TWENTY
    assert [word for text in shown for word in words_in(text)] == []


def reworded() -> list[tuple[str, str, str]]:
    """The rows of the style page's table of reports: finding, before, after."""
    table = STYLE.read_text(encoding="utf-8").split("## Twenty reports before and after")[1]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    return [row for row in rows if row[0] != "finding"]


def test_reports_after_are_what_pages_show() -> None:
    """As far as the finding has a page with an example, which is made by running it."""
    assert len(reworded()) == TWENTY
    for finding, before, after in reworded():
        assert before != after
        assert words_in(after) == [], finding
        if linked := re.search(r"\((codes/\w+\.md)\)", finding):
            page = " ".join((STYLE.parent / linked[1]).read_text(encoding="utf-8").split())
            assert after in page, finding


def test_words_and_lengths_are_found() -> None:
    """In any case and over the end of a line; a list is no sentence."""
    assert words_in("Nobody is\ntold; tables OF\n    WHICH") == ["nobody", "is told", "of which"]
    assert words_in("besides, nobodys, it told") == []
    assert long_sentences("word " * 41) == [("word " * 41).strip()]
    assert long_sentences("word " * 40 + ".\n" + "word " * 40) == []
    assert long_sentences("- " + "word " * 30 + "\n- " + "word " * 30) == []


def test_strings_are_told_from_docstrings(tmp_path: Path) -> None:
    """Those below a constant document it; an f-string is one text."""
    path = tmp_path / "module.py"
    path.write_text('"""Top."""\nX = 1\n"""Below."""\nY = f"a {X} b" + "c"\n', encoding="utf-8")
    assert list(docstrings_of(path)) == ["Top.", "Below."]
    assert sorted(messages_of(path)) == ["a x b", "c"]


def _show(paths: list[str]) -> None:
    for name in paths:
        for part in (part for text in of_file(Path(name).resolve()) for part in _ENDS.split(text)):
            if part and (found := [*words_in(part), *map(len, long_sentences(part))]):
                print(f"{name}: {found}: {' '.join(part.split())}")
    if not paths:
        sizes = {area: len(" ".join(texts).split()) for area, texts in areas().items()}
        for area, have in counted().items():
            share = 10_000 * have.words / sizes[area]
            long = f"{have.long:5} long sentences"
            print(f"{area:12} {have.words:5} words {long} {share:6.1f} words in 10,000")
        size = len(" ".join(shown_outputs()).split())
        print(f"{'outputs':12} {sum(len(words_in(text)) for text in shown_outputs()):5} of {size}")


if __name__ == "__main__":
    _show(sys.argv[1:])
