"""Public posts about hung jobs, as people pasted them: what is told, and that no one is accused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.rules.rows import tomllib
from unhang.analysis import diagnose
from unhang.pasted import paste_of

POSTS = Path(__file__).parents[2] / "data" / "posts"
LABELS: dict[str, dict[str, Any]] = tomllib.loads((POSTS / "labels.toml").read_text())


def test_every_post_has_a_label() -> None:
    """And a source that can be looked up."""
    assert {path.stem for path in POSTS.glob("*.txt")} == set(LABELS)
    assert all(label["source"].startswith("https://") for label in LABELS.values())


@pytest.mark.parametrize("name", sorted(LABELS))
def test_a_post_is_told_as_its_label_says(name: str) -> None:
    """Status and ranks are the label's; the sentence names what is there."""
    label = LABELS[name]
    report = diagnose(paste_of({f"{name}.txt": (POSTS / f"{name}.txt").read_bytes()}).case)
    assert report.status in label["status"]
    assert set(report.culprits) <= set(label["culprits"])
    assert label["says"] in report.summary
