"""The rows of docs/from-the-guides.md: what a guide says, and what our command for it prints."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["PAGE", "examples", "flat", "not_run", "on_the_page"]

PAGE = Path(__file__).parents[2] / "docs" / "from-the-guides.md"
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


def examples() -> dict[str, list[str]]:
    """What we print for each example of a guide, by the first words of code of its row."""
    found = {}
    for guide, _, says in _ROW.findall(PAGE.read_text().replace(r"\|", "\0")):
        code = _CODE.findall(guide)
        if code:
            found[guide.replace("\0", "|").partition("`")[2].partition("`")[0]] = _CODE.findall(
                says
            )
    return found


def flat(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


def on_the_page(example: str, output: str) -> None:
    """Check that a command printed what the page shows for an example of a guide.

    Args:
        example: How it begins, which no other one does.
        output: What was printed.
    """
    (excerpts,) = (says for begins, says in examples().items() if begins.startswith(example))
    assert excerpts, f"the page shows nothing of {example}"
    for excerpt in excerpts:  # Without spaces: a long path is broken in the middle of a word.
        pattern = re.escape(_dense(excerpt)).replace("4711", r"\d+").replace("…", ".*?")
        assert re.search(pattern, _dense(output)), f"{excerpt!r} is not in:\n{output}"


def _dense(text: str) -> str:
    return "".join(text.split())


def not_run(tests: Path) -> list[str]:
    """The examples of the page that no test in a folder compares with what was printed."""
    texts = (path.read_text() for path in tests.glob("test_*.py"))
    ours = "".join(text for text in texts if "import on_the_page" in text or "on_the_page(" in text)
    literals = {a or b for a, b in re.findall(r"\"([^\"\n]{8,})\"|'([^'\n]{8,})'", ours)}
    meant = [[e for e in examples() if e.startswith(literal)] for literal in literals]
    run = {found[0] for found in meant if len(found) == 1}
    return [example for example in examples() if example not in run]
