from __future__ import annotations

from pathlib import Path

from unhang.stacks.rules import KINDS

PAGE = Path(__file__).parents[3] / "docs" / "stacks.md"


def test_every_kind_is_documented() -> None:
    """The page lists the kinds with the words of the table, and no others."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    told = {row.split("`")[1]: row.split("|")[2].strip() for row in rows}
    assert KINDS.items() <= told.items()
