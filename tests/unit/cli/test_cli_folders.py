"""Folders of texts under any names: one paste; links that lead out are told and not followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.cli.main import main

LOG = "[1,0]<stderr>:[2019-04-13 13:55:31.858119: W x.cc:588] op_0 [missing ranks: 1]\n"
STACK = """Process 302: python train.py
Python v3.12.3 (/usr/bin/python3.12)

Thread 302 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    main (train.py:31)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log, a stack and a program, under names that tell nothing; a link to a file elsewhere."""
    sent = tmp_path / "sent"
    (sent / "more").mkdir(parents=True)
    (sent / "what it printed").write_text(LOG)
    (sent / "more" / "where it stands").write_text(STACK)
    (sent / "train.py").write_text("raise ValueError('ValueError: not printed')\n")
    (tmp_path / "secret.log").write_text("[rank7]: ValueError: of another\n")
    (sent / "link.log").symlink_to(tmp_path / "secret.log")
    return sent


@pytest.mark.parametrize("words", [[], ["diagnose"], ["paste"]])
def test_a_folder_of_texts_is_judged_as_one(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Log and stack together, by their files; neither the program nor the link."""
    assert main([*words, str(folder), "-v"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "culprit rank 1" in told
    assert "in what it printed" in told
    assert "in where it stands" in told
    assert "link.log: a link that leads out of the folder" in told
    assert "ValueError" not in told


@pytest.mark.parametrize("command", ["logs", "stacks"])
def test_no_link_that_leads_out_is_followed(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told instead; a link inside the folder is as good as a file."""
    (folder / "job.log").write_text(LOG)
    (folder / "again.log").symlink_to(folder / "job.log")
    main([command, str(folder), "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    left_out = [n["source"] for n in report["notes"] if "leads out" in n["text"]]
    assert left_out == [str(folder / "link.log")]
    assert "of another" not in str(report)


def test_logs_of_a_folder_without_names_of_logs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no file is called as a log, its texts are judged as a paste."""
    (folder / "link.log").unlink()
    assert main(["logs", str(folder)]) == 1
    said = capsys.readouterr()
    assert "rank 1" in said.out
    assert "as unhang paste" in said.err


def test_a_folder_without_texts_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, and a hint."""
    (tmp_path / "core").write_bytes(bytes(range(256)) * 9)
    assert main(["paste", str(tmp_path)]) == 3
    assert "holds no text" in capsys.readouterr().err
