"""Each attempt's dumps of torch go to a place of their own, and the user's path is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unhang.record.dumps.staging import NAMES, stage_torch_dumps


def test_each_attempt_has_its_own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the path is that of an earlier attempt, as in a launcher below a rank."""
    monkeypatch.setenv("UNHANG_DIR", str(tmp_path))
    monkeypatch.setenv("UNHANG_RUN", "run")
    monkeypatch.setenv(NAMES[0], f"{tmp_path}/nccl/rank_")
    monkeypatch.setenv(NAMES[1], "/mine/rank_")
    for attempt in ("0", "3"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        stage_torch_dumps()
        assert os.environ[NAMES[0]] == f"{tmp_path}/a{attempt}/nccl/rank_"
        assert (tmp_path / f"a{attempt}" / "nccl").is_dir()
    assert os.environ[NAMES[1]] == "/mine/rank_"


def test_outside_of_a_run_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNHANG_DIR alone is the user's own choice."""
    monkeypatch.setenv("UNHANG_DIR", str(tmp_path))
    monkeypatch.delenv("UNHANG_RUN", raising=False)
    monkeypatch.setenv(NAMES[0], f"{tmp_path}/nccl/rank_")
    stage_torch_dumps()
    assert os.environ[NAMES[0]] == f"{tmp_path}/nccl/rank_"
    assert list(tmp_path.iterdir()) == []
