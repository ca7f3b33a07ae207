"""Lines of public threads, labelled before the rules had seen them: right, or honestly unknown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from log_fuzz import judged

from unhang.catalogue import kind_of

THREADS = Path(__file__).parents[2] / "data" / "logs" / "public" / "threads.txt"


@dataclass(frozen=True, slots=True)
class Thread:
    """What somebody pasted, and what may be said about it."""

    source: str
    verdicts: tuple[str, ...]
    families: tuple[str, ...]
    ranks: frozenset[int]
    text: str


def threads() -> list[Thread]:
    """All of them; each begins with "### source | verdicts | families | ranks | what happened"."""
    parts = THREADS.read_text().split("\n### ")[1:]
    return [thread(*part.split("\n", 1)) for part in parts]


def thread(head: str, text: str) -> Thread:
    """One of them, from its head line and its text."""
    source, verdicts, families, ranks, _ = (field.strip() for field in head.split("|"))
    return Thread(
        source,
        tuple(verdicts.split(", ")),
        tuple(families.split(", ")),
        frozenset(int(rank) for rank in ranks.split() if rank.isdigit()),
        text,
    )


@pytest.mark.parametrize("pasted", threads(), ids=lambda pasted: pasted.source)
def test_what_was_pasted_is_told_right_or_not_at_all(pasted: Thread, tmp_path: Path) -> None:
    """No failure is healthy, no sound log a problem; who is named is one whom the text names."""
    report = judged(tmp_path / "job.log", f"{pasted.text}\n".encode())
    first = report.findings[0] if report.findings else None
    healthy = {"healthy", "insufficient"} if "healthy" in pasted.verdicts else set()
    assert report.status in {*pasted.verdicts, *healthy}
    if report.status == "problem":
        assert first is not None
        kind = kind_of(first.code)
        assert kind is not None
        assert kind.family in pasted.families
    assert set(first.culprits if first else ()) <= pasted.ranks


def test_there_are_enough_of_them() -> None:
    """About four hundred, from as many threads."""
    assert len({pasted.source for pasted in threads()}) >= 400
