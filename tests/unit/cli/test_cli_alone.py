"""`unhang` alone, words that are misspelt, and fish."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from unhang.cli.main import COMMANDS, main
from unhang.cli.shared import here
from unhang.run.watching import now
from unhang.run.watching.now import JobNow, RankNow


def job(name: str, quiet_s: float | None, *, alive: bool = True) -> JobNow:
    """A job of one rank on this node."""
    rank = RankNow(0, 7, alive, "ready", 5, None, 0, None, "", quiet_s, None)
    return JobNow(name, "node00", 4, (rank,))


def seen(monkeypatch: pytest.MonkeyPatch, *jobs: JobNow) -> list[str]:
    """What `unhang` says while these jobs run here."""
    monkeypatch.setattr(now.Looker, "look", lambda _: list(jobs))
    return [f"{each.what}: {each.command}" for each in here.what_is_here()]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory, and no job of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(now.Looker, "look", lambda _: [])


def test_a_job_that_stands_still_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that shows where; one that moves is shown live, one that ended is none."""
    assert seen(monkeypatch, job("a", 3.0), job("b", 270.0), job("c", 900.0, alive=False)) == [
        "job b has made no progress for 4 minutes, 1 rank here: unhang stacks --job b",
        "job a runs here, 1 rank: unhang top --job a",
    ]
    assert seen(monkeypatch, job("b", None)) == ["job b runs here, 1 rank: unhang top"]


def test_cases_and_files_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest case with its verdict, and what lies here, each with a command that runs."""
    for number, report in enumerate(("{", '{"status": "problem", "summary": "Rank 3 is away."}')):
        case = tmp_path / "unhang-cases" / str(number)
        case.mkdir(parents=True)
        (case / "report.json").write_text(report)
        os.utime(case, (1e9 + number, 1e9 + number))
    (tmp_path / "rank_0").write_bytes(b"\x80\x04}.")
    (tmp_path / "my job.log").write_text("step 1\n")
    os.mkfifo(tmp_path / "pipe.log")
    first, second, *files = seen(monkeypatch)
    assert first.endswith("PROBLEM  Rank 3 is away.: unhang diagnose unhang-cases/1")
    assert second == "2 cases under unhang-cases: unhang history"
    assert files == ["1 dump here: unhang diagnose .", "1 log here: unhang logs 'my job.log'"]
    assert main([]) == 0
    assert "  unhang diagnose unhang-cases/1\n" in capsys.readouterr().out


def test_a_case_and_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory of a case is judged whole; a program is run or rehearsed, not read."""
    (tmp_path / "dumps").mkdir()
    assert seen(monkeypatch) == ["this directory is a case: unhang diagnose ."]
    (tmp_path / "my train.py").write_text("print(1)\n")
    assert main(["my train.py"]) == 2
    assert "unhang run -- python 'my train.py' watches it" in capsys.readouterr().err


def test_with_nothing_here_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """As before: help, and exit code 2."""
    assert main([]) == 2
    assert "diagnose" in capsys.readouterr().out


def test_a_misspelt_option_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """And a misspelt command."""
    for words, meant in (
        (["diagnose", "--fromat", "json"], "did you mean --format?"),
        (["diagnose", "--wrld-size=4"], "did you mean --world-size?"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert meant in capsys.readouterr().err
    assert main(["diagnos"]) == 2
    assert "Did you mean: unhang diagnose?" in capsys.readouterr().err


def test_an_option_like_no_other_is_only_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """No guess without ground."""
    with pytest.raises(SystemExit):
        main(["diagnose", "--qqqqqq"])
    assert "did you mean" not in capsys.readouterr().err


def test_fish_completes_commands_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command, with quotes that fish reads."""
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for entry in COMMANDS:
        assert any(f"-a {entry.name} -d " in line for line in lines)
    of_diagnose = [line for line in lines if "__fish_seen_subcommand_from diagnose" in line]
    assert any("-l format -x -a 'text json " in line for line in of_diagnose)
    assert any(line.endswith(" -F") for line in of_diagnose)
    assert all(line.replace("\\'", "").count("'") % 2 == 0 for line in lines)
    assert json.dumps(lines).isascii()


def test_a_history_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was named: nothing found there would look like nothing that came before."""
    gone = tmp_path / "gone"
    assert main(["diagnose", str(tmp_path), "--history", str(gone)]) == 2
    assert "is not a directory" in capsys.readouterr().err
