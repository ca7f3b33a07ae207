"""From a verdict over rehearsals of changed scripts to a diff; the rehearsals are stood in for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.rehearse.talk import Ranks
from tests.unit.rehearse.test_endstate import verdict
from unhang.cli.main import main
from unhang.fixing import proposing
from unhang.fixing.proposing import proposed
from unhang.rehearse.commandline import RehearsedJob
from unhang.rehearse.wishes import RehearsalWishes
from unhang.report import Report

TEXT = "import torch.distributed as dist\nif rank == 0:\n    dist.barrier()  # \x0c\nend()"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the working directory whose rank 0 calls a barrier alone."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(TEXT)
    return path


def stuck(script: Path, folder: Path) -> Report:
    """What a rehearsal says of it."""
    ranks = Ranks(3)
    ranks.call(0, 3)
    for rank in (1, 2):
        ranks.end(rank)
    report = verdict(ranks, folder)
    (first, *_) = report.findings
    sites = tuple(replace(site, file=str(script)) for site in first.sites)
    return replace(report, findings=(replace(first, sites=sites),))


def stand_in(monkeypatch: pytest.MonkeyPatch, stuck: Report, changed: Report) -> list[str]:
    """Rehearsals that say one thing of the script and another of a changed one."""
    rehearsed: list[str] = []

    @contextmanager
    def rehearse(
        job: RehearsedJob, wishes: RehearsalWishes, command: Sequence[str]
    ) -> Iterator[tuple[None, Report, None]]:
        del job, command
        rehearsed.extend(wishes.instead.values())
        yield None, changed if wishes.instead else stuck, None

    monkeypatch.setattr(proposing, "rehearsed", rehearse)
    return rehearsed


def test_a_change_is_shown_where_its_rehearsal_is_clean(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a diff that git applies, and the script stays as it is."""
    report = stuck(script, script.parent / "case")
    healthy = replace(report, status="healthy", summary="Every call met.", findings=())
    seen = stand_in(monkeypatch, report, healthy)
    assert main(["fix", "--ranks", "3", "--", "python", "train.py"]) == 1
    said = capsys.readouterr()
    wanted = TEXT.replace("if rank == 0:\n    dist", "dist")
    assert seen == [wanted]
    assert "unhang: rehearsed with it: Every call met." in said.err
    assert script.read_text() == TEXT
    subprocess.run(["git", "apply", "-"], input=said.out.encode(), check=True)
    assert script.read_text() == wanted


def test_a_script_elsewhere_is_changed_in_its_own_directory(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A diff that leads out of the working directory is refused by git."""
    report = stuck(script, script.parent / "case")
    stand_in(monkeypatch, report, replace(report, status="healthy", findings=()))
    (script.parent / "other").mkdir()
    monkeypatch.chdir(script.parent / "other")
    main(["fix", "--ranks", "3", "--", "python", "../train.py"])
    said = capsys.readouterr()
    assert said.out.startswith("--- a/train.py\n+++ b/train.py\n")
    assert f"Apply it in {script.parent}." in said.err


def test_no_change_is_shown_where_a_fault_is_left(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reason is what the rehearsal said."""
    report = stuck(script, script.parent / "case")
    stand_in(monkeypatch, report, replace(report, summary="It still hangs."))
    assert main(["fix", "--ranks", "3", "--", "python", "train.py"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "A rehearsal of that says: It still hangs." in said.err


def test_a_healthy_job_needs_no_change(
    script: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And no second rehearsal."""
    report = replace(stuck(script, tmp_path / "case"), status="healthy")
    seen = stand_in(monkeypatch, report, report)
    found = proposed(RehearsedJob("python", "train.py"), RehearsalWishes(), [])
    assert found.patch is None
    assert seen == []


def test_a_script_of_windows_is_left_alone(script: Path, tmp_path: Path) -> None:
    """Its line ends would not stay."""
    script.write_bytes(TEXT.replace("\n", "\r\n").encode())
    (reason,) = proposing.patches_for(stuck(script, tmp_path / "case"))
    assert reason == "train.py has line ends of another kind than newlines"


def test_a_fault_without_a_pattern_says_so(
    script: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No reason is no output at all."""
    script.write_text(TEXT.replace("rank", "loss"))
    report = stuck(script, tmp_path / "case")
    stand_in(monkeypatch, report, report)
    found = proposed(RehearsedJob("python", "train.py"), RehearsalWishes(), [])
    assert found.reasons == ("no pattern with a mechanical change fits its lines",)
