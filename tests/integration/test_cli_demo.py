"""`unhang demo` as somebody runs it who has just installed it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import unhang
from needs import needs_torch

from lab.truth import read_truth
from unhang.cli.main import main

ROOT = Path(__file__).parents[2]
TRUTH = read_truth(ROOT / "examples" / "never-joined-armed")
JOB = ROOT / "src" / "unhang" / "demo" / "train.py"
CULPRIT_LINE = JOB.read_text().splitlines().index("            time.sleep(1000)") + 1


def test_a_replay_names_a_rank_and_a_line(tmp_path: Path) -> None:
    """The captured hang: no torch, nothing left behind."""
    done = unhang("demo", "--replay", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"rank {TRUTH.causes[0].culprits[0]}" in done.stdout
    assert f"{TRUTH.lines[0].file}:{TRUTH.lines[0].line}" in done.stdout
    assert list(tmp_path.iterdir()) == []


@needs_torch
def test_a_live_hang_shows_the_culprits_own_line(tmp_path: Path) -> None:
    """The job really hangs; the case goes where it is asked for, and nothing else stays."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environ = {**os.environ, "TMPDIR": str(scratch)}
    done = unhang("demo", "--case", "case", cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"demo/train.py:{CULPRIT_LINE}" in done.stderr
    report = json.loads((tmp_path / "case" / "report.json").read_text())
    cause = report["findings"][0]
    assert (cause["code"], cause["culprits"]) == ("UH101", [1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case", "tmp"]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("words", [["--case", "kept"], ["--keep"]])
def test_without_torch_there_is_no_case_to_keep(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence and a hint; without such a wish it replays, and says why."""
    monkeypatch.setattr("unhang.cli.demo.find_spec", lambda _name: None)
    assert main(["demo", *words]) == 2
    assert "pip install torch" in capsys.readouterr().err
    assert main(["demo"]) == 0
    assert capsys.readouterr().out.startswith("torch is not installed here")


def test_wrong_usage_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A replay has no case; a directory that exists is not overwritten."""
    assert main(["demo", "--replay", "--keep"]) == 2
    assert main(["demo", "--case", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("hint:") == 2
