"""docs/glossary.md says each word once, and names what is there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
DEFINED, _, OF_RECORD = GLOSSARY.partition("## Terms of record")
_HEADS = {"word", "---", "in the source"}


def rows(text: str) -> list[tuple[str, str]]:
    """The two cells of each row of the tables in a text."""
    cells = (
        re.split(r"(?<!\\)\|", line.strip("|")) for line in text.splitlines() if line[:1] == "|"
    )
    found = [(row[0].strip(), row[1].strip()) for row in cells]
    return [row for row in found if row[0] not in _HEADS]


def words_of_entry(entry: str) -> list[str]:
    """The words of "culprit, victim", or of "sequence number (`seq`)": two each."""
    return [word.strip(" `*").lower() for word in re.split(r"[,(]", entry.replace(")", ""))]


def repeated(text: str) -> dict[str, int]:
    """Words that have more than one entry."""
    counted = Counter(word for entry, _ in rows(text) for word in words_of_entry(entry))
    return {word: times for word, times in counted.items() if times > 1}


def test_a_word_has_one_entry() -> None:
    """Two entries are two meanings, or one meaning in two versions."""
    assert repeated(DEFINED) == {}


def test_a_second_entry_is_found() -> None:
    """As a word of its own, in a list, or as the short form of another."""
    text = "| word | meaning |\n|---|---|\n| look | a |\n| end, `look` | b |\n| number (end) | c |"
    assert repeated(text) == {"look": 2, "end": 2}


def test_an_entry_has_one_meaning() -> None:
    """A second meaning hides behind "; also"."""
    assert [entry for entry, meaning in rows(DEFINED) if re.search(r"; also\b", meaning)] == []


def test_terms_of_record_stand_for_words_that_are_there() -> None:
    """A word that is in the source no longer needs no row; a term of record means one thing."""
    defined = {word for entry, _ in rows(DEFINED) for word in words_of_entry(entry)}
    package = ROOT / "src" / "unhang"
    there = {path.stem for path in package.rglob("*.py")} | {p.name for p in package.rglob("*")}
    ours, terms = zip(*rows(OF_RECORD), strict=True)
    assert [word for word in ours if word not in defined | there] == []
    assert [term for term, times in Counter(terms).items() if times > 1] == []
    assert {term.lower() for term in terms} & defined == set()
