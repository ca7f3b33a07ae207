"""Where there is no room, a sentence says so, and nothing half is left behind."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from unhang.cli import main

CASE = Path(__file__).parents[2] / "examples" / "never-joined-armed"


def no_files_grow() -> None:
    """As on a full disk: files can be made, and nothing written into them."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize(
    "words",
    [
        ["collect", "--redact", str(CASE), "--case", "new"],
        ["collect", "--case", "new"],
        ["logs", "job.log", "--case", "new"],
        ["diagnose", str(CASE), "--format", "html", "-o", "new"],
    ],
)
def test_what_cannot_be_written_is_not_there(tmp_path: Path, words: list[str]) -> None:
    """No empty case, no half of a report."""
    (tmp_path / "job.log").write_text("[rank0]: ValueError: no labels\n")
    done = subprocess.run(
        [sys.executable, "-m", "unhang", *words], cwd=tmp_path, preexec_fn=no_files_grow,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "new" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.log"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("x.so: failed to map segment", path="/site-packages/x.so"),
        RuntimeError("can't start new thread"),
    ],
)
def test_too_little_room_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """And no exit code of a verdict: 1 would say that a problem was found."""

    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(main, "_run", fail)
    assert main.main(["diagnose", "x"]) == 3
    assert "ulimit -" in capsys.readouterr().err


def test_a_module_that_is_missing_is_a_mistake_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback tells where."""

    def fail(_: object) -> int:
        raise ModuleNotFoundError("No module named 'unhang.nowhere'")

    monkeypatch.setattr(main, "_run", fail)
    with pytest.raises(ModuleNotFoundError):
        main.main(["diagnose", "x"])
