"""Where there is no room, a sentence says so, and nothing half is left behind."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from unhang.cli import main

CASE = Path(__file__).parents[2] / "examples" / "never-joined-armed"


class Group(Exception):  # noqa: N818 - as the built-in one, which Python 3.10 lacks
    """Several exceptions at once, as asynchronous libraries raise them."""

    def __init__(self, exceptions: list[Exception]) -> None:
        super().__init__("unhandled errors in a TaskGroup")
        self.exceptions = exceptions


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
        Group([Group([RuntimeError("can't start new thread")])]),
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


@pytest.mark.parametrize("errors", [[], [MemoryError(), ValueError("a mistake")]])
def test_a_group_with_another_error_is_a_mistake_of_ours(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception]
) -> None:
    """Each member has to be a lack of room, or its traceback is what tells."""

    def fail(_: object) -> int:
        raise Group(errors)

    monkeypatch.setattr(main, "_run", fail)
    with pytest.raises(Group):
        main.main(["mcp"])


def test_a_module_that_is_missing_is_a_mistake_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback tells where."""

    def fail(_: object) -> int:
        raise ModuleNotFoundError("No module named 'unhang.nowhere'")

    monkeypatch.setattr(main, "_run", fail)
    with pytest.raises(ModuleNotFoundError):
        main.main(["diagnose", "x"])
