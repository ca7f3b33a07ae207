"""Saved stacks that are only shown: of some ranks, without a verdict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unhang.cli.main import main
from unhang.collect import processes, sampling
from unhang.collect.permission import Refusal
from unhang.collect.processes import Process, ProcessTable
from unhang.collect.samplers import SampleTry
from unhang.stacks.formats.saved import write_samples
from unhang.testing import sample_of


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """Two ranks in a call, and one at work: stacks alone would call rank 2 the culprit."""
    places = ("torch/distributed/distributed_c10d.py:9 all_reduce < train.py:5 step",) * 2
    samples = [
        sample_of(rank, place, sample=n)
        for rank, place in enumerate((*places, "data.py:7 load < train.py:4 step"))
        for n in (0, 1)
    ]
    write_samples(tmp_path / "stacks.json", samples)
    return str(tmp_path / "stacks.json")


def test_without_a_verdict_stacks_are_shown_and_no_more(
    saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is judged, so that nothing is wrong either."""
    assert main(["stacks", saved]) != 0
    assert "PROBLEM" in capsys.readouterr().out
    assert main(["stacks", saved, "--no-verdict"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ranks 0-2 (3)")
    assert "data.py:7" in said
    assert "UH" not in said


def test_some_ranks_alone(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are named; others are refused with those that there are."""
    assert main(["stacks", saved, "--no-verdict", "--ranks", "1-2"]) == 0
    assert capsys.readouterr().out.startswith("ranks 1-2 (2)")
    assert main(["stacks", saved, "--ranks", "2,5"]) == 2
    said = capsys.readouterr().err
    assert "no stack of rank 5" in said
    assert "0-2" in said


@pytest.mark.parametrize("options", [["--case", "here"], ["--format", "json"]])
def test_no_verdict_can_be_saved_or_written(
    saved: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """There is none."""
    monkeypatch.chdir(tmp_path)
    assert main(["stacks", saved, "--no-verdict", *options]) == 2
    assert "with --no-verdict there is no verdict" in capsys.readouterr().err


def test_what_could_not_be_read_is_said(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stands in a verdict's notes, of which there are none here."""
    (tmp_path / "odd.json").write_text('{"schema": "unhang.stacks/1", "samples": 3}')
    assert main(["stacks", saved, str(tmp_path / "odd.json"), "--no-verdict"]) == 0
    assert "odd.json" in capsys.readouterr().err


def test_why_there_is_no_stack_of_a_process_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the reason, the hint what to do."""
    denied = SampleTry(None, "denied", "Operation not permitted")
    monkeypatch.setattr(sampling, "_ask", lambda *_, **__: denied)
    monkeypatch.setattr(
        sampling, "refusal", lambda _: Refusal("it belongs to user root (0)", "Run sudo x")
    )
    assert main(["stacks", "--pid", str(os.getpid())]) == 3
    said = capsys.readouterr().err
    assert said.count("belongs to user root") == 1
    assert said.endswith("hint: Run sudo x\n")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([Process(7, uid=5)], "/proc hides other users' processes here"),
        ([Process(1), Process(7, uid=5, python=True)], "1 Python processes of other users hide"),
        ([Process(1), Process(7, python=True, environ={})], "--all-python"),
    ],
)
def test_no_rank_found_says_what_this_user_cannot_see(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seen: list[Process],
    said: str,
) -> None:
    """Process 1 is in every namespace: where it is missing, /proc is mounted with hidepid."""
    monkeypatch.setattr(processes, "read_processes", lambda: ProcessTable.of(seen))
    assert main(["stacks"]) == 3
    assert said in capsys.readouterr().err
