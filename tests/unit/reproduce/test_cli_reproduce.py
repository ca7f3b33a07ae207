"""`unhang reproduce`: what it writes, refuses to write over, and says where it cannot run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unhang.analysis import diagnose
from unhang.cli.main import main
from unhang.ingest import load
from unhang.reproduce import trying
from unhang.reproduce.playing import judgement_of

EXAMPLES = Path(__file__).parents[3] / "examples"
DUMPS = str(EXAMPLES / "never-joined" / "dumps")


def test_without_torch_it_is_written_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And both the header and stderr say so."""
    monkeypatch.setattr(trying, "has_torch", lambda: False)
    script = tmp_path / "repro.py"
    assert main(["reproduce", DUMPS, "-o", str(script)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "the script is not run: torch is not installed here" in said.err
    assert "# Not tried. It should hang: torchrun --nproc-per-node 2 repro.py" in (
        script.read_text()
    )


def test_a_file_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is in it."""
    script = tmp_path / "train.py"
    script.write_text("mine")
    assert main(["reproduce", DUMPS, "-o", str(script)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert script.read_text() == "mine"


def test_a_script_that_shows_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it showed is said."""
    monkeypatch.setattr(trying, "has_torch", lambda: True)
    monkeypatch.setattr(trying, "tried", lambda *_: trying.Trial("", "It ran to its end."))
    script = tmp_path / "repro.py"
    assert main(["reproduce", DUMPS, "-o", str(script)]) == 3
    assert "so it is not written: It ran to its end." in capsys.readouterr().err
    assert not script.exists()


def test_a_script_that_gloo_ends_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is written for a rehearsal, which its header, stderr and the exit code say."""
    monkeypatch.setattr(trying, "has_torch", lambda: True)
    monkeypatch.setattr(trying, "tried", lambda *_: trying.Trial("rehearsal", "as the case"))
    script = tmp_path / "repro.py"
    assert main(["reproduce", DUMPS, "-o", str(script)]) == 1
    assert "it does not hang on Gloo" in capsys.readouterr().err
    assert "# Gloo does not hang here as NCCL does: unhang rehearse -- torchrun" in (
        script.read_text()
    )


def test_a_script_that_gloo_ends_where_nccl_hangs_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a reproducer, and no hang is promised."""
    monkeypatch.setattr(trying, "has_torch", lambda: True)
    monkeypatch.setattr(trying, "tried", lambda *_: trying.Trial("error", "as the case"))
    script = tmp_path / "repro.py"
    assert main(["reproduce", DUMPS, "-o", str(script)]) == 0
    assert "tried: Gloo ends it by an error" in capsys.readouterr().err
    assert "# Gloo ends it by an error where NCCL hangs, with the same verdict: torchrun" in (
        script.read_text()
    )


@pytest.mark.parametrize("ended", [True, False])
def test_what_is_said_of_the_calls_counts_where_a_process_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ended: bool
) -> None:
    """Gloo ends processes by the fault of the case: their end is then the report's cause."""
    report = diagnose(load([str(EXAMPLES / "wrong-shape" / "dumps")]))
    wanted = judgement_of(report)
    assert wanted is not None
    first = report.findings[0]
    end = replace(first, code="UH106", slug="rank-ended", culprits=(0, 2))
    told = (end, replace(first, role="consequence")) if ended else report.findings
    monkeypatch.setattr(trying, "_on_gloo", lambda *_: replace(report, findings=told))
    trial = trying.tried(tmp_path / "repro.py", tuple(range(8)), wanted)
    assert trial.how == ("error" if ended else "gloo")


def test_a_healthy_case_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3, and the verdict in the sentence."""
    script = tmp_path / "repro.py"
    healthy = str(EXAMPLES / "healthy" / "dumps")
    assert main(["reproduce", healthy, "-o", str(script)]) == 3
    assert "there is nothing to reproduce: " in capsys.readouterr().err
    assert not script.exists()
