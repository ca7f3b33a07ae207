"""`unhang paste`, `unhang PATH`, and commands that were given a file of another kind."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from unhang.cli.main import main

STACKS = "".join(
    f"""Process {300 + rank}: python train.py
Thread {300 + rank} (idle): "MainThread"
    {frame}
    main (train.py:40)
    <module> (train.py:44)

"""
    for rank, frame in enumerate(
        ["all_reduce (torch/distributed/distributed_c10d.py:2841)"] * 2
        + ["load_batch (train.py:12)"]
    )
)
LOG = (
    "[rank1]:[E810 03:04:11.061727749 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=78, OpType=BROADCAST, NumelIn=80, NumelOut=80, "
    "Timeout(ms)=600000) ran for 600096 milliseconds before timing out.\n"
)
BOTH = f"It hangs:\n\n```\n{LOG}```\n\nand py-spy says\n\n```\n{STACKS}```\n"


def saved(folder: Path, text: str, name: str = "issue.md") -> str:
    """The path of a text."""
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_log_and_stacks_in_one_text_are_judged_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stacks show who is elsewhere; the page says what it rests on."""
    assert main(["paste", saved(tmp_path, BOTH), "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert "process 302" in report["summary"]
    assert "load_batch (train.py:12)" in report["summary"]
    notes = [note["text"] for note in report["notes"] if note["source"] == "paste"]
    assert "log with 1 known message, lines 1-7" in notes
    assert "rests on: the stacks of 3 processes (py-spy), lines 10-26" in notes


def test_what_to_paste_next_is_one_thing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It depends on what is there."""
    one = STACKS.partition("Process 301")[0]
    for text, lacks in (
        (LOG, "the stacks of every rank"),
        (one, "the stacks of its peers"),
        ("hello, world", "the last 200 lines of the job's log"),
    ):
        assert main(["paste", saved(tmp_path, text)]) == 3
        assert f"paste next {lacks}" in capsys.readouterr().out


STEPS = "".join(f"[2025-03-01 10:00:0{n}] step {n} loss 2.1\n" for n in range(4))


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (STEPS, "insufficient"),
        (f"{STEPS}training finished after 4 steps\n", "healthy"),
        (f"It hangs at exit:\n{STEPS}training finished after 4 steps\n", "insufficient"),
        (f"训练结束后卡住了\n{STEPS}training finished after 4 steps\n", "insufficient"),
        (f"{STEPS}INFO: no deadlock, training finished\n", "healthy"),
    ],
)
def test_an_excerpt_without_an_end_is_not_healthy(
    text: str, status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that hangs without a message leaves the same log; a person may say that it does."""
    main(["paste", saved(tmp_path, text), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["status"] == status


def test_both_commands_tell_the_same_of_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps that stop prove nothing, in a file as in a paste; nor does an end under a complaint."""
    done = f"{STEPS}training finished after 4 steps\n"
    stuck = f"It gets stuck:\n{done}"
    for text, status in ((STEPS, "insufficient"), (done, "healthy"), (stuck, "insufficient")):
        for command in ("logs", "paste"):
            main([command, saved(tmp_path, text, "a.log"), "--format", "json"])
            assert json.loads(capsys.readouterr().out)["status"] == status


def test_no_live_stacks_are_asked_for_where_the_job_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows from a failure is there, and no process any more."""
    ended = "`ERROR 01-16 17:16:49 [core_client.py:605] Engine core proc A died unexpectedly, x`\n"
    assert main(["paste", saved(tmp_path, ended)]) == 3
    shown = capsys.readouterr().out
    assert "while it lives" not in shown
    assert "paste next the logs of all ranks" in shown


@pytest.mark.parametrize("words", [[], ["paste"], ["diagnose"], ["stacks"], ["logs"]])
def test_any_command_judges_any_text(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wrong sort of file is no error where another reader knows it."""
    assert main([*words, saved(tmp_path, STACKS), "--format", "json"]) == 1
    assert "process 302" in json.loads(capsys.readouterr().out)["summary"]


@pytest.mark.parametrize("words", [[], ["diagnose"], ["stacks"]])
def test_any_command_judges_a_log(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which one did is said on stderr, where it is not the one that was called."""
    assert main([*words, saved(tmp_path, LOG, "train.log")]) == 3
    told = capsys.readouterr()
    assert "rank 1 waited" in told.out
    assert ("as unhang paste" in told.err) is bool(words)


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`unhang -` is `unhang paste -`."""
    for words in (["paste", "-"], ["-"]):
        stream = SimpleNamespace(buffer=io.BytesIO(STACKS.encode()))
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(words) == 1
        assert "process 302" in capsys.readouterr().out.replace("\n", " ")


def test_what_the_shell_hands_over(capsys: pytest.CaptureFixture[str]) -> None:
    """As `unhang paste <(py-spy dump --pid 7)`."""
    reads, writes = os.pipe()
    os.write(writes, STACKS.encode())
    os.close(writes)
    try:
        assert main(["paste", f"/dev/fd/{reads}"]) == 1
    finally:
        os.close(reads)
    assert "process 302" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.write_text(" \n"), "is empty"),
        (lambda path: path.write_bytes(bytes(range(256)) * 20), "is not text"),
        (lambda path: path.mkdir(), "holds no text"),
        (lambda _: None, "does not exist"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_a_hint(
    make: object, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and the command for what it is."""
    path = tmp_path / "thing"
    make(path)  # type: ignore[operator]
    assert main(["paste", str(path)]) == 3
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith(f"unhang: {path}")
    assert says in told[0]
    assert told[1].startswith("hint: ")


def test_a_word_that_is_nothing_gets_the_nearest_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is neither a command nor a path."""
    assert main(["diagnos"]) == 2
    assert "Did you mean: unhang diagnose?" in capsys.readouterr().err


def test_a_directory_of_dumps_needs_no_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes to diagnose, which says what it lacks."""
    assert main([str(tmp_path)]) == 3
    assert "no files to read" in capsys.readouterr().err
