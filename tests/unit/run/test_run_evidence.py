"""What the collector says of evidence that it could not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.collect.sampling import Looks
from unhang.model import Note
from unhang.run.incident import evidence
from unhang.run.incident.evidence import Collector


def test_who_cannot_be_looked_at_is_told_with_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sampler, or the right to use it, a verdict rests on less: people must hear that."""
    text = (
        "neither py-spy nor pystack is installed. Install a sampler: pip install 'unhang[stacks]'"
    )
    looks = Looks((), (Note("warning", "process 7, 8", text),))
    monkeypatch.setattr(evidence, "sample_processes", lambda *_, **__: looks)
    collector = Collector(tmp_path, "run", "incident", "hang", lambda: True)
    collector._take_stacks()
    assert collector.refused == [f"no stacks of process 7, 8: {text}"]
    assert collector.notes[:1] == collector.refused
